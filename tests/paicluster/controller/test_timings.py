"""Timings of the reconcile loop."""

from __future__ import annotations

from paicluster.controller.timings import Backoff


def test_backoff_doubles_up_to_its_limit() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.delay_s(failures) for failures in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff.delay_s(100_000) == 3.0
