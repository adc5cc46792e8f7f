"""What every engine must do: how tasks end, are stopped, and are adopted by the next server."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from paicluster.engines.interface import Phase
from support.engine_contract.stubborn_processes import DAEMON, DEAF_CHILD
from support.engine_rig import Driven, Rig, appears, mark, task


class StopContract:
    # -- ends --------------------------------------------------------------------------------------

    async def test_exit_codes_are_reported(self, rig: Rig) -> None:
        gang = [task(rig, f"exit {code}") for code in (0, 1, 2, 127, 128, 255)]
        async with Driven(rig) as driven:
            seen = await driven.run(*gang)
        assert [outcome.exit_code for outcome in seen] == [0, 1, 2, 127, 128, 255]
        assert {(outcome.signal, outcome.stopped, outcome.killed_by_us) for outcome in seen} == {
            (None, False, False)
        }

    async def test_foreign_signal_is_reported_and_not_ours(self, rig: Rig) -> None:
        signals = [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGPIPE, signal.SIGXFSZ]
        gang = [task(rig, f"kill -{number.value} $$") for number in signals]
        async with Driven(rig) as driven:
            seen = await driven.run(*gang)
        assert [outcome.signal for outcome in seen] == signals
        assert all(outcome.exit_code is None and not outcome.killed_by_us for outcome in seen)

    async def test_killing_leftovers_does_not_count_as_killing_the_program(self, rig: Rig) -> None:
        one = task(rig, DEAF_CHILD + "sleep 0.2; kill -KILL $$")
        async with Driven(rig) as driven:
            (seen,) = await driven.run(one)
        assert seen.signal == signal.SIGKILL
        assert not seen.killed_by_us

    async def test_a_failing_command_ends_the_script(self, rig: Rig) -> None:
        one = task(rig, "false\necho not reached")
        async with Driven(rig) as driven:
            (seen,) = await driven.run(one)
            assert seen.exit_code == 1
            assert driven.log(one.uid) == b""

    async def test_start_error_is_reported(self, rig: Rig) -> None:
        bad = rig.unstartable(task(rig, "echo never"))
        async with Driven(rig) as driven:
            (seen,) = await driven.run(bad)
            assert seen.start_error
            assert driven.log(bad.uid) == b""

    # -- stopping ----------------------------------------------------------------------------------

    async def test_task_can_handle_the_stop_signal(self, rig: Rig) -> None:
        one = task(rig, "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done")
        async with Driven(rig) as driven:
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            await driven.engine.stop([one.uid], 60)
            seen = await driven.ended(one.uid)
            assert (seen.exit_code, seen.stopped, seen.killed_by_us) == (7, True, False)
            assert driven.log(one.uid, "stdout") == b"up\nbye\n"

    async def test_all_sessions_are_killed_after_the_grace_period(self, rig: Rig) -> None:
        word = mark()
        one = task(
            rig,
            "trap '' TERM\n" + DEAF_CHILD + DAEMON + "while :; do sleep 0.05; done",
            environment={"MARK": word},
        )
        async with Driven(rig) as driven:
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"deaf")
            await driven.wait_for_output(one.uid, b"daemon up")
            assert rig.leftovers(word)
            await driven.engine.stop([one.uid], 0.2)
            seen = await driven.ended(one.uid)
            assert (seen.signal, seen.stopped, seen.killed_by_us) == (signal.SIGKILL, True, True)
            assert rig.leftovers(word) == []

    async def test_suspended_process_can_be_stopped(self, rig: Rig) -> None:
        one = task(rig, "trap 'exit 9' TERM; echo up; kill -STOP $$; sleep 600")
        async with Driven(rig) as driven:
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            await driven.engine.stop([one.uid], 60)
            assert (await driven.ended(one.uid)).exit_code == 9

    async def test_fork_bomb_is_killed(self, rig: Rig) -> None:
        word = mark()
        # Each lives just long enough to fork a successor in its own session that ignores SIGTERM.
        again = 'trap "" TERM; sleep 0.01; setsid bash -c "$AGAIN" & exit 0'
        one = task(
            rig,
            'for n in 1 2 3; do bash -c "$AGAIN"; done; echo up; sleep 600',
            environment={"MARK": word, "AGAIN": again},
        )
        async with Driven(rig) as driven:
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            await driven.engine.stop([one.uid], 0.1)
            await driven.ended(one.uid)
            assert rig.leftovers(word) == []

    async def test_a_task_stopped_before_it_started_never_starts(self, rig: Rig, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        one, other = task(rig, f"echo $$ >> {ran}"), task(rig, "exit 3")
        async with Driven(rig) as driven:
            await driven.engine.stop([one.uid], 5)
            await driven.launch(one)
            await driven.launch(other)
            await driven.ended(other.uid)
            seen = await driven.ended(one.uid)
            assert (seen.started_ms, seen.stopped, seen.exit_code) == (None, True, None)
            await driven.launch(one)
            assert await driven.look(one.uid) == seen
        assert not ran.exists()

    async def test_stop_during_start_stops_it_or_prevents_it(self, rig: Rig) -> None:
        words = [mark() for _ in range(10)]
        gang = [task(rig, "exec sleep 600", environment={"MARK": word}) for word in words]
        async with Driven(rig) as driven:
            for one in gang:
                await asyncio.gather(driven.launch(one), driven.engine.stop([one.uid], 5))
            for one in gang:
                seen = await driven.ended(one.uid)
                assert seen.stopped
        for word in words:
            assert rig.leftovers(word) == []

    async def test_repeated_or_late_stop_changes_nothing(self, rig: Rig) -> None:
        one = task(rig, "trap 'exit 6' TERM; echo up; while :; do sleep 0.05; done")
        over = task(rig, "exit 2")
        async with Driven(rig) as driven:
            (done,) = await driven.run(over)
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            for _ in range(3):
                await driven.engine.stop([one.uid, over.uid], 60)
            assert (await driven.ended(one.uid)).exit_code == 6
            assert await driven.look(over.uid) == done

    async def test_time_limit_stops_a_task_and_is_reported(self, rig: Rig) -> None:
        one = task(rig, "trap 'exit 9' TERM; while :; do sleep 0.05; done", time_limit_s=3)
        within = task(rig, "exit 3", time_limit_s=60)
        async with Driven(rig) as driven:
            seen, other = await driven.run(one, within)
        assert (seen.exit_code, seen.timed_out, seen.stopped) == (9, True, False)
        assert (other.exit_code, other.timed_out) == (3, False)

    async def test_time_limit_and_grace_of_a_year_work(self, rig: Rig) -> None:
        year = 365 * 86_400
        one = task(rig, "trap '' TERM; echo up; sleep 0.5; exit 4", time_limit_s=year)
        async with Driven(rig) as driven:
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            await driven.engine.stop([one.uid], year)
            assert (await driven.ended(one.uid)).exit_code == 4

    # -- adoption ----------------------------------------------------------------------------------

    async def test_new_server_adopts_running_tasks_of_a_killed_one(self, rig: Rig, tmp_path: Path) -> None:
        go = tmp_path / "go"
        waiting = f"echo before; until [ -e {go} ]; do sleep 0.02; done; echo after"
        short = task(rig, "echo done; exit 21")
        long, stoppable = task(rig, waiting + "; exit 22"), task(rig, "echo up; exec sleep 600")
        server = rig.launch_elsewhere([short, long, stoppable])
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        async with Driven(rig) as driven:
            await driven.until(long.uid, Phase.RUNNING)
            go.touch()
            assert (await driven.ended(long.uid)).exit_code == 22
            assert driven.log(long.uid) == b"before\nafter\n"
            assert (await driven.ended(short.uid)).exit_code == 21
            assert driven.log(short.uid) == b"done\n"
            await driven.wait_for_output(stoppable.uid, b"up")
            await driven.engine.stop([stoppable.uid], 60)
            seen = await driven.ended(stoppable.uid)
            assert (seen.signal, seen.killed_by_us) == (signal.SIGTERM, True)

    async def test_task_that_ended_without_a_server_is_reported_to_the_next(
        self, rig: Rig, tmp_path: Path
    ) -> None:
        go, gone = tmp_path / "go", tmp_path / "gone"
        one = task(rig, f"until [ -e {go} ]; do sleep 0.02; done; echo said meanwhile; touch {gone}; exit 23")
        server = rig.launch_elsewhere([one])
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        go.touch()
        await appears(gone.exists, "the task's end")
        async with Driven(rig) as driven:
            assert (await driven.ended(one.uid)).exit_code == 23
            assert driven.log(one.uid) == b"said meanwhile\n"

    async def test_closing_the_engine_leaves_its_tasks_running(self, rig: Rig, tmp_path: Path) -> None:
        go = tmp_path / "go"
        one = task(rig, f"until [ -e {go} ]; do sleep 0.02; done; exit 24")
        async with Driven(rig) as driven:
            await driven.launch(one)
            await driven.until(one.uid, Phase.RUNNING)
        go.touch()
        async with Driven(rig) as driven:
            assert (await driven.ended(one.uid)).exit_code == 24

    async def test_removed_attempt_is_deleted_with_its_log(self, rig: Rig) -> None:
        one = task(rig, "echo something")
        async with Driven(rig) as driven:
            await driven.run(one)
            await driven.engine.remove([one.uid])
            assert (await driven.look(one.uid)).phase is Phase.ABSENT
            assert driven.log(one.uid) == b""
            await driven.engine.remove([one.uid])
