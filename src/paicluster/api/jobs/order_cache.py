"""Cache of orders of jobs that take long to read: clients poll the same lists."""

from __future__ import annotations

import time
from array import array
from threading import Lock

from paicluster.store.job_query import JobQuery
from paiprotocol.errors import InvalidParameters

# Part of the time that reading an order again and again may take: it is used for so much longer than it took.
_MAX_SHARE = 0.1
_MAX_ORDERS = 64


class OrderCache:
    """Ids of the jobs of a query in its order, or why they were not read."""

    def __init__(self) -> None:
        self._orders: dict[JobQuery, tuple[float, array[int] | InvalidParameters]] = {}
        self._lock = Lock()

    def get(self, query: JobQuery) -> array[int] | InvalidParameters | None:
        with self._lock:
            expires_s, found = self._orders.get(query, (0.0, None))
        return found if time.monotonic() < expires_s else None

    def put(self, query: JobQuery, found: array[int] | InvalidParameters, took_s: float) -> None:
        now_s = time.monotonic()
        with self._lock:
            self._orders.pop(query, None)
            while len(self._orders) >= _MAX_ORDERS:
                del self._orders[next(iter(self._orders))]
            self._orders[query] = now_s + took_s / _MAX_SHARE, found
