"""From words to a command, and from whatever happens to an exit status.

0: done. 1: it failed, and a sentence said why. 2: the command line was wrong. 3: a job that was waited for
failed; 4: it was stopped; 5: it was not over in the time given. 130: Ctrl-C. 141: nobody read the output.
"""

from __future__ import annotations

import os
import sys

from openpaisdk.cli.commands import ALIASES, PLACES, help_text
from openpaisdk.errors import PaiError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

INTERRUPTED = 130


def run(argv: list[str], translate: Callable[[list[str]], list[str]] | None = None) -> int:
    """Run one command line; the exit status. No traceback reaches a person who did not ask for one."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from openpaisdk.stdio import reopen_closed_stdio

        reopen_closed_stdio()
    if argv[:1] == ["--debug"]:
        argv = argv[1:]
        debug()
    try:
        status = _call(translate(argv) if translate else argv)
        sys.stdout.flush()
    except PaiError as e:
        _show_where()
        return _tell(e.message, e.hint, e.exit_status)
    except KeyboardInterrupt:
        _show_where()
        return INTERRUPTED
    except BrokenPipeError:
        from openpaisdk.stdio import silence_broken_pipe

        return silence_broken_pipe()
    except EOFError:
        _show_where()
        return _tell("The input ended before the question was answered, so nothing was done.", "", 1)
    except OSError as e:
        _show_where()
        if isinstance(e, FileNotFoundError) and not e.filename and _nowhere():
            return _tell("The folder you are in no longer exists.", "Go to another one: cd", 1)
        where = f"{e.filename}: " if e.filename else ""
        return _tell(f"{where}{e.strerror or e}.", "", 1)
    except Exception as e:
        _show_where()
        hint = "This is a mistake in pai. Add --debug after pai to see where it happened."
        return _tell(f"Something unexpected happened: {type(e).__name__}: {e}", hint, 1)
    return status


def debug() -> None:
    """Tell every request from now on, and where a failure happened."""
    os.environ["PAI_DEBUG"] = "1"


def _nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _call(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        if len(argv) > 1 and argv[0] == "help":
            return command_named(argv[1])([*argv[2:], "--help"])
        sys.stdout.write(help_text())
        return 0
    if argv[0] in ("--version", "-V"):
        from openpaisdk._version import __version__

        sys.stdout.write(f"pai {__version__}\n")
        return 0
    if argv[0] == "__complete":  # asked by the scripts of ``pai completion``, with every TAB
        from openpaisdk.cli.completer import complete

        return complete(argv[1:])
    return command_named(argv[0])(argv[1:])


def command_named(word: str) -> Callable[[list[str]], int]:
    """What runs a command, by its name or another name of it."""
    place = PLACES.get(ALIASES.get(word, word))
    if place is None:
        raise _unknown(word)
    module, _, function = place.partition(":")
    # __import__ and not importlib: that is one more module on the way of every command.
    found: Callable[[list[str]], int] = getattr(
        __import__(f"openpaisdk.cli.{module}", fromlist=[function]), function
    )
    return found


def _unknown(word: str) -> UsageError:
    if word.startswith("-"):
        return UsageError(f"pai has no option {word}.", hint="pai --help lists the commands.")
    near = _MEANT.get(word) or _near(word)
    meant = f" Did you mean {' or '.join(f'pai {name}' for name in near)}?" if near else ""
    return UsageError(f"There is no command {word!r}.{meant}", hint="pai --help lists the commands.")


# What these are called in other programs.
_MEANT = {
    "rm": ["remove", "delete-job"],
    "run": ["sub"],
    "ps": ["list-jobs"],
    "kill": ["stop-job"],
    "cancel": ["stop-job"],
    "cat": ["logs", "copy"],
    "cp": ["copy"],
    "upload": ["copy"],
    "download": ["copy"],
    "ls": ["listdir", "list-jobs"],
    "mkdir": ["makedir"],
    "login": ["add-cluster", "update-token"],
    "status": ["job-status", "cluster-status"],
}


def _near(word: str) -> list[str]:
    """Commands that look like it, or that have a part which does; what only looks comes first."""
    from difflib import get_close_matches

    close = get_close_matches(word, [*PLACES, *ALIASES], 2, 0.65)
    parts = [name for name in PLACES if get_close_matches(word, name.split("-"), 1, 0.7)]
    parts.sort(key=lambda name: not name.startswith("list"))
    return list(dict.fromkeys((*close, *parts)))[:3]


def _tell(message: str, hint: str, status: int) -> int:
    try:
        sys.stdout.flush()
        sys.stderr.write(f"pai: {message}\n" + (f"     {hint}\n" if hint else ""))
        sys.stderr.flush()
    except BrokenPipeError:
        from openpaisdk.stdio import silence_broken_pipe

        silence_broken_pipe()
    except (OSError, ValueError):
        pass
    return status


def _show_where() -> None:
    """The traceback, for those who asked: ``pai --debug``, PAI_DEBUG, or a file ``.openpai/debug_enable``."""
    if os.environ.get("PAI_DEBUG") or os.path.exists(os.path.join(".openpai", "debug_enable")):
        import traceback

        traceback.print_exc()
