"""Limits of cores and memory, with real cgroups."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.engines.interface import Phase, TaskLaunch
from paicluster.engines.process import cgroup_limits, cgroups
from pairuntime.supervisor import process_tree
from support.engine_rig import Driven, appears, mark, missing, nothing_left, task
from support.process_rig import ProcessRig

PYTHON = f"{sys.executable} -I -S"


# Machines of today have V2; PROC needs no permission.
@pytest.fixture(
    params=[process_tree.V2, pytest.param(process_tree.V1, marks=pytest.mark.slow), process_tree.PROC]
)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProcessRig]:
    made = ProcessRig(tmp_path / "home", request.param)
    if cgroup_limits.choose(f"pai-test-{os.getpid()}", made.tree_control).missing:
        made.close()
        missing("a writable cpu and memory controller")
    yield made
    made.close()
    for root in cgroup_limits._v1_parents().values():
        assert not (root / _name(made)).exists(), "a group is left"


def _name(rig: ProcessRig) -> str:
    """What the engine calls its groups."""
    return "pai-" + hashlib.sha256(str(rig.home.resolve()).encode()).hexdigest()[:12]


@pytest.fixture(autouse=True)
def no_probe_left() -> Iterator[None]:
    yield
    for root in cgroup_limits._v1_parents().values():
        probe = root / f"pai-test-{os.getpid()}"
        if probe.exists():
            probe.rmdir()


def takes(megabytes: int) -> str:
    """A program that really has so much memory."""
    return f"{PYTHON} -c 'b = bytearray({megabytes} << 20); b[::4096] = bytes(len(b[::4096])); print(len(b))'"


def small(rig: ProcessRig, script: str, memory_mb: int = 64, cpu: int = 1) -> TaskLaunch:
    return task(rig, script, memory_mb=memory_mb, cpu=cpu)


async def test_out_of_memory_is_distinguished_from_a_crash(rig: ProcessRig) -> None:
    async with Driven(rig, enforce_limits=True) as driven:
        assert driven.engine.notices() == ()
        greedy, modest, crashed = await driven.run(
            small(rig, takes(300)), small(rig, takes(20)), small(rig, "kill -KILL $$")
        )
        assert greedy.out_of_memory and greedy.exit_code == 137, greedy
        assert modest.exit_code == 0 and not modest.out_of_memory, modest
        assert crashed.signal == signal.SIGKILL and not crashed.out_of_memory, crashed


async def test_program_that_survives_an_oom_killed_child_succeeds(rig: ProcessRig) -> None:
    async with Driven(rig, enforce_limits=True) as driven:
        coped, gave_up = await driven.run(
            small(rig, f"{takes(300)} || echo coped"), small(rig, f"{takes(300)} || exit 5")
        )
        assert coped.exit_code == 0 and not coped.out_of_memory, coped
        assert gave_up.exit_code == 5 and gave_up.out_of_memory, gave_up


BUSY = """
import os, time
ends = time.monotonic() + 1.0
children = []
for _ in range(2):
    if os.fork() == 0:
        while time.monotonic() < ends:
            pass
        os._exit(0)
began = time.monotonic()
for _ in range(2):
    os.wait()
spent = os.times()
print(spent.children_user + spent.children_system, 1.0 + time.monotonic() - ends)
"""


async def test_two_busy_processes_of_a_task_share_its_one_core(rig: ProcessRig, tmp_path: Path) -> None:
    program = tmp_path / "busy.py"
    program.write_text(BUSY)
    async with Driven(rig, enforce_limits=True) as driven:
        one = small(rig, f"cat /proc/self/cgroup; {PYTHON} {program}")
        (seen,) = await driven.run(one)
        assert seen.exit_code == 0
        *groups, last = driven.log(one.uid, "stdout").decode().splitlines()
        assert any(one.uid in line for line in groups)
        spent, took = map(float, last.split())
        # A quota is assigned per tenth of a second: one more than the share is possible.
        assert spent <= took + 0.3


async def test_limits_match_the_request(rig: ProcessRig) -> None:
    async with Driven(rig, enforce_limits=True) as driven:
        one = small(rig, "echo ready; sleep 60", memory_mb=77, cpu=2)
        await driven.launch(one)
        await driven.wait_for_output(one.uid, b"ready")
        held = driven.engine._limits
        memory, cpu = held.memory / one.uid, held.cpu / one.uid
        if held.mode == process_tree.V2:
            most = (memory / "memory.max").read_text()
            quota, period = (cpu / "cpu.max").read_text().split()
        else:
            most = (memory / "memory.limit_in_bytes").read_text()
            quota, period = ((cpu / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        assert int(most) == 77 << 20
        assert int(quota) == 2 * int(period)
        # The supervisor is not under them: the kernel never kills it for lack of memory.
        assert str(rig.supervisor(one.uid)) not in (memory / "cgroup.procs").read_text().split()
        await driven.engine.stop([one.uid], 1)
        await driven.ended(one.uid)
        await appears(lambda: not (memory.exists() or cpu.exists()), "the end of the groups")


async def test_lost_task_leaves_no_cgroup(rig: ProcessRig) -> None:
    marker = mark()
    async with Driven(rig, enforce_limits=True) as driven:
        one = small(rig, f"echo ready; exec sleep 600 # {marker}")
        await driven.launch(one)
        await driven.wait_for_output(one.uid, b"ready")
        rig.kill_supervisor(one.uid)
        await driven.until(one.uid, Phase.LOST)
        await nothing_left(rig, marker)


async def test_cgroups_of_tasks_that_ended_without_a_server_are_removed(rig: ProcessRig) -> None:
    async with Driven(rig, enforce_limits=True) as driven:
        one = small(rig, "echo ready; sleep 0.3")
        await driven.launch(one)
        await driven.wait_for_output(one.uid, b"ready")
    await appears((rig.folder(one.uid) / "exit.json").exists, "the end")
    async with Driven(rig, enforce_limits=True) as driven:
        await driven.ended(one.uid)


async def test_task_without_limits_joins_no_cgroup(rig: ProcessRig) -> None:
    async with Driven(rig) as driven:
        one = small(rig, f"cat /proc/self/cgroup; {takes(200)}")
        (seen,) = await driven.run(one)
        assert seen.exit_code == 0 and driven.engine.notices() == ()
        own = [line for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line]
        # With v2 it is in the cgroup of its tree, which has no limits.
        assert set(own) <= set(driven.log(one.uid).decode().splitlines())


async def test_resource_that_cannot_be_limited_gives_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup_limits, "_v1_parents", lambda: {"cpu": tmp_path / "nowhere"})
    rig = ProcessRig(tmp_path / "home", process_tree.PROC)
    async with Driven(rig, enforce_limits=True) as driven:
        (notice,) = driven.engine.notices()
        assert notice.reason == "LimitsNotEnforced" and "cores and the memory" in notice.message
        (seen,) = await driven.run(small(rig, "exit 3"))
        assert seen.exit_code == 3
    rig.close()


async def test_cgroup_of_the_tree_can_carry_the_limits(tmp_path: Path) -> None:
    """As with cgroup v2, where the cgroup of the tree also has the limits."""
    rig = ProcessRig(tmp_path / "home", process_tree.PROC)
    parent = cgroup_limits._v1_parents().get("memory")
    if parent is None:
        missing("a memory controller of cgroup v1")
    rig.tree_control = cgroups.ProcessTreeControl(process_tree.V1, parent / f"pai-test-tree-{os.getpid()}")
    file = Path("/dev/shm") / mark()  # memory that stays when those who took it are gone
    fills = f'{PYTHON} -c \'f = open("{file}", "wb"); f.write(bytes(300 << 20))\''
    async with Driven(rig, enforce_limits=True) as driven:
        greedy, modest, shared = await driven.run(
            small(rig, takes(300)), small(rig, takes(20)), small(rig, f"{fills} || exit 6")
        )
        assert greedy.out_of_memory and greedy.exit_code == 137, greedy
        assert modest.exit_code == 0, modest
        assert shared.out_of_memory and shared.exit_code in (6, 137), shared
    rig.close()
    file.unlink()


def test_probe_does_not_fork_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has threads: a fork of it could hang, and newer versions of Python warn about it."""
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("the server was forked"))
    control = cgroups.choose(f"pai-test-{os.getpid()}-probe", (process_tree.V2, process_tree.V1))
    if control.root is None:
        pytest.skip("this account may not make cgroups")
    assert not list(control.root.glob("probe-*"))
    control.root.rmdir()


FORKS = f"""{PYTHON} -c '
import os, time
for _ in range(100):
    if not os.fork():
        time.sleep(60)
' """


async def test_refused_forks_of_a_failed_task_are_reported(rig: ProcessRig) -> None:
    async with Driven(rig, enforce_limits=True, max_processes=32) as driven:
        greedy, coped, modest = await driven.run(
            small(rig, FORKS, 512), small(rig, f"{FORKS} || true", 512), small(rig, "exit 3")
        )
        assert greedy.exit_code == 1 and greedy.forks_refused, greedy
        assert coped.exit_code == 0 and not coped.forks_refused, coped
        assert modest.exit_code == 3 and not modest.forks_refused, modest


async def test_without_a_cgroup_the_processes_of_the_account_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup_limits, "choose", lambda *_: cgroup_limits.CgroupLimits(process_tree.V1))
    rig = ProcessRig(tmp_path / "home", process_tree.PROC)
    try:
        async with Driven(rig, enforce_limits=True, max_processes=77) as driven:
            one = small(rig, "ulimit -u")
            (seen,) = await driven.run(one)
            assert seen.exit_code == 0
            assert driven.log(one.uid, "stdout").strip() == b"77"
    finally:
        rig.close()
