"""Zygote and prelaunch: the zygote dies, a fork fails, a launch is not committed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.engines.interface import LaunchFailed, Phase, TaskLaunch
from pairuntime.supervisor import attempt, process_tree
from support.engine_rig import Driven, appears, lines_of, missing, task
from support.process_rig import ProcessRig, serving_zygote

_ROOT = os.geteuid() == 0


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ProcessRig]:
    """Process trees by the process table: works on every machine, and is the most error-prone mechanism."""
    made = ProcessRig(tmp_path / "home", process_tree.PROC)
    yield made
    made.close()


# -- the zygote -----------------------------------------------------------------------------------


async def test_killed_zygote_is_restarted_and_its_tasks_keep_running(rig: ProcessRig, tmp_path: Path) -> None:
    go = tmp_path / "go"
    before = task(rig, f"until [ -e {go} ]; do sleep 0.02; done; exit 31")
    async with Driven(rig) as driven:
        await driven.launch(before)
        await driven.until(before.uid, Phase.RUNNING)
        os.kill(await serving_zygote(), signal.SIGKILL)
        # A launch may fail until the death is noticed; it is retried, as by the controller.
        after = task(rig, "exit 32")
        try:
            await driven.launch(after)
        except LaunchFailed:
            after = task(rig, "exit 32")
            await driven.launch(after)
        assert (await driven.ended(after.uid)).exit_code == 32
        go.touch()
        assert (await driven.ended(before.uid)).exit_code == 31


@pytest.mark.parametrize("size", [3, 120])
async def test_zygote_that_dies_during_a_request_starts_no_task_of_the_gang(
    rig: ProcessRig, tmp_path: Path, size: int
) -> None:
    ran = tmp_path / "ran"
    gang = [task(rig, f"echo $$ >> {ran}") for _ in range(size)]
    async with Driven(rig) as driven:
        zygote = await serving_zygote()
        os.kill(zygote, signal.SIGSTOP)
        launching = asyncio.create_task(driven.launch(*gang))
        await appears(lambda: (rig.folder(gang[-1].uid) / "spec.json").exists(), "the folders")
        await appears(lambda: driven.engine._zygote._replies, "the request")
        os.kill(zygote, signal.SIGKILL)
        with pytest.raises(LaunchFailed):
            await launching
        for one in gang:
            assert (await driven.ended(one.uid)).started_ms is None
        await driven.run(task(rig, "true"))
    assert not ran.exists()


@pytest.mark.parametrize(("size", "room"), [(8, 4), (120, 70)])
async def test_failed_fork_starts_no_task_of_the_gang(
    rig: ProcessRig, tmp_path: Path, size: int, room: int
) -> None:
    ran = tmp_path / "ran"
    gang = [task(rig, f"echo $$ >> {ran}") for _ in range(size)]
    async with Driven(rig) as driven:
        with _few_processes(await serving_zygote(), room):
            with pytest.raises(LaunchFailed) as refused:
                await driven.launch(*gang)
            assert "process" in refused.value.message
        for one in gang:
            assert (await driven.look(one.uid)).phase is Phase.ABSENT
        await driven.run(task(rig, "true"))
        assert not ran.exists()
        # Nothing was started, so the gang may be launched again.
        await driven.run(*gang)
    assert len(lines_of(ran)) == size


# -- launched before it is committed ----------------------------------------------------------------


async def _ready(rig: ProcessRig, zygote: int, *gang: TaskLaunch) -> list[int]:
    """Wait until the gang is prepared. Returns the pids of the supervisors."""
    for one in gang:
        await appears((rig.folder(one.uid) / attempt.SPEC).exists, "the folder")
    await appears(lambda: len(process_tree.children(zygote)) == len(gang), "the supervisors")
    return process_tree.children(zygote)


async def test_prelaunched_gang_starts_only_when_committed(rig: ProcessRig, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    gang = [task(rig, f"echo $$ >> {ran}; exit 33") for _ in range(3)]
    async with Driven(rig) as driven:
        committed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        launching = asyncio.create_task(driven.engine.launch_when_committed(gang, committed))
        await _ready(rig, await serving_zygote(), *gang)
        await asyncio.sleep(0.2)
        assert [(await driven.look(one.uid)).phase for one in gang] == [Phase.ABSENT] * 3
        # Waiting supervisors do not delay an observation.
        await driven.run(task(rig, "true"))
        assert not ran.exists()
        committed.set_result(True)
        await launching
        assert [(await driven.ended(one.uid)).exit_code for one in gang] == [33] * 3
    assert len(lines_of(ran)) == 3


async def test_damaged_journal_of_prelaunches_stops_no_start(rig: ProcessRig) -> None:
    """What is no uid names no folder: not even one that exists."""
    one = task(rig, "exit 0")
    async with Driven(rig):
        pass
    (rig.home / "tasks" / "ab" / "kept").mkdir(parents=True)
    (rig.home / "run" / "prelaunch").write_bytes(b"\n\xff\xfe\x00garbage\n../tasks/ab/kept\n" + b"x" * 5000)
    async with Driven(rig) as driven:
        await driven.launch(one)
        assert (await driven.ended(one.uid)).exit_code == 0
    assert (rig.home / "tasks" / "ab" / "kept").exists()


async def test_uncommitted_prelaunch_leaves_nothing(rig: ProcessRig, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    gang = [task(rig, f"echo $$ >> {ran}") for _ in range(3)]
    async with Driven(rig) as driven:
        committed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        launching = asyncio.create_task(driven.engine.launch_when_committed(gang, committed))
        zygote = await serving_zygote()
        await _ready(rig, zygote, *gang)
        committed.set_result(False)
        await launching
        await appears(lambda: process_tree.children(zygote) == [], "the supervisors to leave")
        assert not any(rig.folder(one.uid).exists() for one in gang)
        # Nothing was started, so the gang may be launched again.
        await driven.run(*gang)
    assert len(lines_of(ran)) == 3


async def test_server_that_dies_before_the_commit_leaves_nothing(rig: ProcessRig, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    gang = [task(rig, f"echo $$ >> {ran}") for _ in range(3)]
    server = rig.launch_elsewhere(gang, uncommitted=True)
    (zygote,) = process_tree.children(server)
    supervisors = await _ready(rig, zygote, *gang)
    os.kill(server, signal.SIGKILL)
    await appears(lambda: not any(map(_is_running, supervisors)), "the supervisors to leave")
    async with Driven(rig) as driven:
        assert not any(rig.folder(one.uid).exists() for one in gang)
        assert [(await driven.look(one.uid)).phase for one in gang] == [Phase.ABSENT] * 3
        assert not ran.exists()
        await driven.run(*gang)
    assert len(lines_of(ran)) == 3


async def test_journaled_attempts_that_were_started_are_not_discarded(
    rig: ProcessRig, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    one = task(rig, f"until [ -e {go} ]; do sleep 0.02; done; exit 34")
    async with Driven(rig) as driven:
        await driven.launch(one)
        await driven.until(one.uid, Phase.RUNNING)
        # As if the server had died before it cleared the journal.
        (rig.home / "run" / "prelaunch").write_text(f"\n{one.uid}")
    async with Driven(rig) as driven:
        assert (await driven.look(one.uid)).phase is Phase.RUNNING
        go.touch()
        assert (await driven.ended(one.uid)).exit_code == 34


async def test_zygote_that_dies_before_the_commit_starts_nothing(rig: ProcessRig, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    one = task(rig, f"echo $$ >> {ran}")
    async with Driven(rig) as driven:
        committed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        launching = asyncio.create_task(driven.engine.launch_when_committed([one], committed))
        zygote = await serving_zygote()
        supervisors = await _ready(rig, zygote, one)
        await appears(lambda: one.uid in driven.engine._pidfds, "the zygote's answer")
        os.kill(zygote, signal.SIGKILL)
        await appears(lambda: not any(map(_is_running, supervisors)), "them to leave")
        # If its death is not noticed yet, the request fails like one during which it dies.
        await appears(lambda: driven.engine._zygote._socket is None, "the death to be noticed")
        committed.set_result(True)
        await launching
        assert (await driven.look(one.uid)).phase is Phase.ABSENT
        await driven.run(one)
    assert len(lines_of(ran)) == 1


def _is_running(pid: int) -> bool:
    """Whether a process has not ended. It stays a zombie where the machine's first process, as in some
    containers, waits for no child."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class _few_processes:  # noqa: N801 (reads as a verb where it stands)
    """The process may have only so many more children."""

    def __init__(self, pid: int, more: int):
        self._pid, self._more = pid, more
        self._group = Path(f"/sys/fs/cgroup/pids/pai-test-{os.getpid()}")

    def __enter__(self) -> None:
        if not _ROOT:
            # Limits count all processes of the account: the test's, the zygote, and these. What an earlier
            # test left is not counted: it may exit at any moment, and its share would go to the gang.
            threads = sum(len(os.listdir(f"/proc/{pid}/task")) for pid in (os.getpid(), self._pid))
            self._before = resource.prlimit(self._pid, resource.RLIMIT_NPROC)
            resource.prlimit(self._pid, resource.RLIMIT_NPROC, (threads + self._more, self._before[1]))
            return
        # Root is exempt from that limit, not from a cgroup's.
        try:
            self._group.mkdir()
            (self._group / "pids.max").write_text(str(1 + self._more))
            (self._group / "cgroup.procs").write_text(str(self._pid))
        except OSError:
            missing("a writable pids cgroup")

    def __exit__(self, *_: object) -> None:
        if not _ROOT:
            resource.prlimit(self._pid, resource.RLIMIT_NPROC, self._before)
            return
        (self._group.parent / "cgroup.procs").write_text(str(self._pid))
        deadline = time.monotonic() + 90
        while True:
            try:
                self._group.rmdir()
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            else:
                return


async def test_warm_up_leaves_no_trace_in_the_zygote(rig: ProcessRig) -> None:
    async with Driven(rig) as driven:
        zygote = await serving_zygote()
        await driven.run(task(rig, "true"))
        # The exit record is the last file of a supervisor; it exits a moment later.
        await appears(lambda: not process_tree.children(zygote), "the end of the first supervisor")
        assert len(os.listdir(f"/proc/{zygote}/fd")) == 4  # its three, and the server's question
        assert Path(f"/proc/{zygote}/cwd").readlink() == Path("/")
        status = Path(f"/proc/{zygote}/status").read_text()
        assert int(status.partition("SigCgt:")[2].split()[0], 16) == 0
        assert not Path(f"/dev/shm/pai-rehearsal.{zygote}").exists()
        # The zygote is no subreaper: orphans do not become its children.
        one = task(rig, "trap '' TERM; sleep 60 & wait")
        await driven.launch(one)
        await driven.until(one.uid, Phase.RUNNING)
        (supervisor,) = process_tree.children(zygote)
        await appears(lambda: process_tree.descendants(supervisor), "the program")
        orphans = process_tree.descendants(supervisor)
        os.kill(supervisor, signal.SIGKILL)
        await appears(lambda: not _is_running(supervisor), "its death")
        assert not set(orphans) & set(process_tree.children(zygote))
        await driven.until(one.uid, Phase.LOST)


async def test_supervisor_failure_is_logged_by_the_server(
    rig: ProcessRig, caplog: pytest.LogCaptureFixture
) -> None:
    one = task(rig, "sleep 600")
    async with Driven(rig) as driven:
        os.kill(await serving_zygote(), signal.SIGSTOP)
        launching = asyncio.create_task(driven.launch(one))
        spec = rig.folder(one.uid) / attempt.SPEC
        await appears(spec.exists, "the folder")
        spec.write_text(json.dumps({**json.loads(spec.read_text()), "grace_s": "no number"}))
        os.kill(await serving_zygote(), signal.SIGCONT)
        await launching
        await driven.until(one.uid, Phase.LOST)
    assert "no number" in caplog.text
