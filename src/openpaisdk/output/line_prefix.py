"""Output stream that writes whole lines with a prefix, so that several logs can share one terminal."""

from __future__ import annotations

from openpaisdk.output.line_stream import LineStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from openpaisdk.output.line_stream import Output


class LinePrefixer(LineStream):
    """Writes each complete line after its prefix.

    Of a line that was overwritten with carriage returns, as progress bars do, the last version is written:
    the others would hide the prefix. Each part of a line that is too long is a line of its own.
    """

    __slots__ = ("_prefix",)

    def __init__(self, out: Output, prefix: str):
        super().__init__(out)
        self._prefix = prefix.encode("utf-8", "backslashreplace")

    def _write_lines(self, lines: Sequence[bytes]) -> None:
        self._out.write(b"".join(map(self._shown, lines)))

    def _write_part(self, part: bytes) -> None:
        self._write_lines([part])

    def _shown(self, line: bytes) -> bytes:
        return self._prefix + line.rstrip(b"\r").rpartition(b"\r")[2] + b"\n"
