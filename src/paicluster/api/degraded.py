"""What keeps the cluster from going on, with all jobs or with one, as a remark on each that is not over.

The database cannot tell it, for that is what cannot be written: it is made up when somebody looks.
"""

from __future__ import annotations

import time

from paicluster.store.rows import EventRow, JobRow

_OVER = "The cluster can go on with this job again."


def degraded_reason(row: JobRow, trouble: str) -> str:
    """What of it concerns this job: nothing, when it is over."""
    return "" if row.sub_state == "Completed" else trouble


def degraded_event(row: JobRow, trouble: str) -> EventRow:
    """As an event of the job; without any, that it is over."""
    kind, reason, message = ("Warning", "CannotGoOn", trouble) if trouble else ("Normal", "GoesOn", _OVER)
    now_ms = int(time.time() * 1000)
    return EventRow(
        0, row.id, row.debug_id, kind, reason, message, None, None, now_ms, now_ms, 1, "paicluster"
    )
