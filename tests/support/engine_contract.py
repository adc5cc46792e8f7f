"""What every engine must do, whatever runs its tasks.

An engine's test module makes a fixture ``rig`` (see `engine_rig.Rig`) and a class that inherits these
tests. Nothing here may know how an engine does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from openpaisdk.errors import PaiError
from paicluster.engines.interface import Exec, Forward, LaunchFailed, Phase, SelfScheduling
from paicluster.logs.reader import STREAMS
from paicluster.scheduler.node_capacity import NodeCapacity, explain_shortage, place_tasks
from paicluster.scheduler.resource_requests import ResourceRequest, Resources, RoleRequest
from support.engine_rig import Driven, Rig, appears, in_terminal, lines_of, mark, nothing_left, task
from support.hosted_forwarder import HostedForwarder
from support.session_client import HostedSession, environment_lines, place, run_in_session
from support.task_service import EchoServer, free_port, receive_all

# A process in its own session that ignores SIGTERM. It prints a line when it does.
_DEAF_CHILD = "setsid bash -c 'trap \"\" TERM HUP INT; echo deaf; while :; do sleep 0.05; done' &\n"
# Double-forked into its own session with inherited output, like a daemon.
_DAEMON = "(setsid bash -c 'echo daemon up; exec sleep 600' &)\n"


def _command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def _readable_by_others(folder: Path) -> list[str]:
    """Of the attempt's files, those that any account can open."""
    if any(not one.stat().st_mode & 0o001 for one in (folder, folder.parent)):
        return []  # other engines do not get that far
    return [str(path) for path in folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o004]


class EngineContract:
    # -- launching -----------------------------------------------------------------------------

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

    # -- ends ----------------------------------------------------------------------------------

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
        one = task(rig, _DEAF_CHILD + "sleep 0.2; kill -KILL $$")
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

    # -- stopping ------------------------------------------------------------------------------

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
            "trap '' TERM\n" + _DEAF_CHILD + _DAEMON + "while :; do sleep 0.05; done",
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
        one = task(rig, "trap 'exit 9' TERM; echo up; kill -STOP $$; sleep 60")
        async with Driven(rig) as driven:
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            await driven.engine.stop([one.uid], 20)
            assert (await driven.ended(one.uid)).exit_code == 9

    async def test_fork_bomb_is_killed(self, rig: Rig) -> None:
        word = mark()
        # Each lives just long enough to fork a successor in its own session that ignores SIGTERM.
        again = 'trap "" TERM; sleep 0.01; setsid bash -c "$AGAIN" & exit 0'
        one = task(
            rig,
            'for n in 1 2 3; do bash -c "$AGAIN"; done; echo up; sleep 60',
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
        one = task(rig, "trap 'exit 9' TERM; while :; do sleep 0.05; done", time_limit_s=1)
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

    # -- logs ----------------------------------------------------------------------------------

    async def test_megabytes_of_both_streams_are_complete_from_any_offset(self, rig: Rig) -> None:
        one = task(
            rig,
            "seq -f 'out %.0f xxxxxxxxxxxxxxxxxxxxxxxxx' 80000 & "
            "seq -f 'err %.0f yyyyyyyyyyyyyyyyyyyyyyyyy' 60000 >&2; wait",
        )
        out = b"".join(b"out %d xxxxxxxxxxxxxxxxxxxxxxxxx\n" % n for n in range(1, 80001))
        err = b"".join(b"err %d yyyyyyyyyyyyyyyyyyyyyyyyy\n" % n for n in range(1, 60001))
        async with Driven(rig) as driven:
            (seen,) = await driven.run(one)
            assert seen.exit_code == 0
            assert driven.log(one.uid, "stdout") == out
            assert driven.log(one.uid, "stderr") == err
            for offset in (1, 4096, 65537, len(out) - 1, len(out)):
                assert driven.log(one.uid, "stdout", offset) == out[offset:]
            merged = driven.log(one.uid)
            assert len(merged) == len(out) + len(err)
            lines = merged.splitlines(keepends=True)
            assert b"".join(line for line in lines if line.startswith(b"out ")) == out
            assert b"".join(line for line in lines if line.startswith(b"err ")) == err

    async def test_lines_written_in_pieces_are_not_split_in_the_merged_log(self, rig: Rig) -> None:
        half = "for n in $(seq 150); do printf %s A$n-; printf %s B$n-; echo C$n; done"
        one = task(rig, f"{{ {half}; }} & {{ {half.replace('A$n', 'a$n')}; }} >&2; wait")
        async with Driven(rig) as driven:
            await driven.run(one)
            lines = driven.log(one.uid).decode().splitlines()
        for letter in "Aa":
            assert [line for line in lines if line[0] == letter] == [
                f"{letter}{n}-B{n}-C{n}" for n in range(1, 151)
            ]

    async def test_binary_output_passes_unchanged(self, rig: Rig, tmp_path: Path) -> None:
        data = bytes(range(256)) * 512 + os.urandom(100_000)
        (tmp_path / "data").write_bytes(data)
        one = task(rig, f"cat {tmp_path / 'data'}")
        async with Driven(rig) as driven:
            await driven.run(one)
            assert driven.log(one.uid, "stdout") == data
            assert driven.log(one.uid) == data
            assert driven.log(one.uid, "stderr") == b""

    async def test_last_line_without_a_newline_is_kept(self, rig: Rig) -> None:
        one = task(rig, "printf 'no end'")
        async with Driven(rig) as driven:
            await driven.run(one)
            assert [driven.log(one.uid, stream) for stream in STREAMS] == [b"no end", b"no end", b""]

    async def test_a_line_can_be_read_while_the_task_runs(self, rig: Rig) -> None:
        one = task(rig, "echo now; sleep 60")
        async with Driven(rig) as driven:
            await driven.launch(one)
            for stream in ("stdout", "all"):
                await driven.wait_for_output(one.uid, b"now\n", stream)
            assert (await driven.look(one.uid)).phase is Phase.RUNNING
            await driven.engine.stop([one.uid], 0)
            await driven.ended(one.uid)

    async def test_output_through_tee_is_not_lost(self, rig: Rig) -> None:
        one = task(rig, "exec > >(tee copy.txt) 2>&1\nseq 20000\necho last")
        async with Driven(rig) as driven:
            await driven.run(one)
            expected = b"".join(b"%d\n" % n for n in range(1, 20001)) + b"last\n"
            assert driven.log(one.uid, "stdout") == expected

    async def test_log_tail_returns_the_end_of_the_log(self, rig: Rig) -> None:
        one = task(rig, "seq 1000")
        async with Driven(rig, log_segment=512, log_limit=1 << 20) as driven:
            await driven.run(one)
            whole = driven.log(one.uid)
            for size in (1, 100, 2000, 1 << 20):
                assert await driven.engine.log_tail(one.uid, size) == whole[-size:]

    async def test_log_limit_drops_the_oldest_part_and_offsets_stay(self, rig: Rig) -> None:
        one = task(rig, "seq -w 100000")  # 700 000 bytes
        async with Driven(rig, log_limit=64 << 10, log_segment=16 << 10) as driven:
            (seen,) = await driven.run(one)
            assert seen.exit_code == 0
            for stream in ("stdout", "all"):
                first = driven.reader(one.uid, stream).read(0, 7)
                assert 700_000 - (96 << 10) <= first.offset < 700_000
                rest = driven.log(one.uid, stream, first.offset)
                assert first.offset + len(rest) == 700_000
                expected = b"".join(b"%06d\n" % n for n in range(1, 100001))
                assert rest == expected[first.offset :]

    async def test_secret_written_in_two_pieces_is_masked(self, rig: Rig) -> None:
        one = task(
            rig,
            "printf 'a:hunter2-secret;'; printf hunter2-; sleep 0.2; printf 'secret;\\n'; "
            "echo hunter2-secret >&2; printf hunter2-",
            secrets=("hunter2-secret",),
        )
        async with Driven(rig) as driven:
            await driven.run(one)
            assert driven.log(one.uid, "stdout") == b"a:******;******;\nhunter2-"
            assert driven.log(one.uid, "stderr") == b"******\n"
            assert b"hunter2-secret" not in driven.log(one.uid)

    async def test_secret_reaches_only_the_task(self, rig: Rig, tmp_path: Path) -> None:
        secret = f"swordfish-{mark()}"
        go = tmp_path / "go"
        script = f'test "$TOLD" = {secret} && echo same; echo up; until [ -e {go} ]; do sleep 0.02; done'
        one = task(rig, script, environment={"TOLD": secret}, secrets=(secret,))
        async with Driven(rig) as driven:
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            shown = [line for line in _command_lines() if secret in line]
            readable = _readable_by_others(driven.engine.log_folder(one.uid))
            go.touch()
            assert (await driven.ended(one.uid)).exit_code == 0
            assert driven.log(one.uid) == b"same\nup\n"
        assert shown == []
        assert readable == []

    # -- limits --------------------------------------------------------------------------------

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

    # -- exec ----------------------------------------------------------------------------------

    async def test_exec_runs_in_the_folder_and_environment_of_the_task(self, rig: Rig) -> None:
        gang = [
            task(rig, f"echo {n} >number; echo up; sleep 60", shared_environment={"SHARED": "by all"})
            for n in range(2)
        ]
        async with Driven(rig) as driven:
            if not isinstance(driven.engine, Exec):
                pytest.skip("this engine has no exec")
            await driven.launch(*gang)
            for number, one in enumerate(gang):
                await driven.wait_for_output(one.uid, b"up")
                words = driven.engine.exec_command(
                    one.uid, ["sh", "-c", 'echo "$SHARED"; cat number; cat; echo oops >&2; exit 7']
                )
                ran = await asyncio.to_thread(
                    subprocess.run, list(words), input=b"told\n", capture_output=True, timeout=60, check=False
                )
                assert (ran.returncode, ran.stdout) == (7, b"by all\n%d\ntold\n" % number), ran
                # The transport may add output of its own, before or after.
                assert b"oops\n" in ran.stderr
            await driven.engine.stop([one.uid for one in gang], 0)
            for one in gang:
                await driven.ended(one.uid)
                with pytest.raises(PaiError):
                    driven.engine.exec_command(one.uid, ["true"])

    async def test_exec_with_a_terminal(self, rig: Rig) -> None:
        one = task(rig, "echo up; sleep 60")
        async with Driven(rig) as driven:
            if not isinstance(driven.engine, Exec):
                pytest.skip("this engine has no exec")
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            script = "test -t 0 && test -t 1 && read word && echo got $word; exit 7"
            words = driven.engine.exec_command(one.uid, ["sh", "-c", script], terminal=True)
            status, said = await asyncio.to_thread(in_terminal, list(words), b"hello\n")
            assert status == 7 and b"got hello" in said, (status, said)
            await driven.engine.stop([one.uid], 0)
            await driven.ended(one.uid)

    # -- sessions ------------------------------------------------------------------------------

    async def test_session_runs_a_command_beside_the_task(self, rig: Rig) -> None:
        """Same folder, account, cgroups, ignored signals and environment as the task; streams apart; its
        exit status.
        """
        looks = "pwd; id -u; id -g; cat /proc/self/cgroup; "
        # Signals 1 to 28; some higher ones belong to the C library.
        looks += "grep SigIgn /proc/self/status | tail -c 8"
        one = task(
            rig,
            f"({looks}) >look; env -0 >env; echo up; sleep 60",
            environment={"NUMBER": "it's 1"},
            shared_environment={"SHARED": "by\nall"},
        )
        async with Driven(rig) as driven:
            if not isinstance(driven.engine, Exec):
                pytest.skip("this engine has no exec")
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            words = driven.engine.session_command(one.uid)
            script = f"cat look; echo ==; {looks}; echo oops >&2; exit 7"
            status, out, err = await asyncio.to_thread(run_in_session, words, ["sh", "-c", script])
            task_sees, _, session_sees = out.partition(b"==\n")
            assert status == 7 and place(task_sees) == place(session_sees), (out, err)
            assert b"oops\n" in err and b"oops" not in out
            status, out, _ = await asyncio.to_thread(
                run_in_session, words, ["sh", "-c", "cat env; printf '==\\0'; env -0"]
            )
            of_task, _, of_session = out.partition(b"==\0")
            assert environment_lines(of_task) == environment_lines(of_session)
            await driven.engine.stop([one.uid], 0)
            await driven.ended(one.uid)
            with pytest.raises(PaiError):
                driven.engine.session_command(one.uid)

    async def test_session_passes_every_byte_both_ways(self, rig: Rig) -> None:
        one = task(rig, "echo up; sleep 60")
        data = bytes(range(256)) * 20_000
        async with Driven(rig) as driven:
            if not isinstance(driven.engine, Exec):
                pytest.skip("this engine has no exec")
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            words = driven.engine.session_command(one.uid)
            status, out, _ = await asyncio.to_thread(run_in_session, words, ["cat"], data)
            assert status == 0 and out == data
            await driven.engine.stop([one.uid], 0)
            await driven.ended(one.uid)

    async def test_session_with_a_terminal(self, rig: Rig) -> None:
        one = task(rig, "echo up; sleep 60")
        # A client program may pass the size on only after the command has started.
        sized = "until [ \"$(stty size 2>/dev/null)\" = '{}' ]; do sleep 0.02; done; echo {}; "
        script = sized.format("30 100", "sized") + "echo $TERM; read a; echo got $a; "
        # Not a program: a Ctrl-C while the shell starts one is lost.
        script += sized.format("31 101", "resized") + "read b"

        def use(words: Sequence[str]) -> tuple[int, bytes]:
            hosted = HostedSession(words)
            hosted.session.start(
                ["sh", "-c", script],
                ("vt100", 30, 100),
            )
            hosted.read_until(b"sized")
            hosted.session.send_stdin(b"hello\n")
            hosted.read_until(b"got hello")
            hosted.session.resize(31, 101)
            hosted.read_until(b"resized")
            hosted.session.send_stdin(b"\x03")  # Ctrl-C
            return hosted.wait(), hosted.written[1]

        async with Driven(rig) as driven:
            if not isinstance(driven.engine, Exec):
                pytest.skip("this engine has no exec")
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            words = driven.engine.session_command(one.uid, terminal=True)
            status, shown = await asyncio.to_thread(use, words)
            assert status == 128 + signal.SIGINT, shown
            assert b"vt100" in shown
            await driven.engine.stop([one.uid], 0)
            await driven.ended(one.uid)

    async def test_dropped_session_leaves_no_process(self, rig: Rig) -> None:
        """The task itself goes on."""
        word = mark()
        one = task(rig, "echo up; sleep 60; exit 3")

        def drop(words: Sequence[str], terminal: bool) -> None:
            hosted = HostedSession(words)
            script = f"export MARK={word}; trap '' HUP TERM\n{_DEAF_CHILD}{_DAEMON}"
            script += "echo main; while :; do sleep 0.05; done"
            hosted.session.start(["bash", "-c", script], ("xterm", 24, 80) if terminal else None)
            for sign in (b"main", b"deaf", b"daemon up"):
                hosted.read_until(sign)
            assert rig.leftovers(word)
            hosted.close()

        async with Driven(rig) as driven:
            if not isinstance(driven.engine, Exec):
                pytest.skip("this engine has no exec")
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            for terminal in (False, True):
                words = driven.engine.session_command(one.uid, terminal=terminal)
                await asyncio.to_thread(drop, words, terminal)
                await nothing_left(rig, word)
            assert (await driven.look(one.uid)).phase is Phase.RUNNING
            await driven.engine.stop([one.uid], 0)
            await driven.ended(one.uid)

    async def test_session_passes_signals_on(self, rig: Rig) -> None:
        one = task(rig, "echo up; sleep 60")

        def interrupt(words: Sequence[str]) -> int:
            hosted = HostedSession(words)
            script = "trap 'echo got; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
            hosted.session.start(["sh", "-c", script])
            hosted.read_until(b"ready")
            hosted.session.send_signal("TERM")
            hosted.read_until(b"got")
            return hosted.wait()

        async with Driven(rig) as driven:
            if not isinstance(driven.engine, Exec):
                pytest.skip("this engine has no exec")
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            assert await asyncio.to_thread(interrupt, driven.engine.session_command(one.uid)) == 9
            await driven.engine.stop([one.uid], 0)
            await driven.ended(one.uid)

    async def test_memory_of_a_session_counts_against_the_task(self, rig: Rig) -> None:
        if why := rig.without_limits():
            pytest.skip(why)
        one = task(rig, "echo up; sleep 60", memory_mb=64)
        async with Driven(rig, enforce_limits=True) as driven:
            if not isinstance(driven.engine, Exec):
                pytest.skip("this engine has no exec")
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            words = driven.engine.session_command(one.uid)
            takes = "x=$(head -c {0}000000 /dev/zero | tr '\\0' x); echo ${{#x}}"
            greedy = ["sh", "-c", takes.format(200)]
            status, out, _ = await asyncio.to_thread(run_in_session, words, greedy)
            assert status and out != b"200000000\n", (status, out)
            # The task may be killed in its place: they share one limit.
            if (await driven.look(one.uid)).phase is Phase.RUNNING:
                modest = ["sh", "-c", takes.format(2)]
                status, out, _ = await asyncio.to_thread(run_in_session, words, modest)
                assert (status, out) == (0, b"2000000\n")
            await driven.engine.stop([one.uid], 0)
            await driven.until(one.uid, Phase.ENDED, Phase.LOST)

    # -- forward -------------------------------------------------------------------------------

    async def test_forward_reaches_ports_where_the_task_runs(self, rig: Rig) -> None:
        """Many connections at once; each direction ends alone; the other end of nothing is told."""
        one = task(rig, "echo up; sleep 60")
        server = EchoServer()
        data = bytes(range(256)) * 4000

        def use(connection: socket.socket) -> bytes:
            sender = threading.Thread(target=lambda: (connection.sendall(data), connection.shutdown(1)))
            sender.start()
            with connection:
                got = receive_all(connection)
                sender.join()
            return got

        def forward(words: Sequence[str]) -> None:
            hosted = HostedForwarder(words)
            assert hosted.open(free_port()) == "refused"
            # One that is not read must not hold up the others.
            stuck = hosted.open(server.port)
            assert isinstance(stuck, socket.socket)
            stuck.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    stuck.send(bytes(1 << 16))
            opened = [hosted.open(server.port) for _ in range(20)]
            with ThreadPoolExecutor(20) as pool:
                assert set(pool.map(use, opened)) == {data + b"bye"}
            stuck.close()
            while len(hosted.ended) < 21:
                hosted.receive()
            # Connections outlive the server.
            last = hosted.open(server.port)
            closing = threading.Thread(target=hosted.close)
            closing.start()
            assert use(last) == data + b"bye"
            closing.join()

        async with Driven(rig) as driven:
            if not isinstance(driven.engine, Forward):
                pytest.skip("this engine does not forward ports")
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            await asyncio.to_thread(forward, driven.engine.forward_command(one.uid))
            assert (await driven.look(one.uid)).phase is Phase.RUNNING
            await driven.engine.stop([one.uid], 0)
            await driven.ended(one.uid)
        server.close()

    async def test_forward_ends_with_the_task(self, rig: Rig) -> None:
        one = task(rig, "echo up; sleep 60")
        server = EchoServer()
        async with Driven(rig) as driven:
            if not isinstance(driven.engine, Forward):
                pytest.skip("this engine does not forward ports")
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            hosted = HostedForwarder(driven.engine.forward_command(one.uid))
            connection = await asyncio.to_thread(hosted.open, server.port)
            assert isinstance(connection, socket.socket)
            connection.sendall(b"x")
            assert await asyncio.to_thread(connection.recv, 1) == b"x"
            await driven.engine.stop([one.uid], 0)
            await driven.ended(one.uid)
            assert await asyncio.to_thread(connection.recv, 1) == b""
            await asyncio.to_thread(hosted.wait_for_end)
            with pytest.raises(PaiError):
                driven.engine.forward_command(one.uid)
        server.close()

    # -- images --------------------------------------------------------------------------------

    async def test_task_runs_without_python_and_bash(self, rig: Rig) -> None:
        one = rig.bare(task(rig, "type bash python3; echo $0; false; echo not reached", time_limit_s=60))
        if one is None:
            pytest.skip("this engine knows no images")
        async with Driven(rig) as driven:
            (seen,) = await driven.run(one)
            assert seen.exit_code not in (None, 0) and not seen.start_error
            assert b"not reached" not in driven.log(one.uid)
            stopped = rig.bare(
                task(rig, "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done")
            )
            assert stopped is not None
            await driven.launch(stopped)
            await driven.wait_for_output(stopped.uid, b"up")
            await driven.engine.stop([stopped.uid], 20)
            assert (await driven.ended(stopped.uid)).exit_code == 7
            assert driven.log(stopped.uid, "stdout") == b"up\nbye\n"

    # -- the tree ------------------------------------------------------------------------------

    async def test_daemonized_grandchild_is_killed_with_its_task(self, rig: Rig) -> None:
        word = mark()
        one = task(rig, _DAEMON + "sleep 0.1; exit 11", environment={"MARK": word})
        async with Driven(rig) as driven:
            (seen,) = await driven.run(one)
            assert (seen.exit_code, seen.signal, seen.stopped) == (11, None, False)
            assert rig.leftovers(word) == []

    async def test_killed_supervisor_means_lost_and_no_process_left(self, rig: Rig) -> None:
        word = mark()
        one = task(rig, _DEAF_CHILD + _DAEMON + "trap '' TERM; echo up; wait", environment={"MARK": word})
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

    # -- adoption ------------------------------------------------------------------------------

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
            await driven.engine.stop([stoppable.uid], 10)
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
