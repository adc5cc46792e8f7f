"""Degraded state as an event of each unfinished job: the database is unwritable, or the job is quarantined.

The event is made when a client reads the job: it cannot be stored while the database cannot be written.
"""

from __future__ import annotations

import time

from paicluster.store.rows import EventRow, JobRow

_RECOVERED = "The cluster processes this job again."


def degraded_reason(row: JobRow, reason: str) -> str:
    """The part of ``reason`` that concerns this job: empty once it has finished."""
    return "" if row.sub_state == "Completed" else reason


def degraded_event(row: JobRow, degraded: str) -> EventRow:
    """Event of the job for this degraded reason; for an empty one, the event that the job recovered."""
    reason, message = ("Degraded", degraded) if degraded else ("Recovered", _RECOVERED)
    now_ms = int(time.time() * 1000)
    return EventRow(
        0,
        row.id,
        row.debug_id,
        "Warning" if degraded else "Normal",
        reason,
        message,
        None,
        None,
        now_ms,
        now_ms,
        1,
        "paicluster",
        bool(degraded),
    )
