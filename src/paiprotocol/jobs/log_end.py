"""The end of a task's log as plain lines, and the Python exceptions that it reports."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paiprotocol.jobs.escape_sequences import without_escapes

SEARCHED_BYTES = 128 * 1024
"""Only this many bytes at the end of a log are searched: a program reports why it fails when it ends."""
FINAL_LINES = 200
"""A message counts as the end of the log if at most this many lines follow its first one."""

_MAX_DETAIL_LINES = 10
_MAX_LINE_CHARS = 8192

_LINE_ENDS = re.compile(r"[\r\n]")
# Prefixes of launchers that merge the output of several processes: PyTorch, torchrun --tee, srun -l, mpirun.
# A job writes these lines: no pattern may look at the same characters again and again.
_PREFIX = re.compile(r"\[rank\d+\]:[ ]?|\[[\w-]+\d\]:|[ ]*\d+: |\[\d+,\d+\]<std(?:out|err)>:")
_PREFIX_STARTS = "[ 0123456789"
_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d{1,9})(?:, in .+)?$')
_EXCEPTION = re.compile(r"(?P<name>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (?P<message>.*)|:)?$")
# Python reports these at exit and continues; they never decide the exit status.
_IGNORED = re.compile(r"Exception ignored (?:in|while|on)\b")


def plain_line(line: str) -> str:
    """A line of a log without colours and without other control characters."""
    return line.strip() if line.isprintable() else _LINE_ENDS.sub("", without_escapes(line)).strip()


def last_line(text: str) -> str:
    """The last line with something to read; programs often reset their colours in one of its own."""
    lines = _LINE_ENDS.split(without_escapes(text))
    return next((plain for line in reversed(lines) if (plain := line.strip())), "")


@dataclass(frozen=True, slots=True)
class RaisedException:
    """An exception with its traceback.

    ``text`` is its line and ``at`` that line's number; ``details`` are the further lines of its message;
    ``file`` and ``line`` are those of its last frame.
    """

    name: str
    message: str
    text: str
    details: str
    at: int
    file: str
    line: int


class LogEnd:
    """Lines at the end of a log, without colours and without the prefixes of launchers."""

    def __init__(self, log: str | bytes):
        raw = log.encode("utf-8", "replace") if isinstance(log, str) else log
        plain = without_escapes(raw[-SEARCHED_BYTES:].decode("utf-8", "replace"))
        # A carriage return starts a line as well: progress bars have no other end.
        self.lines = re.split(r"\r\n|[\r\n]", plain.rstrip())
        # By line, the prefix that was removed from it.
        self._prefixes: dict[int, str] = {}
        for at, line in enumerate(self.lines):
            if len(line) > _MAX_LINE_CHARS:
                line = self.lines[at] = line[:_MAX_LINE_CHARS]
            if line[:1] in _PREFIX_STARTS and (prefix := _PREFIX.match(line)):
                self.lines[at] = line[prefix.end() :]
                self._prefixes[at] = prefix.group()

    @property
    def final_from(self) -> int:
        """Number of the first of the final lines."""
        return max(0, len(self.lines) - FINAL_LINES)

    def text(self, start: int) -> str:
        """The lines from this number on."""
        return "\n".join(self.lines[start:])

    def exceptions(self) -> list[RaisedException]:
        """Every exception whose traceback the log contains, in order of their lines."""
        exceptions: list[RaisedException] = []
        # The state of each process: its last frame while a traceback is read.
        frames: dict[str, re.Match[str]] = {}
        ignored: set[str] = set()
        for at, line in enumerate(self.lines):
            prefix = self._prefixes.get(at, "")
            if line.startswith("Exception ignored ") and _IGNORED.match(line):
                ignored.add(prefix)
            elif line.startswith("  File ") and (frame := _FRAME.match(line)):
                frames[prefix] = frame
            elif prefix in frames and not line.startswith("  "):
                last = frames.pop(prefix)
                raised = _EXCEPTION.match(line)
                if raised and prefix not in ignored:
                    exceptions.append(self._exception(raised, last, at))
                ignored.discard(prefix)
        return exceptions

    def _exception(self, raised: re.Match[str], frame: re.Match[str], at: int) -> RaisedException:
        details = []
        for line in self.lines[at + 1 : at + 1 + _MAX_DETAIL_LINES]:
            if not line or line.startswith(("  ", "Traceback ")):
                break
            details.append(line)
        return RaisedException(
            raised["name"].rpartition(".")[2],
            raised["message"] or "",
            raised.group(),
            "\n".join(details),
            at,
            frame["file"],
            int(frame["line"]),
        )
