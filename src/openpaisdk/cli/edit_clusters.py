"""``pai edit-clusters``: the clusters file in an editor, and back only if it is whole."""

from __future__ import annotations

import os

from openpaisdk.cli.parser import command_parser
from openpaisdk.config.clusters import ClusterRegistry, check_clusters
from openpaisdk.config.paths import display_path, make_private
from openpaisdk.config.yaml_files import Lock, parse_yaml, replace_file
from openpaisdk.errors import ConfigError, PaiError, UsageError
from openpaisdk.output import print_notice

FALLBACKS = ("nano", "vi", "notepad")


def edit_clusters(argv: list[str]) -> int:
    """``pai edit-clusters [--editor EDITOR]``"""
    parser = command_parser(
        "edit-clusters",
        "pai edit-clusters --editor nano",
        "A copy is opened, with --editor, VS Code (code) where it is installed, $VISUAL or $EDITOR. When\n"
        "the editor ends, the copy becomes the file if it can be read; if not, the old file stays.",
        output=False,
        cluster=False,
    )
    parser.add_argument("--editor", default="", help="the editor to use")
    args = parser.parse(argv)
    path = ClusterRegistry.load_path()
    before = _content(path)
    aside = f"{path}.edit.yaml"
    make_private(os.path.dirname(path))
    replace_file(aside, before)
    _run([*_editor(args.editor), aside])
    after = _content(aside)
    if after == before:
        os.unlink(aside)
        print_notice("Nothing was changed.")
        return 0
    try:
        entries = check_clusters(parse_yaml(aside), aside)
    except ConfigError as e:
        raise ConfigError(
            f"{e.message} Nothing was changed.",
            hint=f"Your text is kept in {display_path(aside)}; the clusters file is as it was.",
        ) from None
    with Lock(path):
        if _content(path) != before:
            raise PaiError(
                f"{display_path(path)} was changed by another command meanwhile, so it was left as it is.",
                hint=f"Your text is kept in {display_path(aside)}.",
            )
        replace_file(path, after)
    os.unlink(aside)
    print_notice(
        f"{display_path(path)} now holds {len(entries)} {'cluster' if len(entries) == 1 else 'clusters'}."
    )
    return 0


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read()
    except FileNotFoundError:
        return b""
    except OSError as e:
        raise ConfigError(f"{display_path(path)} cannot be read: {e.strerror}.") from None


def _editor(asked: str) -> list[str]:
    from shlex import split
    from shutil import which

    if asked:
        return _waiting(split(asked))
    if which("code"):
        return ["code", "--wait"]
    for name in ("VISUAL", "EDITOR"):
        if os.environ.get(name):
            return _waiting(split(os.environ[name]))
    for name in FALLBACKS:
        if which(name):
            return [name]
    raise UsageError("No editor was found.", hint="Name one: pai edit-clusters --editor EDITOR")


def _waiting(words: list[str]) -> list[str]:
    """VS Code comes back at once unless it is told to wait for the window to be closed."""
    plain = words and os.path.basename(words[0]) in ("code", "code.cmd", "code-insiders")
    return [*words, "--wait"] if plain and "--wait" not in words and "-w" not in words else words


def _run(command: list[str]) -> None:
    import subprocess

    try:
        status = subprocess.call(command)
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise UsageError(f"The editor {command[0]} cannot be started: {reason}.") from None
    if status:
        raise PaiError(f"The editor {command[0]} failed with status {status}; nothing was changed.")
