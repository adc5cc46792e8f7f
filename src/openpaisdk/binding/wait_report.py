"""Report of ``wait()``: progress and outcome of a job, for a person at a terminal or in a notebook."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from openpaisdk.jobs.job_notices import CONNECTION, STATE, JobNotice
from openpaisdk.jobs.outcome import failure_details, outcome_reason
from openpaisdk.output import format_duration, palette
from openpaisdk.output.live_html import is_notebook
from openpaisdk.output.untrusted_text import visible

if TYPE_CHECKING:
    from openpaisdk.client.models import JobStatus


class WaitReport:
    """Prints lines about one job; prints nothing where no person reads them, unless ``progress`` is true."""

    def __init__(self, name: str, progress: bool | None = None):
        self._name = name
        self._stream = _stream(progress)
        self._state = ""
        self._messages: set[str] = set()

    @property
    def is_shown(self) -> bool:
        return self._stream is not None

    def show(self, notice: JobNotice) -> None:
        """Print a notice. A final state is left to ``show_outcome``, which knows the reason."""
        if notice.kind == STATE:
            self.show_state(notice.text)
        elif notice.kind == CONNECTION:
            self._print(notice.text)
        else:
            self.show_message(notice.text)

    def show_state(self, state: str) -> None:
        if state != self._state and state not in ("SUCCEEDED", "FAILED", "STOPPED"):
            self._print(f"{self._name} {self._painted(state)}")
        self._state = state

    def show_message(self, message: str) -> None:
        if message not in self._messages:
            self._messages.add(message)
            self._print(f"{self._name}: {message}")

    def show_outcome(self, job: JobStatus) -> None:
        """Print how the job ended: its reason, the cause if it is known, what to do, the last line."""
        reason = outcome_reason(job)
        is_started = job.launched_ms is not None
        duration = format_duration(job.launched_ms, job.completed_ms) if is_started else ""
        when = f"after {duration}" if is_started else "before it started"
        self._print(f"{self._name} {self._painted(job.state)} {when}" + (f": {reason}" if reason else ""))
        for key, value in failure_details(job).items():
            self._print(f"  {key:<10} {value}")

    def _painted(self, state: str) -> str:
        return palette(self._stream).state(state) if self._stream is not None else state

    def _print(self, line: str) -> None:
        if self._stream is not None:
            try:
                print(visible(line), file=self._stream, flush=True)
            except (OSError, ValueError):
                self._stream = None  # closed; the job still counts


def _stream(progress: bool | None) -> TextIO | None:
    """Where to print: a notebook shows stderr as if it were an error, so there it is stdout."""
    if progress is False:
        return None
    if is_notebook():
        return sys.stdout
    return sys.stderr if progress or _is_terminal(sys.stderr) else None


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
