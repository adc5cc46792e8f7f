"""Steps of a command that take a while: ``Uploading package ... Done``."""

from __future__ import annotations

import sys

from openpaisdk.output.progress import Progress
from openpaisdk.output.untrusted_text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType


class ProgressStep:
    """``with ProgressStep("Uploading package") as step: step.progress.advance(n)``.

    The line stands from the beginning; a bar takes its place while the step lasts, on a terminal.
    """

    __slots__ = ("_text", "progress")

    def __init__(self, text: str):
        self._text = f"{printable(text)} ... "
        self.progress = Progress(printable(text))

    def __enter__(self) -> ProgressStep:
        sys.stdout.write(self._text)
        sys.stdout.flush()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.progress.is_drawn:
            self.progress.clear()
            sys.stdout.write("\r" + self._text if sys.stdout.isatty() else "")
        sys.stdout.write("Done\n" if kind is None else "Failed\n")
        sys.stdout.flush()
