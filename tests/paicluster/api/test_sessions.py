"""Limits of open sessions: each is a process of the server's machine."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence

import pytest

from openpaisdk.errors import TooManyRequests
from paicluster.api import sessions
from paicluster.auth.tokens import Identity, TokenKind
from paicluster.store.rows import UserGrants


class ValidTokens:
    """Tokens that are never revoked."""

    async def are_live(self, holders: Sequence[str]) -> bool:
        return True

    @contextlib.contextmanager
    def watch_all(self, holders: Sequence[str], on_change: Callable[[], None]) -> Iterator[None]:
        yield


def user(name: str) -> Identity:
    return Identity(name, False, TokenKind.SESSION, None, "t", UserGrants(False, (), frozenset(), ()))


def test_ended_session_makes_place_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS_PER_USER", 2)
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)

    async def check() -> None:
        opened = sessions.Sessions(ValidTokens())  # type: ignore[arg-type]
        clients = []
        for name in ("alice", "alice", "bob"):
            ours, theirs = socket.socketpair()
            opened.check_limits(name)
            with theirs:
                await opened.start_host(user(name), ["cat"], theirs)
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
