"""Shell command line built from command-line arguments."""

from __future__ import annotations

from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def shell_line(arguments: Sequence[str]) -> str:
    """A single argument is a shell line as typed (``'make && ./run'``); several are quoted one by one."""
    if not arguments or not any(argument.strip() for argument in arguments):
        raise UsageError("There is no command to run.", hint="Put it last: pai sub -- python train.py")
    if any("\0" in argument for argument in arguments):
        raise UsageError("A command cannot contain a NUL character.")
    if len(arguments) == 1:
        return as_text(arguments[0])
    import shlex

    return shlex.join(as_text(argument) for argument in arguments)


def as_text(argument: str) -> str:
    """An argument as text. In an ASCII locale Python passes its bytes as surrogate escapes."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        import os

        try:
            return os.fsencode(argument).decode()
        except UnicodeDecodeError:
            raise UsageError(f"{argument!r} is not UTF-8 text, which a job requires.") from None
    return argument


def interpreter_of(file: str) -> str:
    """The program that runs a script, by the file's ending; empty if it does not tell."""
    return {".py": "python", ".sh": "bash"}.get(file[-3:], "")
