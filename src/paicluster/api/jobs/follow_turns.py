"""Turns of followers: one change may wake hundreds of them, and other requests must not wait for all."""

from __future__ import annotations

import asyncio
from collections import deque

PER_ITERATION = 8
"""Reads in one iteration of the event loop: some milliseconds. Other requests are served in between."""


class FollowTurns:
    """Limits how many followers read the database in one iteration of the event loop."""

    def __init__(self) -> None:
        self._left = PER_ITERATION
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def take(self) -> None:
        """Wait for the next turn; without a crowd there is nothing to wait for."""
        if self._left and not self._waiting:
            self._left -= 1
            self._schedule()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._schedule()
        await turn

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._is_scheduled = False
        self._left = PER_ITERATION
        while self._left and self._waiting:
            turn = self._waiting.popleft()
            # A follower that has disconnected was cancelled.
            if not turn.done():
                turn.set_result(None)
                self._left -= 1
        if self._waiting:
            self._schedule()
