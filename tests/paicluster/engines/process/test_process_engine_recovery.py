"""What may befall the process engine: reused numbers, reboots, strangers, clocks that jump."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from paicluster.engines.common import folder_size
from paicluster.engines.interface import Phase
from paicluster.engines.process.cgroups import PROC_ONLY
from paicluster.engines.process.engine import ProcessEngine
from pairuntime.supervisor import attempt, attempt_factory, claim, exit_record, process_tree
from support.engine_rig import DEADLINE_S, Driven, appears, lines_of, mark, nothing_left, task
from support.process_rig import ProcessRig, serving_zygote


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ProcessRig]:
    """Process trees by the process table: works on every machine, and is the most error-prone mechanism."""
    made = ProcessRig(tmp_path / "home", process_tree.PROC)
    yield made
    made.close()


def test_start_is_noted_while_the_hints_of_others_are_due(rig: ProcessRig) -> None:
    """The loop of the server, after a pause in which their time has come, has no timer for them."""

    async def check() -> None:
        async with Driven(rig) as driven:
            loop, engine = asyncio.get_running_loop(), driven.engine
            assert isinstance(engine, ProcessEngine)
            engine._starts_due = loop.time()
            engine._start_timer = loop.call_at(engine._starts_due, engine._send_start_hints)
            assert not isinstance(engine._start_timer, asyncio.TimerHandle)
            assert not hasattr(engine._start_timer, "when")
            engine._note_started("one")
            engine._note_started("another")
            await driven.hinted("another")

    uvloop.run(asyncio.wait_for(check(), DEADLINE_S))


# -- claims ---------------------------------------------------------------------------------------


async def test_second_supervisor_of_an_attempt_exits_without_running(rig: ProcessRig, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    one = task(rig, f"echo $$ >> {ran}; sleep 60")
    async with Driven(rig) as driven:
        await driven.launch(one)
        await appears(ran.exists, "the task's start")
        (runtime,) = (rig.home / "runtime").glob("*/pairuntime.pyz")
        second = subprocess.run(
            [sys.executable, "-I", "-S", runtime, "supervise", rig.folder(one.uid)], timeout=90
        )
        assert second.returncode == 3
        assert (await driven.look(one.uid)).phase is Phase.RUNNING
        await driven.engine.stop([one.uid], 0)
        await driven.ended(one.uid)
    assert len(lines_of(ran)) == 1


async def test_running_attempt_is_lost_after_a_reboot(
    rig: ProcessRig,
) -> None:
    one = task(rig, "true")
    stranger = subprocess.Popen(["sleep", "60"])
    async with Driven(rig) as driven:
        _pretend_claim(rig, one.uid, boot_id="another-boot", pid=stranger.pid)
        assert (await driven.until(one.uid, Phase.LOST)).exit_code is None
        await driven.engine.stop([one.uid], 0)
        assert stranger.poll() is None
        await driven.launch(one)
        assert (await driven.look(one.uid)).phase is Phase.LOST
    stranger.kill()
    stranger.wait()


async def test_process_that_reuses_a_supervisors_pid_is_not_signaled(rig: ProcessRig) -> None:
    one = task(rig, "true")
    stranger = subprocess.Popen(["sleep", "60"])
    async with Driven(rig) as driven:
        _pretend_claim(rig, one.uid, boot_id=claim.boot_id(), pid=stranger.pid)
        await driven.engine.stop([one.uid], 0)
        await driven.until(one.uid, Phase.LOST)
        assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def _pretend_claim(rig: ProcessRig, uid: str, *, boot_id: str, pid: int) -> None:
    folder = rig.folder(uid)
    folder.mkdir(parents=True)
    owner = {"attempt": uid, "boot_id": boot_id, "pid": pid, "start_time": 1, "claimed_ms": 1}
    (folder / claim.NAME).write_text(json.dumps(owner))


@pytest.mark.parametrize("left", ["", '{"attempt": "cut sh'])
async def test_folder_truncated_by_a_power_failure_is_written_again(rig: ProcessRig, left: str) -> None:
    one = task(rig, "echo whole; exit 33")
    folder = rig.folder(one.uid)
    (folder / "work").mkdir(parents=True)
    (folder / "task.sh").write_text("")
    (folder / attempt.SPEC).write_text(left)
    async with Driven(rig) as driven:
        (seen,) = await driven.run(one)
        assert seen.exit_code == 33
        assert driven.log(one.uid) == b"whole\n"


async def test_unstarted_folder_of_an_earlier_boot_is_written_again(rig: ProcessRig) -> None:
    one = task(rig, "exit 34")
    async with Driven(rig) as driven:
        await driven.run(one)
        folder = rig.folder(one.uid)
        (folder / attempt.SPEC).write_text(json.dumps({"boot_id": "another-boot"}))
        (folder / "task.sh").write_text("exit 1")
        for name in (claim.NAME, exit_record.NAME):
            (folder / name).unlink()
        assert (await driven.run(one))[0].exit_code == 34


async def test_gang_half_prepared_before_a_crash_is_launched_whole(
    rig: ProcessRig,
) -> None:
    gang = [task(rig, 'test "$WORLD" = 3', shared_environment={"WORLD": "3"}) for _ in range(3)]
    async with Driven(rig) as driven:
        for one in gang[:2]:
            (rig.folder(one.uid) / "work").mkdir(parents=True)
            (rig.folder(one.uid) / "env").write_bytes(b"WORLD=1\0")
        assert [seen.exit_code for seen in await driven.run(*gang)] == [0, 0, 0]


@pytest.mark.slow
async def test_supervisor_killed_at_any_moment_leaves_nothing_and_runs_once(
    rig: ProcessRig, tmp_path: Path
) -> None:
    ran, marker = tmp_path / "ran", mark()
    chance = random.Random(7)
    async with Driven(rig) as driven:
        for _ in range(25):
            one = task(rig, f"echo $$ >> {ran}; setsid sleep 600 & sleep 600", environment={"MARK": marker})
            await driven.launch(one)
            await asyncio.sleep(chance.random() * 0.02)
            if claim.read(str(rig.folder(one.uid))) is None:
                await driven.until(one.uid, Phase.RUNNING)
            rig.kill_supervisor(one.uid)
            await driven.until(one.uid, Phase.LOST)
            assert rig.leftovers(marker) == []
            await driven.launch(one)
            assert (await driven.until(one.uid, Phase.LOST)).phase is Phase.LOST
        await nothing_left(rig, marker)
    assert len(lines_of(ran)) <= 25


@pytest.mark.parametrize("began", [process_tree.V2, process_tree.V1])
async def test_lost_tree_is_killed_with_the_mechanism_it_was_started_with(tmp_path: Path, began: str) -> None:
    first = ProcessRig(tmp_path / "home", began)
    try:
        marker = mark()
        # Without the marker in its environment only the cgroup contains it.
        one = task(first, f"env -i /bin/bash -c 'exec -a {marker} sleep 600' & echo up; wait")
        async with Driven(first) as driven:
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            await appears(lambda: first.leftovers(marker), "the child")
        first.kill_supervisor(one.uid)
        control, first.tree_control = first.tree_control, PROC_ONLY
        async with Driven(first) as driven:
            await driven.until(one.uid, Phase.LOST)
        first.tree_control = control
        assert first.leftovers(marker) == []
    finally:
        first.close()


# -- descriptors, processes, cgroups --------------------------------------------------------------


@pytest.mark.parametrize("mode", [process_tree.V2, process_tree.V1, process_tree.PROC])
async def test_ended_tasks_leave_no_descriptor_process_or_cgroup(tmp_path: Path, mode: str) -> None:
    rig = ProcessRig(tmp_path / "home", mode)
    # Other tests in this process may have running servers.
    others = set(process_tree.children(os.getpid()))
    try:
        async with Driven(rig) as driven:
            await driven.run(task(rig, "true"))
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(3):
                gang = [task(rig, "exit 1") for _ in range(10)]
                await driven.run(*gang)
            lost = task(rig, "sleep 600")
            await driven.launch(lost)
            await driven.until(lost.uid, Phase.RUNNING)
            rig.kill_supervisor(lost.uid)
            await driven.until(lost.uid, Phase.LOST)
            await appears(lambda: len(os.listdir("/proc/self/fd")) <= before, "descriptors to be closed")
            zygote = await serving_zygote()
            await appears(lambda: process_tree.descendants(zygote) == [], "supervisors to be gone")
            await appears(lambda: rig.cgroups_left() == [], f"cgroups to be gone, left: {rig.cgroups_left()}")
        assert set(process_tree.children(os.getpid())) <= others
    finally:
        rig.close()


async def test_a_supervisor_does_not_keep_the_servers_terminal_open(rig: ProcessRig) -> None:
    one = task(rig, "sleep 600")
    async with Driven(rig) as driven:
        await driven.launch(one)
        await driven.until(one.uid, Phase.RUNNING)
        ours = Path("/proc/self/fd/2").readlink()
        held = set()
        for fd in Path(f"/proc/{rig.supervisor(one.uid)}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                held.add(fd.readlink())
        assert ours == Path("/dev/null") or ours not in held
        await driven.engine.stop([one.uid], 0)
        await driven.ended(one.uid)


async def test_supervisor_uses_less_than_two_megabytes(rig: ProcessRig) -> None:
    one = task(rig, "seq 200000; echo up; sleep 600", environment={"BULK": "x" * 20_000})
    async with Driven(rig) as driven:
        await driven.launch(one)
        await driven.wait_for_output(one.uid, b"up")
        private = _private_kb(rig.supervisor(one.uid))
        await driven.engine.stop([one.uid], 0)
        await driven.ended(one.uid)
    print(f"private memory of a supervisor: {private} kB")
    assert 0 < private < 2048


def _private_kb(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(
        int(line.split()[1]) for line in rollup if line.startswith(("Private_Clean:", "Private_Dirty:"))
    )


async def test_deleted_attempt_folder_leaves_no_process(rig: ProcessRig) -> None:
    marker = mark()
    one = task(rig, "echo up; sleep 0.3; seq 1000; exit 3", environment={"MARK": marker})
    async with Driven(rig) as driven:
        await driven.launch(one)
        await driven.wait_for_output(one.uid, b"up")
        supervisor = rig.supervisor(one.uid)
        shutil.rmtree(rig.folder(one.uid))
        await appears(lambda: not Path(f"/proc/{supervisor}").exists(), "the supervisor's end")
        assert rig.leftovers(marker) == []
        assert (await driven.look(one.uid)).phase is Phase.ABSENT


async def test_foreign_writer_of_a_tasks_pipe_does_not_delay_its_end(rig: ProcessRig, tmp_path: Path) -> None:
    go = tmp_path / "go"
    one = task(rig, f"echo $$; until [ -e {go} ]; do sleep 0.02; done; echo last; exit 12")
    async with Driven(rig) as driven:
        await driven.launch(one)
        await driven.wait_for_output(one.uid, b"\n")
        pid = int(driven.log(one.uid))
        stranger = subprocess.Popen(["sh", "-c", f"exec yes > /proc/{pid}/fd/1"], stderr=subprocess.DEVNULL)
        await driven.wait_for_output(one.uid, b"y\ny\n")
        go.touch()
        assert (await driven.ended(one.uid)).exit_code == 12
        assert b"last\n" in driven.log(one.uid)
        stranger.kill()
        stranger.wait()


# -- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
def test_clock_jump_does_not_change_a_tasks_duration(tmp_path: Path, jump_s: float) -> None:
    (tmp_path / attempt.SPEC).write_text(
        json.dumps(
            {
                "attempt": "uid",
                "argv": ["/bin/sh", "-c", "sleep 0.2; exit 8"],
                "cwd": str(tmp_path),
                "env": {},
            }
        )
    )
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            started, real = time.monotonic(), time.time
            # The clock is set once the task has started.
            time.time = lambda: real() + (jump_s if time.monotonic() - started > 0.1 else 0)
            status = attempt_factory.supervise(str(tmp_path), process_tree.Cgroup(process_tree.PROC, ""))
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    ended = exit_record.read(str(tmp_path))
    assert ended is not None
    started_ms, ended_ms = ended["started_ms"], ended["ended_ms"]
    assert isinstance(started_ms, int) and isinstance(ended_ms, int)
    assert ended["exit_code"] == 8
    assert 200 <= ended_ms - started_ms < 20_000


async def test_removal_of_many_files_delays_no_other_task(
    rig: ProcessRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job may leave millions of files: their removal takes minutes."""
    removing, may_end = threading.Event(), threading.Event()

    def remove_slowly(path: Path) -> None:
        removing.set()
        assert may_end.wait(DEADLINE_S)

    async with Driven(rig) as driven:
        left = task(rig, "touch left")
        await driven.run(left)
        with monkeypatch.context() as slow:
            slow.setattr(folder_size, "remove_tree", remove_slowly)
            removal = asyncio.create_task(driven.engine.remove([left.uid]))
            assert await asyncio.to_thread(removing.wait, DEADLINE_S)
            # More than are handled without a thread.
            gang = [task(rig, "true") for _ in range(8)]
            async with asyncio.timeout(DEADLINE_S):
                ended = await driven.run(*gang)
            assert [seen.exit_code for seen in ended] == [0] * 8 and not removal.done()
            may_end.set()
            await removal
