"""What every engine must do: exec, sessions and forwarded ports."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from paicluster.engines.interface import Exec, Forward, Phase
from paiprotocol.errors import PaiError
from pairuntime.saved_environment import SAVE_COMMAND
from support.engine_contract.stubborn_processes import DAEMON, DEAF_CHILD
from support.engine_rig import Driven, Rig, appears, in_terminal, mark, nothing_left, task
from support.hosted_forwarder import HostedForwarder
from support.ports import free_port
from support.session_client import HostedSession, environment_lines, place, run_in_session
from support.task_service import BANNER, EchoServer, receive_all


class SessionContract:
    # -- exec --------------------------------------------------------------------------------------

    async def test_exec_runs_in_the_folder_and_environment_of_the_task(self, rig: Rig) -> None:
        gang = [
            task(rig, f"echo {n} >number; echo up; sleep 600", shared_environment={"SHARED": "by all"})
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
                    subprocess.run,
                    list(words),
                    input=b"input\n",
                    capture_output=True,
                    timeout=90,
                    check=False,
                )
                assert (ran.returncode, ran.stdout) == (7, b"by all\n%d\ninput\n" % number), ran
                # The transport may add output of its own, before or after.
                assert b"oops\n" in ran.stderr
            await driven.engine.stop([one.uid for one in gang], 0)
            for one in gang:
                await driven.ended(one.uid)
                with pytest.raises(PaiError):
                    driven.engine.exec_command(one.uid, ["true"])

    async def test_exec_as_soon_as_the_task_runs(self, rig: Rig) -> None:
        """A container may still be on its way then."""
        one = task(rig, "sleep 600")
        words: list[str] = []

        def accepts_exec() -> bool:
            assert isinstance(driven.engine, Exec)
            with contextlib.suppress(PaiError):
                words[:] = driven.engine.exec_command(one.uid, ["sh", "-c", "echo inside"])
            return bool(words)

        async with Driven(rig) as driven:
            if not isinstance(driven.engine, Exec):
                pytest.skip("this engine has no exec")
            await driven.launch(one)
            await appears(accepts_exec, "a task that accepts commands")
            ran = await asyncio.to_thread(subprocess.run, words, capture_output=True, timeout=90, check=False)
            assert (ran.returncode, ran.stdout) == (0, b"inside\n"), ran
            await driven.engine.stop([one.uid], 0)
            await driven.ended(one.uid)

    async def test_exec_with_a_terminal(self, rig: Rig) -> None:
        one = task(rig, "echo up; sleep 600")
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

    # -- sessions ----------------------------------------------------------------------------------

    async def test_session_runs_a_command_beside_the_task(self, rig: Rig) -> None:
        """Same folder, account, cgroups, ignored signals and environment as the task, with what its
        preCommands exported; streams apart; its exit status.
        """
        looks = "pwd; id -u; id -g; cat /proc/self/cgroup; "
        # Signals 1 to 28; some higher ones belong to the C library.
        looks += "grep SigIgn /proc/self/status | tail -c 8"
        one = task(
            rig,
            'export ADDED="it\'s\nlater" PATH="$PWD/own:$PATH" NUMBER=2\n'
            f"{SAVE_COMMAND}\n({looks}) >look; env -0 >env; echo up; sleep 600",
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
            assert {"ADDED=it's\nlater", "NUMBER=2"} <= environment_lines(of_session)
            await driven.engine.stop([one.uid], 0)
            await driven.ended(one.uid)
            with pytest.raises(PaiError):
                driven.engine.session_command(one.uid)

    async def test_session_passes_every_byte_both_ways(self, rig: Rig) -> None:
        """And at once: a program may wait for the answer to a part of a line, as SFTP does."""

        def converse(words: Sequence[str]) -> tuple[int, bytes]:
            hosted = HostedSession(words)
            asks = "printf 'part of a line'; read answer; test -t 1 || echo \"$answer\""
            hosted.session.start(["sh", "-c", asks])
            hosted.read_until(b"part of a line")
            hosted.session.send_stdin(b", no terminal\n")
            return hosted.wait(), hosted.written[1]

        one = task(rig, "echo up; sleep 600")
        data = bytes(range(256)) * 20_000
        async with Driven(rig) as driven:
            if not isinstance(driven.engine, Exec):
                pytest.skip("this engine has no exec")
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            words = driven.engine.session_command(one.uid)
            status, out, _ = await asyncio.to_thread(run_in_session, words, ["cat"], data)
            assert status == 0 and out == data
            assert await asyncio.to_thread(converse, words) == (0, b"part of a line, no terminal\n")
            await driven.engine.stop([one.uid], 0)
            await driven.ended(one.uid)

    async def test_session_with_a_terminal(self, rig: Rig) -> None:
        one = task(rig, "echo up; sleep 600")
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
        one = task(rig, "echo up; sleep 600; exit 3")

        def drop(words: Sequence[str], terminal: bool) -> None:
            hosted = HostedSession(words)
            script = f"export MARK={word}; trap '' HUP TERM\n{DEAF_CHILD}{DAEMON}"
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
        one = task(rig, "echo up; sleep 600")

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

    async def test_signal_right_after_the_start_reaches_the_command(self, rig: Rig) -> None:
        """Also while the program that enters the task is still on its way."""
        one = task(rig, "echo up; sleep 600")
        word = mark()

        def end_at_once(words: Sequence[str], terminal: tuple[str, int, int] | None) -> tuple[int, str]:
            hosted = HostedSession(words)
            hosted.session.start(["sh", "-c", f": {word}; sleep 600; :"], terminal)
            hosted.session.send_signal("TERM")
            status = hosted.wait()
            # A client program may add a line of its own; how the command announces itself is not shown.
            assert not re.search(rb"[0-9a-f]{24}", hosted.written[1] + hosted.written[2]), hosted.written
            return status, hosted.session.signal

        async with Driven(rig) as driven:
            if not isinstance(driven.engine, Exec):
                pytest.skip("this engine has no exec")
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
            for terminal in (None, None, None, ("xterm", 24, 80)):
                words = driven.engine.session_command(one.uid, terminal=terminal is not None)
                assert await asyncio.to_thread(end_at_once, words, terminal) == (128 + 15, "TERM")
            await nothing_left(rig, word)
            await driven.engine.stop([one.uid], 0)
            await driven.ended(one.uid)

    async def test_memory_of_a_session_counts_against_the_task(self, rig: Rig) -> None:
        if why := rig.without_limits():
            pytest.skip(why)
        one = task(rig, "echo up; sleep 600", memory_mb=64)
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

    # -- forward -----------------------------------------------------------------------------------

    async def test_forward_reaches_ports_where_the_task_runs(self, rig: Rig) -> None:
        """Many connections at once; each direction ends alone; the other end is notified of nothing."""
        one = task(rig, "echo up; sleep 600")
        server, speaks_first = EchoServer(), EchoServer(BANNER)
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
            for _ in range(50):
                talking = hosted.open(speaks_first.port)
                assert isinstance(talking, socket.socket)
                talking.shutdown(1)
                with talking:
                    assert receive_all(talking) == BANNER + b"bye"
            opened = [hosted.open(server.port) for _ in range(20)]
            with ThreadPoolExecutor(20) as pool:
                assert set(pool.map(use, opened)) == {data + b"bye"}
            stuck.close()
            while len(hosted.ended) < 71:
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
        speaks_first.close()

    async def test_forward_ends_with_the_task(self, rig: Rig) -> None:
        one = task(rig, "echo up; sleep 600")
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
