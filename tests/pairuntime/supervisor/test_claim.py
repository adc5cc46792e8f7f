"""At most one owner, ever; alive exactly as long as its lock is held."""

from __future__ import annotations

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


def _race(folder: Path, contenders: list[Callable[[], bool]]) -> list[bool]:
    """Let go all at once; who won."""
    gate_r, gate_w = os.pipe()

    def enter(contend: Callable[[], bool]) -> Callable[[], int]:
        def work() -> int:
            os.close(gate_w)
            os.read(gate_r, 1)
            return 0 if contend() else 3

        return work

    pids = [_child(enter(contend)) for contend in contenders]
    os.close(gate_r)
    os.close(gate_w)
    return [_status(pid) == 0 for pid in pids]


def test_exactly_one_concurrent_claim_succeeds(tmp_path: Path) -> None:
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        won = _race(folder, [lambda f=folder: claim.acquire(str(f), "uid") >= 0] * 4)  # type: ignore[misc]
        assert won.count(True) == 1
        assert [path.name for path in folder.iterdir()] == [claim.NAME]


def test_a_tombstone_and_a_claim_exclude_each_other(tmp_path: Path) -> None:
    outcomes = set()
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        contenders: list[Callable[[], bool]] = [
            lambda f=folder: claim.acquire(str(f), "uid") >= 0,  # type: ignore[misc]
            lambda f=folder: claim.bury(str(f), "uid"),  # type: ignore[misc]
        ]
        won = _race(folder, contenders)
        assert won.count(True) == 1
        owner = claim.read(str(folder))
        assert owner is not None
        assert bool(owner.get("tombstone")) == won[1]
        outcomes.add(won[0])
    assert outcomes  # either may win; neither may both win


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
