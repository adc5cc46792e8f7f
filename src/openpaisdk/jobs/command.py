"""From the words of a command line to the line a shell runs."""

from __future__ import annotations

from openpaisdk.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def shell_line(arguments: Sequence[str]) -> str:
    """One word is a shell line as typed (``'make && ./run'``); several are quoted, each arrives exact."""
    if not arguments or not any(word.strip() for word in arguments):
        raise UsageError("There is no command to run.", hint="Write it last: pai sub -- python train.py")
    if any("\0" in word for word in arguments):
        raise UsageError("A command cannot hold a NUL character.")
    if len(arguments) == 1:
        return as_text(arguments[0])
    import shlex

    return shlex.join(as_text(word) for word in arguments)


def as_text(word: str) -> str:
    """A word as text: where the locale knows only ASCII, Python hands its bytes on in disguise."""
    try:
        word.encode()
    except UnicodeEncodeError:
        import os

        try:
            return os.fsencode(word).decode()
        except UnicodeDecodeError:
            raise UsageError(f"{word!r} is not text in UTF-8, and a job is text.") from None
    return word
