"""Entry point of ``pai`` and of the other programs: runs the command and maps errors to exit statuses.

0: success. 1: the command failed; stderr says why. 2: the command line was wrong. 3: a followed job failed.
4: a followed job was stopped. 5: a job did not finish within the timeout. 130: Ctrl-C. 141: the reader of the
output closed it.
"""

from __future__ import annotations

import os
import sys

from openpaisdk.cli.commands import command_named, help_text
from paiprotocol.errors import PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

INTERRUPTED = 130


def run(argv: list[str], translate: Callable[[list[str]], list[str]] | None = None) -> int:
    """Run one command line of ``pai`` and return the exit status."""
    return run_program("pai", argv, lambda arguments: _call(translate(arguments) if translate else arguments))


def run_program(program: str, argv: list[str], call: Callable[[list[str]], int]) -> int:
    """Run one command line with ``call``. Tracebacks are printed in debug mode only."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from paiprotocol.stdio import reopen_closed_stdio

        reopen_closed_stdio()
    if argv[:1] == ["--debug"]:
        from openpaisdk.cli.debug import enable_debug

        argv = argv[1:]
        enable_debug()
    if suggestions := sys.modules.get("openpaisdk.output.suggested_commands"):
        suggestions.set_context(None)  # that of an earlier command in this process
    try:
        status = call(argv)
        sys.stdout.flush()
    except PaiError as e:
        _print_traceback()
        return _print_error(program, e.message, e.hint, e.exit_status)
    except KeyboardInterrupt:
        _print_traceback()
        return INTERRUPTED
    except BrokenPipeError:
        from paiprotocol.stdio import silence_broken_pipe

        return silence_broken_pipe()
    except EOFError:
        _print_traceback()
        return _print_error(
            program, "The input ended before the question was answered, so nothing was done.", "", 1
        )
    except OSError as e:
        _print_traceback()
        if isinstance(e, FileNotFoundError) and not e.filename and _is_cwd_deleted():
            return _print_error(
                program, "The folder you are in no longer exists.", "Go to another one: cd", 1
            )
        where = f"{e.filename}: " if e.filename else ""
        return _print_error(program, f"{where}{e.strerror or e}.", "", 1)
    except Exception as e:
        _print_traceback()
        hint = f"This is a bug in {program}. Run {program} --debug <command> to see the traceback."
        return _print_error(program, f"Unexpected error: {type(e).__name__}: {e}", hint, 1)
    return status


def exit_at_once(status: int) -> int:
    """End the process without the interpreter's own end, which takes 5 to 8 ms of every command.

    Returns the status where something is left to that end: another thread, functions registered for it,
    output that cannot be written.
    """
    import atexit

    if "threading" in sys.modules or getattr(atexit, "_ncallbacks", lambda: 1)():
        return status
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return status
    os._exit(status)


def _is_cwd_deleted() -> bool:
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
        from paiprotocol._version import __version__

        sys.stdout.write(f"pai {__version__}\n")
        return 0
    if argv[0] == "__complete":  # called by the scripts of ``pai completion`` on every TAB
        from openpaisdk.cli.setup.completer import complete

        return complete(argv[1:])
    return command_named(argv[0])(argv[1:])


def _print_error(program: str, message: str, hint: str, status: int) -> int:
    from openpaisdk.output.suggested_commands import in_context
    from openpaisdk.output.untrusted_text import visible

    hint = in_context(hint)
    if program != "pai":
        message = in_context(message)  # PaddleCloud's replies have their hint in it
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        from paiprotocol.stdio import silence_broken_pipe

        silence_broken_pipe()  # the interpreter flushes it again at its end
    try:
        indent = " " * len(f"{program}: ")
        sys.stderr.write(visible(f"{program}: {message}\n" + (f"{indent}{hint}\n" if hint else "")))
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
    return status


def _print_traceback() -> None:
    from openpaisdk.cli.debug import print_traceback

    print_traceback()
