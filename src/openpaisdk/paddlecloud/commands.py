"""Commands of ``paddlecloud``: their names, where they are, and the help."""

from __future__ import annotations

import sys

from openpaisdk.paddlecloud.flags import HelpRequested
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.paddlecloud.flags import FlagCommand

GROUPS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Jobs",
        (
            ("submit", "submit:submit", "submit a job"),
            ("kill", "kill:kill", "stop a job"),
            ("get", "get:get", "list jobs or workers, or print the quota or the registries"),
            ("jobs", "get:jobs", "list jobs; the same as get jobs"),
            ("logs", "logs:logs", "print the logs of a job"),
        ),
    ),
    (
        "Files in the cloud",
        (
            ("pfs cp", "copy:copy", "upload or download files and folders (also: cp)"),
            ("pfs ls", "pfs:list_files", "list files (also: ls)"),
            ("pfs rm", "pfs:remove", "delete files and folders (also: rm)"),
            ("pfs mkdir", "pfs:make_folders", "create folders (also: mkdir)"),
            ("file put", "file:put", "upload a file or folder in whole files"),
            ("file get", "file:get_file", "download a file"),
            ("file ls", "file:list_names", "list the names in a folder"),
            ("publish", "publish:publish", "give a file an address that needs no login"),
        ),
    ),
    (
        "Image registries",
        (
            ("registry", "registry:add_registry", "store the login of an image registry"),
            ("delete registry", "registry:delete_registry", "delete the login of an image registry"),
        ),
    ),
)
ENTRY_POINTS = {name: entry for _, group in GROUPS for name, entry, _ in group}
ALIASES = {name: f"pfs {name}" for name in ("cp", "ls", "rm", "mkdir")}
COLLECTIONS = ("pfs", "file", "delete")
"""First words of commands that have two."""
_LOG_SWITCHES = ("logtostderr", "alsologtostderr")
_LOG_OPTIONS = ("v", "stderrthreshold", "log_dir", "vmodule", "log_backtrace_at")

HEAD = """\
paddlecloud runs PaddlePaddle training jobs and manages their files.

Without ~/.paddle/config it uses the cluster of this machine, which it starts if needed.

Try it:
  paddlecloud submit -entry "python train.py" ./job_word_emb   submit the package in a folder
  paddlecloud jobs                                             list the running jobs
  paddlecloud logs                                             print the log of the newest job

Usage: paddlecloud [-datacenter NAME] <command> [options]
"""
FOOT = """
Options have one dash or two. paddlecloud <command> --help describes a command, with an example.
paddlecloud --version prints the version.
"""


def call(argv: list[str]) -> int:
    """Run one command line."""
    argv = _without_global_options(argv)
    if not argv or argv[0] in ("-h", "-help", "--help", "help", "commands", "flags"):
        if argv[:1] == ["help"] and len(argv) > 1:
            return call([*argv[1:], "--help"])
        sys.stdout.write(help_text())
        return 0
    if argv[0] in ("--version", "-version", "version"):
        from paiprotocol._version import __version__

        sys.stdout.write(f"paddlecloud {__version__}\n")
        return 0
    name, rest = _split(argv)
    if name in COLLECTIONS:
        sys.stdout.write(help_text(name))
        return 0
    try:
        return _function(name)(rest)
    except HelpRequested:
        return 0


def help_text(collection: str = "") -> str:
    """All commands, or those of a collection."""
    parts = [] if collection else [HEAD]
    for title, group in GROUPS:
        rows = [row for row in group if not collection or row[0].startswith(collection + " ")]
        if rows:
            parts.append(f"\n{title}:\n" if not collection else f"{title}:\n")
            parts.extend(f"  {name:<16} {summary}\n" for name, _, summary in rows)
    return "".join((*parts, FOOT))


def command_of(name: str) -> FlagCommand:
    """The options and the help of a command: in its module, under the name of its function in capitals."""
    module, _, function = ENTRY_POINTS[name].partition(":")
    command: FlagCommand = getattr(_module(module), function.upper())
    return command


def _split(argv: list[str]) -> tuple[str, list[str]]:
    """Name and arguments of a command. A collection alone, or with an option for help, stays as it is."""
    first = argv[0]
    if first in COLLECTIONS:
        if len(argv) == 1 or argv[1] in ("-h", "-help", "--help", "help"):
            return first, []
        name, rest = " ".join(argv[:2]), argv[2:]
    else:
        name, rest = ALIASES.get(first, first), argv[1:]
    if name not in ENTRY_POINTS:
        raise _unknown(name)
    return name, rest


def _without_global_options(argv: list[str]) -> list[str]:
    """Move options that precede the command behind it. Options for PaddleCloud's logging have no effect."""
    kept: list[str] = []
    at = 0
    while at < len(argv) and argv[at].startswith("-"):
        name, equals, _ = argv[at].removeprefix("-").removeprefix("-").partition("=")
        takes_next = not equals and name in (*_LOG_OPTIONS, "datacenter")
        option = argv[at : at + 1 + takes_next]
        if name in ("datacenter", "debug"):
            kept += option
        elif name not in (*_LOG_SWITCHES, *_LOG_OPTIONS):
            return argv[at:]  # the help, the version, or a mistake
        at += len(option)
    rest = argv[at:]
    if not rest:
        return rest
    size = 2 if rest[0] in COLLECTIONS else 1
    return [*rest[:size], *kept, *rest[size:]]


def _unknown(word: str) -> UsageError:
    from difflib import get_close_matches

    near = get_close_matches(word, [*ENTRY_POINTS, *ALIASES], 1)
    return UsageError(
        f"There is no command {word!r}." + (f" Did you mean paddlecloud {near[0]}?" if near else ""),
        hint="paddlecloud --help lists the commands.",
    )


def _function(name: str) -> Callable[[list[str]], int]:
    module, _, function = ENTRY_POINTS[name].partition(":")
    handler: Callable[[list[str]], int] = getattr(_module(module), function)
    return handler


def _module(name: str) -> object:
    # __import__ instead of importlib: importlib would be one more import for every command.
    return __import__(f"openpaisdk.paddlecloud.{name}", fromlist=["_"])
