"""What every engine must do: launching, limits, images and the process tree of a task."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from paicluster.engines.interface import Exec, LaunchFailed, Phase, SelfScheduling
from paicluster.scheduler.placement import NodeCapacity, place_tasks
from paicluster.scheduler.resource_requests import ResourceRequest, Resources, RoleRequest
from paicluster.scheduler.shortage import explain_shortage
from pairuntime.saved_environment import SAVE_COMMAND
from support.engine_contract.stubborn_processes import DAEMON, DEAF_CHILD
from support.engine_rig import Driven, Rig, appears, lines_of, mark, nothing_left, task
from support.session_client import run_in_session


class LaunchContract:
    # -- launching ---------------------------------------------------------------------------------

    async def test_a_gang_runs_each_task_in_its_own_environment(self, rig: Rig) -> None:
        shared = {"TOGETHER": 'it\'s "quoted" $HOME\n\\n', "BOTH": "shared", "EMPTY": ""}
        gang = [
            task(
                rig,
                'printf "%s|%s|%s|%s" "$TOGETHER" "$BOTH" "$EMPTY" "$PORTS"',
                environment={"BOTH": f"own {number}", "PORTS": f"{9000 + number},{9100 + number}"},
                shared_environment=shared,
            )
            for number in range(3)
        ]
        async with Driven(rig) as driven:
            seen = await driven.run(*gang)
            for number, (one, outcome) in enumerate(zip(gang, seen, strict=True)):
                assert (outcome.exit_code, outcome.signal, outcome.start_error) == (0, None, "")
                assert outcome.started_ms and outcome.ended_ms and outcome.started_ms <= outcome.ended_ms
                said = driven.log(one.uid).decode()
                assert said == f"{shared['TOGETHER']}|own {number}||{9000 + number},{9100 + number}"

    async def test_single_task_has_the_shared_environment(self, rig: Rig) -> None:
        alone = task(rig, 'printf "%s" "$TOGETHER"', shared_environment={"TOGETHER": "it's\n$HOME"})
        async with Driven(rig) as driven:
            await driven.run(alone)
            assert driven.log(alone.uid) == b"it's\n$HOME"

    async def test_every_task_has_the_runtime_variables(self, rig: Rig) -> None:
        shared = {"PATH": os.environ["PATH"], "PYTHONPATH": "/mine"}
        looks = task(rig, 'command -v hdfs > /dev/null && echo "$PYTHONPATH"')
        gang = [
            replace(looks, uid=str(uuid.uuid4()), environment={"LANG": "C.UTF-8"}, shared_environment=shared)
            for _ in range(2)
        ]
        async with Driven(rig) as driven:
            await driven.run(*gang)
            for one in gang:
                assert re.fullmatch(rb"/mine:/\S+/lib\n", driven.log(one.uid))

    async def test_server_environment_does_not_reach_a_task(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PLANTED_IN_THE_SERVER", "leaked")
        one = task(rig, "env; cat /proc/self/environ")
        async with Driven(rig) as driven:
            await driven.run(one)
            assert b"PLANTED" not in driven.log(one.uid)

    async def test_program_starts_with_default_signals_and_no_foreign_descriptors(self, rig: Rig) -> None:
        # Read by grep: its own signal state is that of any program.
        one = task(rig, "grep -E '^Sig(Ign|Blk)' /proc/self/status; ls /proc/self/fd | wc -l; cat")
        async with Driven(rig) as driven:
            (seen,) = await driven.run(one)
            said = driven.log(one.uid).decode()
        assert seen.exit_code == 0  # `cat` found the end of its input at once
        masks = [int(mask, 16) for mask in re.findall(r"Sig\w+:\s+(\w+)", said)]
        # The C library reserves 32 and 33 and may leave them ignored.
        assert [mask & ~(3 << 31) for mask in masks] == [0, 0]
        assert said.split()[-1] == "4"  # the three of every program, and the folder that ls reads

    async def test_gang_with_a_task_that_cannot_be_launched_never_runs(
        self, rig: Rig, tmp_path: Path
    ) -> None:
        ran = tmp_path / "ran"
        gang = [task(rig, f"echo $$ >> {ran}") for _ in range(4)]
        async with Driven(rig) as driven:
            rig.make_unlaunchable(gang[-1].uid)
            with pytest.raises(LaunchFailed) as refused:
                await driven.launch(*gang)
            assert refused.value.message
            for one in gang[:-1]:
                seen = await driven.look(one.uid)
                assert seen.phase is Phase.ABSENT or seen.started_ms is None
            # The engine still works; the later task runs after anything that must not have run.
            (seen,) = await driven.run(task(rig, "exit 4"))
            assert seen.exit_code == 4
        assert not ran.exists()

    async def test_launching_twice_runs_once(self, rig: Rig, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        gang = [task(rig, f"echo $$ >> {ran}; sleep 0.2; exit 5") for _ in range(3)]
        async with Driven(rig) as driven:
            await asyncio.gather(*(driven.launch(*gang) for _ in range(3)))
            seen = await driven.run(*gang)
            assert [outcome.exit_code for outcome in seen] == [5, 5, 5]
            await driven.launch(*gang)
            assert await driven.run(*gang) == seen
        assert len(lines_of(ran)) == 3

    async def test_many_tasks_at_once(self, rig: Rig) -> None:
        gang = [task(rig, f"echo line of {n}; echo error of {n} >&2; exit {n}") for n in range(rig.many)]
        async with Driven(rig) as driven:
            seen = await driven.run(*gang)
            for number, (one, outcome) in enumerate(zip(gang, seen, strict=True)):
                assert outcome.exit_code == number
                assert driven.log(one.uid, "stdout") == b"line of %d\n" % number
                assert driven.log(one.uid, "stderr") == b"error of %d\n" % number

    async def test_ports_in_use_are_not_free(self, rig: Rig) -> None:
        async with Driven(rig) as driven:
            with socket.socket() as taken:
                taken.bind(("", 0))
                taken.listen()
                port = taken.getsockname()[1]
                assert not driven.engine.ports_free(rig.node, [port], non_ephemeral=False)
            assert driven.engine.ports_free(rig.node, [port], non_ephemeral=False)
            assert driven.engine.ports_free(rig.node, [], non_ephemeral=True)

    async def test_node_of_a_task_is_known(self, rig: Rig) -> None:
        async with Driven(rig) as driven:
            assert rig.node in [node.name for node in driven.engine.nodes()]

    async def test_task_that_can_never_fit_stays_queued_with_the_reason(
        self, rig: Rig, tmp_path: Path
    ) -> None:
        ran = tmp_path / "ran"
        huge = task(rig, f"touch {ran}", cpu=100_000, memory_mb=1 << 30)
        async with Driven(rig) as driven:
            if isinstance(driven.engine, SelfScheduling):
                await driven.launch(huge)
                await appears(lambda: driven.notices, "a word on why it waits")
                seen = await driven.look(huge.uid)
                assert seen.phase is Phase.QUEUED or seen.rejection
                await driven.engine.stop([huge.uid], 0)
                await driven.ended(huge.uid)
            else:
                # Our scheduler places the tasks by the engine's nodes: such a task is never launched.
                empty = [
                    (node.name, Resources(node.cpu, node.memory_mb, len(node.gpus)), node.gpus)
                    for node in driven.engine.nodes()
                ]
                rooms = [NodeCapacity(name, total, total, gpus) for name, total, gpus in empty]
                need = ResourceRequest((RoleRequest("main", 1, Resources(huge.cpu, huge.memory_mb)),))
                assert place_tasks(rooms, need) == []
                assert "Insufficient cpu" in explain_shortage(rooms, need)
        assert not ran.exists()

    async def test_attempt_never_launched_is_absent(self, rig: Rig) -> None:
        async with Driven(rig) as driven:
            assert (await driven.look("00000000-never")).phase is Phase.ABSENT

    # -- limits ------------------------------------------------------------------------------------

    async def test_out_of_memory_is_reported_and_not_a_crash(self, rig: Rig) -> None:
        if why := rig.without_limits():
            pytest.skip(why)
        takes = "x=$(head -c {0}000000 /dev/zero | tr '\\0' x); echo ${{#x}}"
        async with Driven(rig, enforce_limits=True) as driven:
            greedy, modest, crashed = await driven.run(
                task(rig, takes.format(200), memory_mb=64),
                task(rig, takes.format(2), memory_mb=64),
                task(rig, "kill -KILL $$", memory_mb=64),
            )
        assert greedy.out_of_memory and (greedy.exit_code or greedy.signal), greedy
        assert modest.exit_code == 0 and not modest.out_of_memory, modest
        assert crashed.signal == signal.SIGKILL and not crashed.out_of_memory, crashed

    async def test_missing_limits_give_a_notice(self, rig: Rig) -> None:
        if not rig.without_limits():
            pytest.skip("they can be had here")
        async with Driven(rig, enforce_limits=True) as driven:
            await driven.run(task(rig, "true", memory_mb=64))
            said = [*driven.engine.notices(), *(notice for _, notice in driven.notices)]
        assert "LimitsNotEnforced" in [notice.reason for notice in said]

    # -- images ------------------------------------------------------------------------------------

    async def test_task_runs_without_python_and_bash(self, rig: Rig) -> None:
        one = rig.bare(task(rig, "type bash python3; echo $0; false; echo not reached", time_limit_s=60))
        if one is None:
            pytest.skip("this engine knows no images")
        async with Driven(rig) as driven:
            (seen,) = await driven.run(one)
            assert seen.exit_code not in (None, 0) and not seen.start_error
            assert b"not reached" not in driven.log(one.uid)
            script = f"export ADDED=\"it's 1\"\n{SAVE_COMMAND}\ntrap 'echo bye; exit 7' TERM; echo up; "
            stopped = rig.bare(task(rig, script + "while :; do sleep 0.05; done"))
            assert stopped is not None
            await driven.launch(stopped)
            await driven.wait_for_output(stopped.uid, b"up")
            if isinstance(driven.engine, Exec):
                words = driven.engine.session_command(stopped.uid)
                ran = await asyncio.to_thread(run_in_session, words, ["sh", "-c", 'echo "$ADDED"'])
                assert ran[:2] == (0, b"it's 1\n"), ran
            await driven.engine.stop([stopped.uid], 20)
            assert (await driven.ended(stopped.uid)).exit_code == 7
            assert driven.log(stopped.uid, "stdout") == b"up\nbye\n"

    # -- the tree ----------------------------------------------------------------------------------

    async def test_daemonized_grandchild_is_killed_with_its_task(self, rig: Rig) -> None:
        word = mark()
        one = task(rig, DAEMON + "sleep 0.1; exit 11", environment={"MARK": word})
        async with Driven(rig) as driven:
            (seen,) = await driven.run(one)
            assert (seen.exit_code, seen.signal, seen.stopped) == (11, None, False)
            assert rig.leftovers(word) == []

    async def test_killed_supervisor_means_lost_and_no_process_left(self, rig: Rig) -> None:
        word = mark()
        one = task(rig, DEAF_CHILD + DAEMON + "trap '' TERM; echo up; wait", environment={"MARK": word})
        async with Driven(rig) as driven:
            await driven.launch(one)
            for sign in (b"deaf", b"daemon up", b"up"):
                await driven.wait_for_output(one.uid, sign)
            await driven.until(one.uid, Phase.RUNNING)
            rig.kill_supervisor(one.uid)
            seen = await driven.until(one.uid, Phase.LOST, Phase.ENDED)
            assert seen.phase is Phase.LOST
            assert rig.leftovers(word) == []
            assert seen.exit_code is None
            # It stays lost: launching it again must not run it a second time.
            await driven.launch(one)
            assert (await driven.until(one.uid, Phase.LOST)).phase is Phase.LOST
            await nothing_left(rig, word)
