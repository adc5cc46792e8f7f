"""At most one owner, ever; alive exactly as long as its lock is held."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pairuntime.supervisor import claim


def _child(work: Callable[[], int]) -> int:
    """Run this in a process of its own; gives its pid. The work's number is its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = work()
        finally:
            os._exit(status)
    return pid


def _wait() -> int:
    signal.pause()
    return 0


def _status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _race(folders: list[Path], contenders: list[Callable[[str], bool]]) -> list[list[bool]]:
    """Let all contenders go at once, folder after folder; by folder, which of them won.

    Each contender is one process for all folders: to fork a process as large as this one takes long.
    """
    gate = multiprocessing.get_context("fork").Barrier(len(contenders))
    outcomes: list[bytes] = []
    reports = []
    for contend in contenders:
        report_r, report_w = os.pipe()

        def work(contend: Callable[[str], bool] = contend, report_w: int = report_w) -> int:
            won = bytearray()
            for folder in folders:
                gate.wait(60)
                won.append(contend(str(folder)))
            os.write(report_w, won)
            return 0

        reports.append((_child(work), report_r))
        os.close(report_w)
    for pid, report_r in reports:
        outcomes.append(os.read(report_r, len(folders)))
        os.close(report_r)
        assert _status(pid) == 0
    return [[bool(won[n]) for won in outcomes] for n in range(len(folders))]


def _folders(parent: Path, count: int) -> list[Path]:
    folders = [parent / str(number) for number in range(count)]
    for folder in folders:
        folder.mkdir()
    return folders


def test_exactly_one_concurrent_claim_succeeds(tmp_path: Path) -> None:
    folders = _folders(tmp_path, 40)
    outcomes = _race(folders, [lambda folder: claim.acquire(folder, "uid") >= 0] * 4)
    for folder, won in zip(folders, outcomes, strict=True):
        assert won.count(True) == 1
        assert [path.name for path in folder.iterdir()] == [claim.NAME]


def test_a_tombstone_and_a_claim_exclude_each_other(tmp_path: Path) -> None:
    folders = _folders(tmp_path, 40)
    contenders = [lambda folder: claim.acquire(folder, "uid") >= 0, lambda folder: claim.bury(folder, "uid")]
    for folder, won in zip(folders, _race(folders, contenders), strict=True):
        assert won.count(True) == 1
        owner = claim.read(str(folder))
        assert owner is not None
        assert bool(owner.get("tombstone")) == won[1]


def test_claim_is_held_until_its_owner_is_killed(tmp_path: Path) -> None:
    ready_r, ready_w = os.pipe()

    def own() -> int:
        claim.acquire(str(tmp_path), "uid")
        os.write(ready_w, b"1")
        signal.pause()
        return 0

    pid = _child(own)
    os.read(ready_r, 1)
    assert claim.is_held(str(tmp_path))
    owner = claim.read(str(tmp_path))
    assert owner is not None
    assert owner["pid"] == pid
    assert owner["start_time"] == claim.start_time(pid)
    assert owner["boot_id"] == claim.boot_id()
    os.kill(pid, signal.SIGKILL)
    _status(pid)
    assert not claim.is_held(str(tmp_path))
    for fd in (ready_r, ready_w):
        os.close(fd)


def test_child_of_the_owner_does_not_hold_the_claim(tmp_path: Path) -> None:
    told_r, told_w = os.pipe()

    def own() -> int:
        claim.acquire(str(tmp_path), "uid")
        os.write(told_w, b"%d" % _child(_wait))
        return 0

    assert _status(_child(own)) == 0
    orphan = int(os.read(told_r, 16))
    try:
        assert not claim.is_held(str(tmp_path))
    finally:
        os.kill(orphan, signal.SIGKILL)
        os.close(told_r)
        os.close(told_w)


@pytest.mark.slow
def test_is_held_does_not_take_the_lock(tmp_path: Path) -> None:
    """Looked at without pause, the claim must still be had by its owner at once."""
    folder = tmp_path / "attempt"
    watcher = _child(lambda: _look_for_ever(folder))
    for _ in range(15):
        folder.mkdir()
        assert _status(_child(lambda: 0 if claim.acquire(str(folder), "uid") >= 0 else 3)) == 0
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    os.kill(watcher, signal.SIGKILL)
    assert _status(watcher) == -signal.SIGKILL  # it had not stumbled over anything


def _look_for_ever(folder: Path) -> int:
    while True:
        claim.is_held(str(folder))


def test_an_unclaimed_attempt_has_no_owner(tmp_path: Path) -> None:
    assert claim.read(str(tmp_path)) is None
    assert not claim.is_held(str(tmp_path))


@pytest.mark.parametrize("left", [b"", b"\0\0\0\0", b'{"attempt": "u'])
def test_claim_truncated_by_a_power_failure_is_still_a_claim(tmp_path: Path, left: bytes) -> None:
    (tmp_path / claim.NAME).write_bytes(left)
    assert claim.read(str(tmp_path)) == {}
    assert not claim.is_held(str(tmp_path))
    assert claim.acquire(str(tmp_path), "uid") == -1


def test_start_time_of_a_process_with_spaces_and_parentheses(tmp_path: Path) -> None:
    def renamed() -> int:
        Path("/proc/self/comm").write_text(") R 1 (")
        return 0 if claim.start_time(os.getpid()) > 0 else 1

    assert _status(_child(renamed)) == 0
    assert claim.start_time(2**22 + 1) == 0
