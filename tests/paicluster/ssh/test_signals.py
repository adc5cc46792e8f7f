"""Signals by SSH: sent by the client, and as the end of a command (RFC 4254, section 6.9 and 6.10)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import asyncssh
import pytest

from support.server_fixture import DEADLINE_S
from support.ssh_client import SshClient

# Exit status of OpenSSH's client for a command that a signal ended, as with sshd.
ENDED_BY_SIGNAL = 255


def by_asyncssh(
    client: SshClient, use: Callable[[asyncssh.SSHClientConnection], Awaitable[object]]
) -> object:
    """What is done with a connection of another SSH implementation."""

    async def connected() -> object:
        async with (
            asyncio.timeout(DEADLINE_S),
            asyncssh.connect("task", config=[str(client.folder / "config")]) as connection,
        ):
            return await use(connection)

    return asyncio.run(connected())


async def end_of(connection: asyncssh.SSHClientConnection, line: str, *signals: str) -> object:
    """How a command ends to which signals are sent at once: the signal, or else its exit status."""
    process = await connection.create_process(line, stdin=asyncssh.DEVNULL)
    for signal in signals:
        process.send_signal(signal)
    done = await process.wait()
    return done.exit_signal[0] if done.exit_signal else done.exit_status


@pytest.mark.parametrize("signal", ["TERM", "INT", "KILL", "HUP", "ABRT", "USR1"])
def test_signal_right_after_exec_ends_the_command(client: SshClient, signal: str) -> None:
    async def use(connection: asyncssh.SSHClientConnection) -> Counter[object]:
        return Counter([await end_of(connection, "sleep 600", signal) for _ in range(8)])

    assert by_asyncssh(client, use) == {signal: 8}


def test_command_handles_a_signal(client: SshClient) -> None:
    async def use(connection: asyncssh.SSHClientConnection) -> tuple[str, object]:
        line = "trap 'echo got; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
        process = await connection.create_process(line)
        assert await process.stdout.readline() == "ready\n"
        process.terminate()
        done = await process.wait()
        return str(done.stdout), done.exit_status

    assert by_asyncssh(client, use) == ("got\n", 9)


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("kill -TERM $$", "TERM"),
        ("kill -SEGV $$", "SEGV"),
        ("kill -BUS $$", "SIG@openssh.com"),
        ("exit 143", 143),
        ("sh -c 'kill -TERM $$'; exit $?", 143),
    ],
)
def test_end_by_a_signal_is_no_exit_status(client: SshClient, line: str, end: object) -> None:
    assert by_asyncssh(client, lambda connection: end_of(connection, line)) == end
    done = client.ssh(line)
    assert done.returncode == (end if isinstance(end, int) else ENDED_BY_SIGNAL), done
