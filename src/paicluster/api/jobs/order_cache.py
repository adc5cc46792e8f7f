"""Cache of orders of jobs that take long to read: clients poll the same lists."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from paicluster.store.job_query import JobQuery
from paiprotocol.errors import InvalidParameters, TooManyRequests

MAX_WAITING = 20
"""Requests that wait until it is their turn to read an order."""
# Part of the time that reading an order again and again may take: it is used for so much longer than it took.
_MAX_SHARE = 0.1
_MAX_ORDERS = 64


class Order(NamedTuple):
    """Ids of the jobs of a query in its order, or why they were not read; ``took_s``: the time of reading."""

    ids: array[int]
    took_s: float
    problem: str = ""
    hint: str = ""


class OrderCache:
    """Orders that were read. One is read at a time: it takes the processor, and a thread that reads."""

    def __init__(self) -> None:
        self._orders: dict[JobQuery, tuple[float, Order]] = {}
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def ids_of(
        self, query: JobQuery, read: Callable[[], Awaitable[Order]], *, max_waiting: int = MAX_WAITING
    ) -> array[int]:
        """The ids of a query; read if they are not kept. Raises InvalidParameters with its problem."""
        found = self._kept(query) or await self._read(query, read, max_waiting)
        if found.problem:
            raise InvalidParameters(found.problem, hint=found.hint)
        return found.ids

    async def _read(self, query: JobQuery, read: Callable[[], Awaitable[Order]], max_waiting: int) -> Order:
        if self._waiting >= max_waiting:
            raise TooManyRequests(
                f"{max_waiting} lists of jobs wait to be sorted by a parameter or a metric.",
                hint="Try again in a minute, or filter the jobs.",
            )
        self._waiting += 1
        try:
            async with self._turn:
                found = self._kept(query)  # by the request before
                if found is None:
                    found = await read()
                    self._keep(query, found)
        finally:
            self._waiting -= 1
        return found

    def _kept(self, query: JobQuery) -> Order | None:
        expires_s, found = self._orders.get(query, (0.0, None))
        return found if time.monotonic() < expires_s else None

    def _keep(self, query: JobQuery, found: Order) -> None:
        self._orders.pop(query, None)
        while len(self._orders) >= _MAX_ORDERS:
            del self._orders[next(iter(self._orders))]
        self._orders[query] = time.monotonic() + found.took_s / _MAX_SHARE, found
