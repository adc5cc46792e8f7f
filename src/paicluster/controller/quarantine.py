"""Jobs that an unexpected error keeps the controller from: left out of its passes, and tried again later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from openpaisdk.errors import PaiError

log = logging.getLogger("paicluster.controller")

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 300.0


@dataclass(slots=True)
class _Case:
    framework: str
    why: str = ""
    failures: int = 0
    # Until when it is left out; None while it is being tried.
    timer: asyncio.TimerHandle | None = None


class Quarantine:
    """``try_again`` is called with a job when its time has come, ``told`` when there is news of it."""

    def __init__(self, try_again: Callable[[int], None], told: Callable[[int], None]):
        self._try_again = try_again
        self._told = told
        self._cases: dict[int, _Case] = {}

    def __len__(self) -> int:
        """Those that are tried just now count until it went well with them."""
        return len(self._cases)

    @property
    def out(self) -> set[int]:
        """Those that are left out now."""
        return self._cases.keys() - self.retrying()

    def excludes(self, job_id: int) -> bool:
        case = self._cases.get(job_id)
        return case is not None and case.timer is not None

    def add(self, job_id: int, framework: str, error: Exception) -> None:
        """What it holds it keeps: nothing is known to be free that could not be written down."""
        case = self._cases.setdefault(job_id, _Case(framework))
        if case.timer is not None:
            case.timer.cancel()
        why = error.message if isinstance(error, PaiError) else f"{type(error).__name__}: {error}"
        why = why.partition("\n")[0]
        if case.why != why:
            log.error("The job %s is set aside; all others go on.", framework, exc_info=error)
        case.why = why
        pause = min(_FIRST_PAUSE_S * 2.0 ** min(case.failures, 10), _LONGEST_PAUSE_S)
        case.failures += 1
        case.timer = asyncio.get_running_loop().call_later(pause, self.retry_now, job_id)
        self._told(job_id)

    def retry_now(self, job_id: int) -> None:
        """Try it in the next pass; nothing when it is not left out."""
        case = self._cases.get(job_id)
        if case is not None and case.timer is not None:
            case.timer.cancel()
            case.timer = None
            self._try_again(job_id)

    def retrying(self) -> set[int]:
        """Those that are to be tried now."""
        return {job_id for job_id, case in self._cases.items() if case.timer is None}

    def release(self, job_ids: Iterable[int]) -> None:
        """It went well with these."""
        for job_id in job_ids:
            log.warning("The controller goes on with the job %s.", self._cases.pop(job_id).framework)
            self._told(job_id)

    def why(self, framework: str) -> str:
        """For people: why the controller does not go on with this job; empty when it does. On any thread."""
        for case in tuple(self._cases.values()):
            if case.framework == framework:
                return (
                    f"The cluster cannot go on with this job because of an unexpected error ({case.why}); "
                    "its log has the details. It tries again from time to time."
                )
        return ""

    def close(self) -> None:
        for case in self._cases.values():
            if case.timer is not None:
                case.timer.cancel()
