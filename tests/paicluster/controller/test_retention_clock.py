"""The retention's clock: what a wrong clock of the machine does not remove."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paicluster.controller.retention_clock import RetentionClock
from support import server_with_clock
from support.prepared_database import prepare_database
from support.server_fixture import Cluster, eventually, job

DAY_S = 86_400.0


@pytest.fixture
def shift(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set the clocks: the wall clock so many days ahead, the machine booted so many days longer ago."""
    wall, boot = time.time, time.clock_gettime

    def shift(*, days: float = 0, running_days: float = 0) -> None:
        monkeypatch.setattr(time, "time", lambda: wall() + days * DAY_S)
        monkeypatch.setattr(time, "clock_gettime", lambda which: boot(which) + running_days * DAY_S)

    return shift


def opened(file: Path) -> RetentionClock:
    clock = RetentionClock(file)
    clock.open()
    clock.save()
    return clock


def days_ahead(clock: RetentionClock, start: float) -> int:
    return round((clock.now_ms() / 1000 - start) / DAY_S)


def test_clock_far_ahead_at_the_start_is_not_accepted(tmp_path: Path, shift: Callable[..., None]) -> None:
    start = time.time()
    opened(tmp_path / "clock")
    shift(days=400)
    assert days_ahead(opened(tmp_path / "clock"), start) == 0
    # Nor by the next server.
    assert days_ahead(opened(tmp_path / "clock"), start) == 0
    shift(days=0)
    assert days_ahead(opened(tmp_path / "clock"), start) == 0


def test_a_night_without_the_server_is_accepted(tmp_path: Path, shift: Callable[..., None]) -> None:
    start = time.time()
    opened(tmp_path / "clock")
    shift(days=0.9)
    assert days_ahead(opened(tmp_path / "clock"), start) == 1


def test_clock_is_accepted_after_a_week_of_service(tmp_path: Path, shift: Callable[..., None]) -> None:
    start = time.time()
    opened(tmp_path / "clock")
    shift(days=100)
    first = opened(tmp_path / "clock")
    shift(days=104, running_days=4)
    assert days_ahead(first, start) == 4
    first.save()
    second = opened(tmp_path / "clock")
    assert days_ahead(second, start) == 4
    shift(days=108, running_days=8)
    assert days_ahead(second, start) == 108


def test_clock_set_back_is_followed(tmp_path: Path, shift: Callable[..., None]) -> None:
    start = time.time()
    opened(tmp_path / "clock")
    shift(days=-50)
    assert days_ahead(opened(tmp_path / "clock"), start) == -50


@pytest.mark.parametrize("content", ["", "no JSON", "[]", '{"time": null, "distrusted_s": null}'])
def test_damaged_file_is_replaced(tmp_path: Path, shift: Callable[..., None], content: str) -> None:
    start = time.time()
    (tmp_path / "clock").write_text(content)
    opened(tmp_path / "clock")
    shift(days=400)
    assert days_ahead(opened(tmp_path / "clock"), start) == 0


@pytest.mark.slow
def test_server_with_a_clock_far_ahead_removes_no_history(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster()
    prepare_database(cluster.home)
    cluster.start()
    cluster.run(job("kept", "true"))
    assert cluster.terminate() == 0
    cluster.program = server_with_clock.PROGRAM
    cluster.variables["DAYS_AHEAD"] = "400"
    cluster.start("--clean-after", "0")
    eventually(lambda: "swept" in cluster.log.read_text(), "the sweep of the server")
    assert cluster.status("kept")["state"] == "SUCCEEDED"
    assert "days ahead of the last time this cluster saw" in cluster.log.read_text()
