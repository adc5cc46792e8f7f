"""Limits of open sessions: each is a process of the server's machine."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import uvloop

from paicluster.api.connections import exec_sessions
from paicluster.auth.tokens import Identity, TokenKind
from paicluster.store.rows import UserGrants
from paiprotocol.errors import TooManyRequests


class ValidTokens:
    """Tokens that are never revoked."""

    async def are_live(self, holders: Sequence[str]) -> bool:
        return True

    @contextlib.contextmanager
    def watch_all(self, holders: Sequence[str], on_change: Callable[[], None]) -> Iterator[None]:
        yield


def user(name: str) -> Identity:
    return Identity(name, False, TokenKind.LOGIN, None, "t", UserGrants(False, (), frozenset(), ()))


def test_ended_session_makes_place_for_the_next() -> None:
    async def check() -> None:
        opened = exec_sessions.ExecSessions(ValidTokens(), max_per_user=2, max_total=3)  # type: ignore[arg-type]
        clients = []
        for name in ("alice", "alice", "bob"):
            ours, theirs = socket.socketpair()
            opened.check_limits(name)
            with theirs:
                await opened.start_host(user(name), ["cat"], theirs, ["t"])
            clients.append(ours)
        with pytest.raises(TooManyRequests, match="User alice has 2 open sessions, which is the limit"):
            opened.check_limits("alice")
        with pytest.raises(TooManyRequests, match="The cluster has 3 open sessions, which is its limit"):
            opened.check_limits("bob")
        clients.pop(0).close()
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(TooManyRequests):
                    opened.check_limits("alice")
                    break
                await asyncio.sleep(0.01)
        for client in clients:
            client.close()
        await asyncio.gather(*opened._watches)

    asyncio.run(check())


@pytest.mark.parametrize(
    ("memory_mb", "limits"),
    [(512, (16, 64)), (4096, (64, 256)), (16_384, (256, 1024)), (1 << 20, (256, 1024))],
)
def test_sessions_take_a_part_of_the_servers_memory(memory_mb: int, limits: tuple[int, int]) -> None:
    assert exec_sessions.session_limits(memory_mb) == limits


def open_pipes() -> set[str]:
    names = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            names.add(str(descriptor.readlink()))
    return {name for name in names if name.startswith("pipe:")}


def test_ended_session_leaves_no_pipe_to_the_garbage_collector() -> None:
    """Loop and pipe would each close it then, the second of them perhaps a connection that has its number."""

    async def check() -> None:
        opened = exec_sessions.ExecSessions(ValidTokens())  # type: ignore[arg-type]
        before = open_pipes()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            await (await opened.start_host(user("alice"), ["true"], theirs, ["t"]))
        await asyncio.sleep(0)
        assert open_pipes() == before

    gc.disable()
    try:
        uvloop.run(check())
    finally:
        gc.enable()
