"""Rights of a download: its token, and what its user may read. When they end, the download is broken off."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from starlette.requests import Request
from starlette.types import Receive

from paicluster.api.context import context
from paicluster.api.routing.scope import IDENTITY_KEY
from paicluster.api.wire.responses import abort_response
from paicluster.auth.tokens import Identity, TokenKind, Tokens
from paicluster.store.rows import UserGrants
from paiprotocol.errors import Unauthorized


class TransferRights:
    """Those of the caller of a request, as they were when it began."""

    def __init__(self, tokens: Tokens, identity: Identity | None) -> None:
        self._tokens = tokens
        self._identity = identity
        self._holders = () if identity is None else identity.holders_of_transfers()

    @classmethod
    def of(cls, request: Request) -> TransferRights:
        return cls(context(request).identity.tokens, request.scope.get(IDENTITY_KEY))

    @classmethod
    def of_user(cls, request: Request, username: str, grants: UserGrants) -> TransferRights:
        """Those of a user whose link another client opens."""
        owner = Identity(username, grants.admin, TokenKind.LOGIN, None, "", grants)
        return cls(context(request).identity.tokens, owner)

    async def while_kept(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The pieces of a response, until the rights end."""
        changed = False

        def on_change() -> None:
            nonlocal changed
            changed = True

        with self._tokens.watch_all(self._holders, on_change):
            async for piece in pieces:
                if changed:
                    changed = False
                    if not await self._are_kept():
                        # The client takes no part of a file for the whole.
                        raise Unauthorized("The rights with which this transfer began have ended.")
                yield piece

    @contextlib.contextmanager
    def cutting(self, receive: Receive) -> Iterator[None]:
        """Abort the connection of a request when the rights end within the block, also in the middle of a
        piece that the client does not read."""
        checks: set[asyncio.Task[None]] = set()

        async def check() -> None:
            if not await self._are_kept():
                abort_response(receive)

        def on_change() -> None:
            task = asyncio.get_running_loop().create_task(check())
            checks.add(task)
            task.add_done_callback(checks.discard)

        try:
            with self._tokens.watch_all(self._holders, on_change):
                yield
        finally:
            for task in tuple(checks):
                task.cancel()

    async def _are_kept(self) -> bool:
        if self._identity is None or not await self._tokens.are_live(self._holders):
            return False
        return await self._tokens.has_same_rights(self._identity)
