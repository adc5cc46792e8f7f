"""``pai edit-clusters``: edit the clusters file; an invalid result is not saved."""

from __future__ import annotations

import os

from openpaisdk.cli.parser import command_parser
from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry, check_clusters, reserved_names
from openpaisdk.config.paths import display_path, make_private
from openpaisdk.config.yaml_files import FileLock, parse_yaml, replace_file
from openpaisdk.output import print_notice
from paiprotocol.errors import ConfigError, PaiError, UsageError

FALLBACKS = ("nano", "vi", "notepad")


def edit_clusters(argv: list[str]) -> int:
    """``pai edit-clusters [--editor EDITOR]``"""
    parser = command_parser(
        "edit-clusters",
        "pai edit-clusters --editor nano",
        "Opens a copy with --editor, VS Code (code) if it is installed, $VISUAL or $EDITOR. When the editor\n"
        "exits, the copy replaces the file if it is valid; otherwise the file stays unchanged.",
        output=False,
        cluster=False,
    )
    parser.add_argument(
        "--editor", default="", help="the editor to use (default: VS Code, $VISUAL or $EDITOR)"
    )
    args = parser.parse(argv)
    path = ClusterRegistry.file_path()
    before = _content(path)
    draft = f"{path}.edit.yaml"
    make_private(os.path.dirname(path))
    replace_file(draft, before)
    _run([*_editor(args.editor), draft])
    after = _content(draft)
    if after == before:
        os.unlink(draft)
        print_notice("Nothing was changed.")
        return 0
    try:
        entries = check_clusters(parse_yaml(draft), draft)
        _check_new_names(entries, path)
    except ConfigError as e:
        raise ConfigError(
            f"{e.message} Nothing was changed.",
            hint=f"Your text is saved in {display_path(draft)}; the clusters file is unchanged.",
        ) from None
    with FileLock(path):
        if _content(path) != before:
            raise PaiError(
                f"{display_path(path)} was changed by another command meanwhile, so it was not replaced.",
                hint=f"Your text is saved in {display_path(draft)}.",
            )
        replace_file(path, after)
    os.unlink(draft)
    print_notice(
        f"{display_path(path)} now has {len(entries)} {'cluster' if len(entries) == 1 else 'clusters'}."
    )
    return 0


def _check_new_names(entries: list[ClusterEntry], path: str) -> None:
    """Reserved names must not be added; those that the file had before keep their meaning."""
    known = reserved_names(ClusterRegistry.load().entries)
    added = [name for name in reserved_names(entries) if name not in known]
    if added:
        raise ConfigError(f"{display_path(path)} cannot have {', '.join(added)}: that name is reserved.")


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read()
    except FileNotFoundError:
        return b""
    except OSError as e:
        raise ConfigError(f"{display_path(path)} cannot be read: {e.strerror}.") from None


def _editor(option: str) -> list[str]:
    from shlex import split
    from shutil import which

    if option:
        return _with_wait_option(split(option))
    if which("code"):
        return ["code", "--wait"]
    for name in ("VISUAL", "EDITOR"):
        if os.environ.get(name):
            return _with_wait_option(split(os.environ[name]))
    for name in FALLBACKS:
        if which(name):
            return [name]
    raise UsageError("No editor was found.", hint="Name one: pai edit-clusters --editor EDITOR")


def _with_wait_option(command: list[str]) -> list[str]:
    """VS Code returns at once unless ``--wait`` makes it wait until the window is closed."""
    is_vscode = command and os.path.basename(command[0]) in ("code", "code.cmd", "code-insiders")
    return [*command, "--wait"] if is_vscode and "--wait" not in command and "-w" not in command else command


def _run(command: list[str]) -> None:
    import subprocess

    try:
        status = subprocess.call(command)
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise UsageError(f"The editor {command[0]} cannot be started: {reason}.") from None
    if status:
        raise PaiError(f"The editor {command[0]} failed with status {status}; nothing was changed.")
