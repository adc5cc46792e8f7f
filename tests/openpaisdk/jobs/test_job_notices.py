"""Notices of a waiting job: each pending reason once, and again only after some minutes."""

from __future__ import annotations

from openpaisdk.client.follow_stream import Frame
from openpaisdk.jobs.job_notices import job_notices

PULLING, FAILED = "Pulling the image.", "The registry does not answer."


def pending(message: str, second: int) -> Frame:
    head = {"type": "Warning", "reason": "FailedLaunch", "message": message, "pending": True}
    return Frame("event", {**head, "time": 1_700_000_000_000 + 1000 * second})


def texts(*frames: Frame) -> list[str]:
    waiting = Frame("state", {"state": "WAITING"})
    return [notice.text for notice in job_notices([waiting, *frames])][1:]


def test_reasons_that_alternate_at_every_retry_are_reported_once() -> None:
    frames = [pending((PULLING, FAILED)[index % 2], 10 * index) for index in range(20)]
    assert texts(*frames) == [PULLING, FAILED]


def test_reason_is_reported_again_after_some_minutes() -> None:
    assert texts(pending(PULLING, 0), pending(FAILED, 10), pending(FAILED, 299), pending(PULLING, 301)) == [
        PULLING,
        FAILED,
        PULLING,
    ]
