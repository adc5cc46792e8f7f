"""Index of times beside a log: sparse, bounded, read back for any range of bytes, whatever the file has."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paicluster.logs.log_times import read_log_times
from paicluster.logs.reader import Stream
from pairuntime.local_files import log_times_format
from pairuntime.supervisor import log_times
from pairuntime.supervisor.log_segments import SegmentedLog
from pairuntime.supervisor.log_times import LogTimes

START_MS = 1_700_000_000_000


class _Clock:
    """Wall clock and monotonic clock."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def time(self) -> float:
        return START_MS / 1000 + self.seconds

    def monotonic(self) -> float:
        return 1000.0 + self.seconds


class _Log:
    """Logs of a task, and their index."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: int) -> None:
        self.clock = _Clock()
        monkeypatch.setattr(log_times, "time", self.clock)
        self.folder = folder
        self._logs = {
            name: SegmentedLog(str(folder), name, 1 << 30, 1 << 20) for name in ("all", "stdout", "stderr")
        }
        self._times = LogTimes(str(folder), self._logs, **options)

    def write(self, at_s: float, data: bytes, stream: str = "stdout") -> None:
        self.clock.seconds = at_s
        self._times.note()
        self._logs[stream].write(data)
        self._logs["all"].write(data)

    def times(self, stream: Stream = "all", start: int = 0, end: int = 1 << 40) -> list[tuple[int, float]]:
        """Offsets, and seconds since the start."""
        found = read_log_times(self.folder, stream, start, end)
        assert found is not None
        return [(offset, (time_ms - START_MS) / 1000) for offset, time_ms in found.times]

    @property
    def precision_ms(self) -> int:
        found = read_log_times(self.folder, "all", 0, 1)
        assert found is not None
        return found.precision_ms


def test_output_has_the_time_of_its_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _Log(tmp_path, monkeypatch)
    log.write(0, b"one\n")
    log.write(0.5, b"two\n")
    log.write(1.2, b"three\n")
    log.write(60, b"four\n")
    assert log.precision_ms == 1000
    assert log.times() == [(0, 0), (8, 1.2), (14, 60)]
    # Times of a range begin with that of its first byte.
    assert log.times(start=4, end=9) == [(4, 0), (8, 1.2)]
    assert log.times(start=10, end=14) == [(10, 1.2)]
    assert log.times(start=15) == [(15, 60)]


def test_each_stream_has_its_own_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _Log(tmp_path, monkeypatch)
    log.write(0, b"out\n")
    log.write(2, b"error\n", "stderr")
    log.write(4, b"out again\n")
    assert log.times() == [(0, 0), (4, 2), (10, 4)]
    assert log.times("stdout") == [(0, 0), (4, 4)]
    assert log.times("stderr") == [(0, 2), (6, 4)]


def test_full_index_is_thinned_and_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _Log(tmp_path, monkeypatch, max_entries=64)
    for second in range(1000):
        log.write(second, b"0123456789")
    size = (tmp_path / log_times_format.NAME).stat().st_size
    assert size <= 65 * log_times_format.ENTRY_BYTES
    precision_s = log.precision_ms / 1000
    assert 16 <= precision_s <= 64
    times = log.times()
    assert len(times) > 10
    # Byte 10 N was written in second N.
    ends = [*(offset for offset, _ in times[1:]), 10_000]
    for (offset, seconds), end in zip(times, ends, strict=True):
        assert offset == 10 * seconds
        assert (end - 10) / 10 - seconds < precision_s
    assert [path.name for path in tmp_path.glob("log-times*")] == ["log-times"]


def test_thinning_keeps_what_is_far_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _Log(tmp_path, monkeypatch, max_entries=8)
    moments = [0, 1, 2, 3, 4, 5, 3600, 7200, 10_800]
    for moment in moments:
        log.write(moment, b"x")
    assert log.times()[-3:] == [(6, 3600), (7, 7200), (8, 10_800)]
    assert log.precision_ms <= 7000


def test_clock_that_is_set_back_ends_no_thinning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _Log(tmp_path, monkeypatch, max_entries=8)
    monkeypatch.setattr(log.clock, "time", lambda: START_MS / 1000 + (log.clock.seconds * 7919) % 86_400)
    for second in range(100):
        log.write(second, b"x")
    assert (tmp_path / log_times_format.NAME).stat().st_size <= 9 * log_times_format.ENTRY_BYTES


def test_full_disk_costs_only_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _Log(tmp_path, monkeypatch)
    log.write(0, b"one\n")
    with monkeypatch.context() as full:

        def refuse(*_: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        full.setattr(os, "pwrite", refuse)
        log.write(2, b"two\n")
    with monkeypatch.context() as nearly_full:
        pwrite = os.pwrite
        nearly_full.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:7], at))
        log.write(4, b"three\n")
    assert log.times() == [(0, 0)]
    log.write(6, b"four\n")
    assert log.times() == [(0, 0), (14, 6)]


def test_log_without_index_has_no_times(tmp_path: Path) -> None:
    assert read_log_times(tmp_path, "all", 0, 100) is None
    (tmp_path / "log-times").symlink_to("/etc/passwd")
    assert read_log_times(tmp_path, "all", 0, 100) is None
    (tmp_path / "log-times").unlink()
    (tmp_path / "other").write_bytes(log_times_format.header(1000))
    (tmp_path / "log-times").hardlink_to(tmp_path / "other")
    assert read_log_times(tmp_path, "all", 0, 100) is None
    (tmp_path / "log-times").unlink()
    os.mkfifo(tmp_path / "log-times")
    assert read_log_times(tmp_path, "all", 0, 100) is None


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=200),
    st.integers(0, 1 << 62),
    st.integers(0, 1 << 62),
    st.booleans(),
    st.sampled_from(("all", "stdout", "stderr")),
)
def test_damaged_index_gives_times_in_order_or_none(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    start: int,
    length: int,
    has_header: bool,
    stream: Stream,
) -> None:
    folder = tmp_path_factory.mktemp("log")
    content = log_times_format.header(1000) + data if has_header else data
    (folder / log_times_format.NAME).write_bytes(content)
    found = read_log_times(folder, stream, start, start + length)
    if found is None:
        assert not has_header
        return
    offsets = [offset for offset, _ in found.times]
    assert offsets == sorted(set(offsets))
    assert all(start <= offset < start + length for offset in offsets)
    assert all(0 < time_ms < 1 << 53 for _, time_ms in found.times)


def test_huge_index_is_read_up_to_its_bound(tmp_path: Path) -> None:
    entries = (log_times_format.entry(START_MS + at, [at, at, at]) for at in range(20_000))
    (tmp_path / log_times_format.NAME).write_bytes(log_times_format.header(1000) + b"".join(entries))
    found = read_log_times(tmp_path, "all", 0, 1 << 40)
    assert found is not None
    assert len(found.times) == log_times_format.MAX_ENTRIES
