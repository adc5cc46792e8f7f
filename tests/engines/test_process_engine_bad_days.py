"""What may befall the process engine: dead helpers, reused numbers, reboots, full disks."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import Driven, appears, lines_of, mark, missing, nothing_left, task
from process_rig import ProcessRig

from paicluster.engines.interface import LaunchFailed, Phase, TaskLaunch
from paicluster.engines.process.cgroups import PROC_ONLY
from pairuntime.supervisor import claim, record, supervise, tree

_ROOT = os.geteuid() == 0


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ProcessRig]:
    """Trees are held by the process table: that works for everybody, and has the most to get wrong."""
    made = ProcessRig(tmp_path / "home", tree.PROC)
    yield made
    made.close()


async def _zygote() -> int:
    """Our child that serves as one. It is there, but at first its name may not be, and then it rehearses."""
    found: list[int] = []

    def seen() -> bool:
        found[:] = [
            pid
            for pid in tree.children(os.getpid())
            if b"\0zygote\0" in Path(f"/proc/{pid}/cmdline").read_bytes() and _serves(pid)
        ]
        return bool(found)

    await appears(seen, "the zygote")
    return found[0]


def _serves(pid: int) -> bool:
    """Whether all its children are supervisors from now on: it has begun to ignore how they end."""
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    return bool(ignored >> (signal.SIGCHLD - 1) & 1)


# -- the zygote -----------------------------------------------------------------------------------


async def test_a_killed_zygote_is_replaced_and_its_tasks_go_on(rig: ProcessRig, tmp_path: Path) -> None:
    go = tmp_path / "go"
    before = task(rig, f"until [ -e {go} ]; do sleep 0.02; done; exit 31")
    async with Driven(rig) as driven:
        await driven.launch(before)
        await driven.until(before.uid, Phase.RUNNING)
        os.kill(await _zygote(), signal.SIGKILL)
        # Launching may be refused while nobody has noticed; then it is tried again, as the controller does.
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
async def test_a_zygote_that_dies_while_it_is_asked_runs_nothing_of_the_gang(
    rig: ProcessRig, tmp_path: Path, size: int
) -> None:
    ran = tmp_path / "ran"
    gang = [task(rig, f"echo $$ >> {ran}") for _ in range(size)]
    async with Driven(rig) as driven:
        zygote = await _zygote()
        os.kill(zygote, signal.SIGSTOP)
        launching = asyncio.create_task(driven.launch(*gang))
        await appears(lambda: (rig.folder(gang[-1].uid) / "spec.json").exists(), "the folders")
        await asyncio.sleep(0.05)
        os.kill(zygote, signal.SIGKILL)
        with pytest.raises(LaunchFailed):
            await launching
        for one in gang:
            assert (await driven.ended(one.uid)).started_ms is None
        await driven.run(task(rig, "true"))
    assert not ran.exists()


@pytest.mark.parametrize(("size", "room"), [(8, 4), (120, 70)])
async def test_when_a_fork_is_refused_nothing_of_the_gang_ever_runs(
    rig: ProcessRig, tmp_path: Path, size: int, room: int
) -> None:
    ran = tmp_path / "ran"
    gang = [task(rig, f"echo $$ >> {ran}") for _ in range(size)]
    async with Driven(rig) as driven:
        with _few_processes(await _zygote(), room):
            with pytest.raises(LaunchFailed) as refused:
                await driven.launch(*gang)
            assert "process" in refused.value.message
        for one in gang:
            assert (await driven.look(one.uid)).phase is Phase.ABSENT
        await driven.run(task(rig, "true"))
        assert not ran.exists()
        # Nothing of it ran, so all of it may be launched again.
        await driven.run(*gang)
    assert len(lines_of(ran)) == size


# -- launched before it is certain ----------------------------------------------------------------


async def _ready(rig: ProcessRig, zygote: int, *gang: TaskLaunch) -> list[int]:
    """Wait until everything is there but the word to start. Gives the supervisors."""
    for one in gang:
        await appears((rig.folder(one.uid) / supervise.SPEC).exists, "the folder")
    await appears(lambda: len(tree.children(zygote)) == len(gang), "the supervisors")
    return tree.children(zygote)


async def test_what_is_made_ready_starts_when_it_is_certain_and_not_before(
    rig: ProcessRig, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    gang = [task(rig, f"echo $$ >> {ran}; exit 33") for _ in range(3)]
    async with Driven(rig) as driven:
        certain: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        launching = asyncio.create_task(driven.engine.launch_when(gang, certain))
        await _ready(rig, await _zygote(), *gang)
        await asyncio.sleep(0.2)
        assert [(await driven.look(one.uid)).phase for one in gang] == [Phase.ABSENT] * 3
        # Nobody has to wait for those who wait.
        await driven.run(task(rig, "true"))
        assert not ran.exists()
        certain.set_result(True)
        await launching
        assert [(await driven.ended(one.uid)).exit_code for one in gang] == [33] * 3
    assert len(lines_of(ran)) == 3


async def test_of_what_was_made_ready_for_nothing_nothing_is_left(rig: ProcessRig, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    gang = [task(rig, f"echo $$ >> {ran}") for _ in range(3)]
    async with Driven(rig) as driven:
        certain: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        launching = asyncio.create_task(driven.engine.launch_when(gang, certain))
        zygote = await _zygote()
        await _ready(rig, zygote, *gang)
        certain.set_result(False)
        await launching
        await appears(lambda: tree.children(zygote) == [], "the supervisors to leave")
        assert not any(rig.folder(one.uid).exists() for one in gang)
        # Nothing of it ran, so all of it may be launched again.
        await driven.run(*gang)
    assert len(lines_of(ran)) == 3


async def test_a_server_that_dies_before_it_is_certain_leaves_nothing(
    rig: ProcessRig, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    gang = [task(rig, f"echo $$ >> {ran}") for _ in range(3)]
    server = rig.launch_elsewhere(gang, uncertain=True)
    (zygote,) = tree.children(server)
    supervisors = await _ready(rig, zygote, *gang)
    os.kill(server, signal.SIGKILL)
    await appears(lambda: not any(claim.start_time(pid) for pid in supervisors), "the supervisors to leave")
    async with Driven(rig) as driven:
        assert not any(rig.folder(one.uid).exists() for one in gang)
        assert [(await driven.look(one.uid)).phase for one in gang] == [Phase.ABSENT] * 3
        assert not ran.exists()
        await driven.run(*gang)
    assert len(lines_of(ran)) == 3


async def test_a_server_that_dies_with_its_tasks_let_go_leaves_them_alone(
    rig: ProcessRig, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    one = task(rig, f"until [ -e {go} ]; do sleep 0.02; done; exit 34")
    async with Driven(rig) as driven:
        await driven.launch(one)
        await driven.until(one.uid, Phase.RUNNING)
        # As if it had died before it could note that nothing is uncertain any more.
        (rig.home / "run" / "ahead").write_text(f"\n{one.uid}")
    async with Driven(rig) as driven:
        assert (await driven.look(one.uid)).phase is Phase.RUNNING
        go.touch()
        assert (await driven.ended(one.uid)).exit_code == 34


async def test_a_zygote_that_dies_before_it_is_certain_starts_nothing(
    rig: ProcessRig, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    one = task(rig, f"echo $$ >> {ran}")
    async with Driven(rig) as driven:
        certain: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        launching = asyncio.create_task(driven.engine.launch_when([one], certain))
        zygote = await _zygote()
        supervisors = await _ready(rig, zygote, one)
        os.kill(zygote, signal.SIGKILL)
        await appears(lambda: not any(claim.start_time(pid) for pid in supervisors), "them to leave")
        certain.set_result(True)
        await launching
        assert (await driven.look(one.uid)).phase is Phase.ABSENT
        await driven.run(one)
    assert len(lines_of(ran)) == 1


class _few_processes:  # noqa: N801 (reads as a verb where it stands)
    """The process may have only so many more children."""

    def __init__(self, pid: int, more: int):
        self._pid, self._more = pid, more
        self._group = Path(f"/sys/fs/cgroup/pids/pai-test-{os.getpid()}")

    def __enter__(self) -> None:
        if not _ROOT:
            # Limits count all processes of the account: the test's, the zygote, and these. What an earlier
            # test left is not counted: it may go at any moment, and would leave its room to the gang.
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
        deadline = time.monotonic() + 5
        while True:
            try:
                self._group.rmdir()
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            else:
                return


# -- who owns an attempt --------------------------------------------------------------------------


async def test_a_second_supervisor_for_an_attempt_leaves_without_running_anything(
    rig: ProcessRig, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    one = task(rig, f"echo $$ >> {ran}; sleep 60")
    async with Driven(rig) as driven:
        await driven.launch(one)
        await appears(ran.exists, "the task's start")
        (runtime,) = (rig.home / "runtime").glob("*/pairuntime.pyz")
        second = subprocess.run(
            [sys.executable, "-I", "-S", runtime, "supervise", rig.folder(one.uid)], timeout=20
        )
        assert second.returncode == 3
        assert (await driven.look(one.uid)).phase is Phase.RUNNING
        await driven.engine.stop([one.uid], 0)
        await driven.ended(one.uid)
    assert len(lines_of(ran)) == 1


async def test_after_a_reboot_a_running_attempt_is_lost_and_its_old_number_is_nobodys(
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


async def test_a_process_that_was_given_a_dead_supervisors_number_is_left_alone(rig: ProcessRig) -> None:
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
async def test_an_unstarted_folder_cut_short_by_a_power_failure_is_written_again(
    rig: ProcessRig, left: str
) -> None:
    one = task(rig, "echo whole; exit 33")
    folder = rig.folder(one.uid)
    (folder / "work").mkdir(parents=True)
    (folder / "task.sh").write_text("")
    (folder / supervise.SPEC).write_text(left)
    async with Driven(rig) as driven:
        (seen,) = await driven.run(one)
        assert seen.exit_code == 33
        assert driven.log(one.uid) == b"whole\n"


async def test_an_unstarted_folder_of_an_earlier_boot_is_written_again(rig: ProcessRig) -> None:
    one = task(rig, "exit 34")
    async with Driven(rig) as driven:
        await driven.run(one)
        folder = rig.folder(one.uid)
        spec = json.loads((folder / supervise.SPEC).read_text())
        (folder / supervise.SPEC).write_text(json.dumps({**spec, "boot_id": "another-boot"}))
        (folder / "task.sh").write_text("exit 1")
        for name in (claim.NAME, record.NAME):
            (folder / name).unlink()
        assert (await driven.run(one))[0].exit_code == 34


async def test_a_gang_of_which_half_the_folders_were_made_before_a_crash_is_launched_whole(
    rig: ProcessRig,
) -> None:
    gang = [task(rig, 'test "$WORLD" = 3', shared_environment={"WORLD": "3"}) for _ in range(3)]
    async with Driven(rig) as driven:
        for one in gang[:2]:
            (rig.folder(one.uid) / "work").mkdir(parents=True)
            (rig.folder(one.uid) / "env").write_bytes(b"WORLD=1\0")
        assert [seen.exit_code for seen in await driven.run(*gang)] == [0, 0, 0]


async def test_supervisors_killed_at_any_moment_leave_nothing_and_run_nothing_twice(
    rig: ProcessRig, tmp_path: Path
) -> None:
    ran, word = tmp_path / "ran", mark()
    chance = random.Random(7)
    async with Driven(rig) as driven:
        for _ in range(25):
            one = task(rig, f"echo $$ >> {ran}; setsid sleep 600 & sleep 600", environment={"MARK": word})
            await driven.launch(one)
            await asyncio.sleep(chance.random() * 0.02)
            if claim.read(str(rig.folder(one.uid))) is None:
                await driven.until(one.uid, Phase.RUNNING)
            rig.kill_holder(one.uid)
            await driven.until(one.uid, Phase.LOST)
            assert rig.leftovers(word) == []
            await driven.launch(one)
            assert (await driven.until(one.uid, Phase.LOST)).phase is Phase.LOST
        await nothing_left(rig, word)
    assert len(lines_of(ran)) <= 25


@pytest.mark.parametrize("began", [tree.V2, tree.V1])
async def test_a_lost_tree_is_ended_the_way_it_was_held_when_it_began(tmp_path: Path, began: str) -> None:
    first = ProcessRig(tmp_path / "home", began)
    try:
        word = mark()
        # Without the mark in its environment only the cgroup knows it.
        one = task(first, f"env -i /bin/bash -c 'exec -a {word} sleep 600' & echo up; wait")
        async with Driven(first) as driven:
            await driven.launch(one)
            await driven.said(one.uid, b"up")
            await appears(lambda: first.leftovers(word), "the child")
        first.kill_holder(one.uid)
        hold, first.hold = first.hold, PROC_ONLY
        async with Driven(first) as driven:
            await driven.until(one.uid, Phase.LOST)
        first.hold = hold
        assert first.leftovers(word) == []
    finally:
        first.close()


# -- descriptors, processes, cgroups --------------------------------------------------------------


@pytest.mark.parametrize("mode", [tree.V2, tree.V1, tree.PROC])
async def test_tasks_that_ended_leave_no_descriptor_no_process_and_no_cgroup(
    tmp_path: Path, mode: str
) -> None:
    rig = ProcessRig(tmp_path / "home", mode)
    # Tests that share this process may have servers of theirs running.
    others = set(tree.children(os.getpid()))
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
            rig.kill_holder(lost.uid)
            await driven.until(lost.uid, Phase.LOST)
            await appears(lambda: len(os.listdir("/proc/self/fd")) <= before, "descriptors to be closed")
            zygote = await _zygote()
            await appears(lambda: tree.descendants(zygote) == [], "supervisors to be gone")
            await appears(lambda: rig.cgroups_left() == [], f"cgroups to be gone, left: {rig.cgroups_left()}")
        assert set(tree.children(os.getpid())) <= others
    finally:
        rig.close()


async def test_a_zygote_that_has_rehearsed_is_as_before(rig: ProcessRig) -> None:
    async with Driven(rig) as driven:
        zygote = await _zygote()
        await driven.run(task(rig, "true"))
        assert len(os.listdir(f"/proc/{zygote}/fd")) == 4  # its three, and the server's question
        assert Path(f"/proc/{zygote}/cwd").readlink() == Path("/")
        status = Path(f"/proc/{zygote}/status").read_text()
        assert int(status.partition("SigCgt:")[2].split()[0], 16) == 0
        assert not Path(f"/dev/shm/pai-rehearsal.{zygote}").exists()
        # Whoever loses its supervisor is not its child.
        one = task(rig, "trap '' TERM; sleep 60 & wait")
        await driven.launch(one)
        await driven.until(one.uid, Phase.RUNNING)
        (supervisor,) = tree.children(zygote)
        await appears(lambda: tree.descendants(supervisor), "the program")
        orphans = tree.descendants(supervisor)
        os.kill(supervisor, signal.SIGKILL)
        await appears(lambda: not claim.start_time(supervisor), "its death")
        assert not set(orphans) & set(tree.children(zygote))
        await driven.until(one.uid, Phase.LOST)


async def test_a_supervisor_does_not_keep_the_servers_terminal_open(rig: ProcessRig) -> None:
    one = task(rig, "sleep 600")
    async with Driven(rig) as driven:
        await driven.launch(one)
        await driven.until(one.uid, Phase.RUNNING)
        ours = Path("/proc/self/fd/2").readlink()
        held = {fd.readlink() for fd in Path(f"/proc/{rig.supervisor(one.uid)}/fd").iterdir()}
        assert ours == Path("/dev/null") or ours not in held
        await driven.engine.stop([one.uid], 0)
        await driven.ended(one.uid)


async def test_a_supervisor_has_under_two_megabytes_to_itself(rig: ProcessRig) -> None:
    one = task(rig, "seq 200000; echo up; sleep 600", environment={"BULK": "x" * 20_000})
    async with Driven(rig) as driven:
        await driven.launch(one)
        await driven.said(one.uid, b"up")
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


async def test_a_folder_taken_away_from_under_a_task_leaves_no_process(rig: ProcessRig) -> None:
    word = mark()
    one = task(rig, "echo up; sleep 0.3; seq 1000; exit 3", environment={"MARK": word})
    async with Driven(rig) as driven:
        await driven.launch(one)
        await driven.said(one.uid, b"up")
        supervisor = rig.supervisor(one.uid)
        shutil.rmtree(rig.folder(one.uid))
        await appears(lambda: not Path(f"/proc/{supervisor}").exists(), "the supervisor's end")
        assert rig.leftovers(word) == []
        assert (await driven.look(one.uid)).phase is Phase.ABSENT


async def test_a_stranger_who_goes_on_writing_to_a_tasks_output_does_not_keep_it_alive(
    rig: ProcessRig, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    one = task(rig, f"echo $$; until [ -e {go} ]; do sleep 0.02; done; echo last; exit 12")
    async with Driven(rig) as driven:
        await driven.launch(one)
        await driven.said(one.uid, b"\n")
        pid = int(driven.log(one.uid))
        stranger = subprocess.Popen(["sh", "-c", f"exec yes > /proc/{pid}/fd/1"], stderr=subprocess.DEVNULL)
        await driven.said(one.uid, b"y\ny\n")
        go.touch()
        assert (await driven.ended(one.uid)).exit_code == 12
        assert b"last\n" in driven.log(one.uid)
        stranger.kill()
        stranger.wait()


# -- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
def test_a_clock_that_jumps_while_a_task_runs_changes_neither_its_length_nor_its_end(
    tmp_path: Path, jump_s: float
) -> None:
    (tmp_path / supervise.SPEC).write_text(
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
            # The clock is set once the task has begun.
            time.time = lambda: real() + (jump_s if time.monotonic() - started > 0.1 else 0)
            status = supervise.supervise(str(tmp_path), tree.Cgroup(tree.PROC, ""))
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    ended = record.read(str(tmp_path))
    assert ended is not None
    started_ms, ended_ms = ended["started_ms"], ended["ended_ms"]
    assert isinstance(started_ms, int) and isinstance(ended_ms, int)
    assert ended["exit_code"] == 8
    assert 200 <= ended_ms - started_ms < 20_000


# -- a full disk ----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[ProcessRig]:
    """A home on a file system of two megabytes."""
    if not _ROOT:
        missing("the right to mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk]).returncode:
        missing("the right to mount a small file system")
    made = ProcessRig(disk / "home", tree.PROC)
    yield made
    made.close()
    deadline = time.monotonic() + 5
    while subprocess.run(["umount", disk]).returncode and time.monotonic() < deadline:
        time.sleep(0.05)


def _fill(folder: Path) -> Path:
    """Take the last byte."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as f:
        for size in (65536, 4096, 1):
            try:
                while True:
                    f.write(b"x" * size)
            except OSError:
                continue
    return filler


async def test_on_a_full_disk_the_end_is_told_and_the_log_has_a_gap(
    small_disk: ProcessRig, tmp_path: Path
) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    one = task(
        small_disk,
        f"echo before; until [ -e {go} ]; do sleep 0.02; done; seq 100000; touch {done}; "
        f"until [ -e {go}.2 ]; do sleep 0.02; done; echo after; exit 41",
    )
    async with Driven(small_disk) as driven:
        await driven.launch(one)
        await driven.said(one.uid, b"before")
        filler = _fill(small_disk.home)
        go.touch()
        await appears(done.exists, "the output nobody could keep")
        filler.unlink()
        (tmp_path / "go.2").touch()
        seen = await driven.ended(one.uid)
        assert seen.exit_code == 41
        whole = b"before\n" + b"".join(b"%d\n" % n for n in range(1, 100001)) + b"after\n"
        for stream in ("stdout", "all"):
            reader, offset, kept = driven.reader(one.uid, stream), 0, []
            while (chunk := reader.read(offset, 1 << 20)).data:
                assert whole[chunk.offset : chunk.end] == chunk.data
                kept.append(chunk)
                offset = chunk.end
            assert offset == len(whole)
            assert sum(len(chunk.data) for chunk in kept) < len(whole)
            assert kept[-1].data.endswith(b"after\n")


async def test_a_task_that_ends_on_a_full_disk_is_not_lost(small_disk: ProcessRig, tmp_path: Path) -> None:
    go = tmp_path / "go"
    one = task(small_disk, f"echo up; until [ -e {go} ]; do sleep 0.02; done; exit 42")
    async with Driven(small_disk) as driven:
        await driven.launch(one)
        await driven.said(one.uid, b"up")
        _fill(small_disk.home)
        go.touch()
        assert (await driven.ended(one.uid)).exit_code == 42


async def test_what_cannot_be_claimed_on_a_full_disk_starts_when_there_is_room(
    small_disk: ProcessRig,
) -> None:
    one = task(small_disk, "exit 44")
    async with Driven(small_disk) as driven:
        zygote = await _zygote()
        os.kill(zygote, signal.SIGSTOP)
        launching = asyncio.create_task(driven.launch(one))
        await appears(lambda: (small_disk.folder(one.uid) / "spec.json").exists(), "the folder")
        filler = _fill(small_disk.home)
        os.kill(zygote, signal.SIGCONT)
        await launching
        (supervisor,) = tree.children(zygote)
        await appears(lambda: _listens(supervisor), "the supervisor to be ready")
        assert (await driven.look(one.uid)).phase is Phase.ABSENT
        filler.unlink()
        assert (await driven.ended(one.uid)).exit_code == 44


def _listens(pid: int) -> bool:
    """It handles signals, which is the last thing it prepares before it claims."""
    (caught,) = re.findall(r"SigCgt:\s+(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


async def test_why_a_supervisor_failed_is_in_the_servers_log(
    rig: ProcessRig, caplog: pytest.LogCaptureFixture
) -> None:
    one = task(rig, "sleep 600")
    async with Driven(rig) as driven:
        os.kill(await _zygote(), signal.SIGSTOP)
        launching = asyncio.create_task(driven.launch(one))
        spec = rig.folder(one.uid) / supervise.SPEC
        await appears(spec.exists, "the folder")
        spec.write_text(json.dumps({**json.loads(spec.read_text()), "grace_s": "no number"}))
        os.kill(await _zygote(), signal.SIGCONT)
        await launching
        await driven.until(one.uid, Phase.LOST)
    assert "no number" in caplog.text


async def test_a_task_can_be_stopped_on_a_full_disk(small_disk: ProcessRig) -> None:
    one = task(small_disk, "echo up; exec sleep 600")
    async with Driven(small_disk) as driven:
        await driven.launch(one)
        await driven.said(one.uid, b"up")
        _fill(small_disk.home)
        await driven.engine.stop([one.uid], 5)
        seen = await driven.ended(one.uid)
        assert (seen.stopped, seen.killed_by_us) == (True, True)


async def test_on_a_full_disk_a_gang_is_refused_and_what_was_half_made_goes(
    small_disk: ProcessRig, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    gang = [task(small_disk, f"echo $$ >> {ran} # {'x' * 50_000}") for _ in range(60)]
    async with Driven(small_disk) as driven:
        with pytest.raises(LaunchFailed):
            await driven.launch(*gang)
        assert not any(small_disk.folder(one.uid).exists() for one in gang)
        assert (await driven.run(task(small_disk, "exit 43")))[0].exit_code == 43
    assert not ran.exists()


async def test_an_unstarted_attempt_can_be_buried_on_a_full_disk(
    small_disk: ProcessRig, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    one = task(small_disk, f"touch {ran}")
    async with Driven(small_disk) as driven:
        os.kill(await _zygote(), signal.SIGSTOP)
        launching = asyncio.create_task(driven.launch(one))
        await appears(lambda: (small_disk.folder(one.uid) / "spec.json").exists(), "the folder")
        _fill(small_disk.home)
        await driven.engine.stop([one.uid], 0)
        os.kill(await _zygote(), signal.SIGCONT)
        await launching
        seen = await driven.ended(one.uid)
        assert (seen.started_ms, seen.stopped) == (None, True)
    assert not ran.exists()
