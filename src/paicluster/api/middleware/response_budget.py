"""Memory budget of responses that clients have not read: all of them, and those of one user.

A client that reads nothing leaves its response in the server's memory. Large responses are therefore sent in
pieces, as the client reads them, and a response is rendered only when its user has space for it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paiprotocol.errors import Unavailable

MAX_BYTES_PER_USER = 16 << 20
MAX_BYTES = 64 << 20
PIECE_BYTES = 64 << 10
"""Responses up to this size are not counted: the number of connections bounds them."""
MAX_WAITING = 64
"""Requests of a user that wait for space."""
_WAIT_S = 10.0
_RETRY_AFTER_S = 2.0
_WANTED_S = 30.0
"""Space that a request had no place in counts as wanted for this long: its client may try again."""

HELD_KEY = "paicluster.response-bytes"
"""Key of a request's scope: what it holds of the budget."""


class _Share:
    """Bytes of the budget: of one response before it is rendered, or of a body and all its responses."""

    __slots__ = ("body", "owner", "size", "uses")

    def __init__(self, owner: str, size: int, body: bytes | None) -> None:
        self.owner = owner
        self.size = size
        # Keeps the identity of the body its own.
        self.body = body
        self.uses = 1


class _Waiter:
    __slots__ = ("granted", "owner", "scope", "size")

    def __init__(self, scope: MutableMapping[str, Any], owner: str, size: int) -> None:
        self.scope = scope
        self.owner = owner
        self.size = size
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class ResponseBudget:
    """Bytes of responses in memory. Used on the event loop's thread only.

    A response that is larger than the budget is admitted when it is the only one of its user.
    """

    def __init__(
        self,
        per_owner_bytes: int = MAX_BYTES_PER_USER,
        total_bytes: int = MAX_BYTES,
        *,
        wait_s: float = _WAIT_S,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._per_owner_bytes = per_owner_bytes
        self._total_bytes = total_bytes
        self._wait_s = wait_s
        self._max_waiting = max_waiting
        self._in_use = 0
        self._of_owner: dict[str, int] = {}
        # Bodies by their identity: that of a cache, or of a file of the portal, is in memory once.
        self._bodies: dict[int, _Share] = {}
        self._waiters: list[_Waiter] = []
        self._waiting_of: dict[str, int] = {}
        # When requests last found no space: of users among their own responses, and among those of all.
        self._wanted_of: dict[str, float] = {}
        self._wanted = -math.inf

    def is_wanted(self, scope: Mapping[str, Any], now: float) -> bool:
        """Whether others wait for what a request holds, or did a moment ago. ``now``: monotonic time."""
        share: _Share | None = scope.get(HELD_KEY)
        if share is None:
            return False
        return now - max(self._wanted, self._wanted_of.get(share.owner, -math.inf)) < _WANTED_S

    @property
    def in_use(self) -> int:
        return self._in_use

    async def admit(self, scope: MutableMapping[str, Any], owner: str, size: int) -> None:
        """Take this many bytes, about those of a response that is rendered next, for the rest of a request.

        Waits while others of the user, or of all users, have not been read; then raises Unavailable.
        """
        waiting = self._waiting_of.get(owner, 0)
        if not waiting and self._fits(owner, size):
            self._take(scope, owner, size)
            return
        self._want(owner, size)
        if waiting >= self._max_waiting:
            raise self._refusal(owner, size)
        waiter = _Waiter(scope, owner, size)
        self._waiters.append(waiter)
        self._waiting_of[owner] = waiting + 1
        try:
            await asyncio.wait([waiter.granted], timeout=self._wait_s)
            if not waiter.granted.done():
                self._want(owner, size)
                raise self._refusal(owner, size)
        finally:
            if not waiter.granted.done():
                waiter.granted.cancel()
                self._forget(waiter)

    def hold(self, scope: MutableMapping[str, Any], owner: str, body: bytes) -> None:
        """Count a rendered body instead of what was admitted; Unavailable if there is no space for it."""
        held = scope.pop(HELD_KEY, None)
        if held is not None:
            self._give_back(held)
        share = self._bodies.get(id(body))
        if share is not None:
            share.uses += 1
        else:
            if held is None and not self._fits(owner, len(body)):
                self._want(owner, len(body))
                raise self._refusal(owner, len(body))
            share = self._bodies[id(body)] = self._add(owner, len(body), body)
        scope[HELD_KEY] = share
        if held is not None:
            self._wake()

    def release(self, scope: MutableMapping[str, Any]) -> None:
        """Return what a request holds. Call it when its response was sent."""
        self._give_back(scope.pop(HELD_KEY))
        self._wake()

    def _fits(self, owner: str, size: int) -> bool:
        if self._exceeds_own(owner, size):
            return False
        return not self._in_use or self._in_use + size <= self._total_bytes

    def _want(self, owner: str, size: int) -> None:
        now = time.monotonic()
        if self._exceeds_own(owner, size):
            self._wanted_of[owner] = now
        else:
            self._wanted = now

    def _exceeds_own(self, owner: str, size: int) -> bool:
        of_owner = self._of_owner.get(owner, 0)
        return of_owner > 0 and of_owner + size > self._per_owner_bytes

    def _take(self, scope: MutableMapping[str, Any], owner: str, size: int) -> None:
        scope[HELD_KEY] = self._add(owner, size, None)

    def _add(self, owner: str, size: int, body: bytes | None) -> _Share:
        self._in_use += size
        self._of_owner[owner] = self._of_owner.get(owner, 0) + size
        return _Share(owner, size, body)

    def _give_back(self, share: _Share) -> None:
        share.uses -= 1
        if share.uses:
            return
        if share.body is not None:
            del self._bodies[id(share.body)]
        self._in_use -= share.size
        reserved = self._of_owner[share.owner] - share.size
        if reserved:
            self._of_owner[share.owner] = reserved
        else:
            del self._of_owner[share.owner]
            self._wanted_of.pop(share.owner, None)

    def _wake(self) -> None:
        """Grant what fits, in the order of arrival; a user who has no space does not delay the others."""
        for waiter in tuple(self._waiters):
            if not waiter.granted.done() and self._fits(waiter.owner, waiter.size):
                self._take(waiter.scope, waiter.owner, waiter.size)
                waiter.granted.set_result(None)
                self._forget(waiter)

    def _forget(self, waiter: _Waiter) -> None:
        self._waiters.remove(waiter)
        waiting = self._waiting_of[waiter.owner] - 1
        if waiting:
            self._waiting_of[waiter.owner] = waiting
        else:
            del self._waiting_of[waiter.owner]

    def _refusal(self, owner: str, size: int) -> Unavailable:
        of_whom = "this user" if self._exceeds_own(owner, size) else "all users"
        return Unavailable(
            f"Too many large responses to {of_whom} have not been read yet.",
            hint="Try again in a moment, with fewer requests at a time, or ask for smaller pages.",
            retry_after_s=_RETRY_AFTER_S,
        )


def sent_in_pieces(response: Response) -> Response:
    """The same response; each piece of its body is given to the connection when it has space."""
    return _PiecewiseResponse(response)


class _PiecewiseResponse(Response):
    def __init__(self, whole: Response) -> None:
        self.status_code = whole.status_code
        self.raw_headers = whole.raw_headers
        self.body = whole.body
        self.background = whole.background

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = self.body
        for start in range(0, len(body), PIECE_BYTES):
            # A copy: a view in the connection's buffer would keep the whole body.
            piece = bytes(body[start : start + PIECE_BYTES])
            more = start + PIECE_BYTES < len(body)
            await send({"type": "http.response.body", "body": piece, "more_body": more})
        if self.background is not None:
            await self.background()
