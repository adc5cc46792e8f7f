"""Rate limits: requests per address or user, and failed logins."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.types import Message, Receive

from paicluster.api.middleware.audit import set_subject
from paicluster.api.wire.request_body import mapping_of, read_body
from paicluster.auth.users import WrongPassword
from paiprotocol.errors import PaiError, TooManyRequests

T = TypeVar("T")

MESSAGE = "Too many requests, please try again later."
# Bounds the memory for counters: beyond this, addresses are not distinguished any more.
_MAX_KEYS = 100_000


class RateWindow:
    """At most ``limit`` uses per key and period. All keys share one window, which keeps counting cheap."""

    __slots__ = ("_counts", "_ends", "limit", "period_s")

    def __init__(self, limit: int, period_s: float) -> None:
        self.limit = limit
        self.period_s = period_s
        self._counts: dict[str, int] = {}
        self._ends = time.monotonic() + period_s

    def take(self, key: str) -> None:
        """Count one use of this key; TooManyRequests above the limit."""
        now = self._renew()
        count = self._counts.get(key, 0) + 1
        if count > self.limit:
            raise TooManyRequests(MESSAGE, retry_after_s=self._ends - now, limit=self.limit)
        self._counts[key] = count

    def add(self, key: str, amount: int) -> None:
        """Count what this key has used already, even above the limit."""
        self._renew()
        self._counts[key] = self._counts.get(key, 0) + amount

    def _renew(self) -> float:
        """Begin a new window if the last one has ended; returns the time."""
        now = time.monotonic()
        if now >= self._ends or len(self._counts) > _MAX_KEYS:
            self._counts.clear()
            self._ends = now + self.period_s
        return now

    def retry_after_s(self, key: str) -> float:
        """Seconds until this key may be used again; 0 when it may be used now."""
        remaining = self._ends - time.monotonic()
        return remaining if remaining > 0 and self._counts.get(key, 0) >= self.limit else 0.0


class RateLimits(msgspec.Struct, frozen=True):
    """OpenPAI's three rate limits; None means unlimited."""

    # All requests, per token; those without a valid one per address.
    requests: RateWindow | None = None
    # Job listings and submissions, per user.
    lists: RateWindow | None = None
    submissions: RateWindow | None = None


class LoginThrottle:
    """Limits failed logins per minute by address, and by account and address together.

    By account alone, any client could keep its user out.

    Checking a password is slow on purpose, so only ``max_concurrent`` are checked at a time: a client that
    tries many passwords does not slow down other requests.
    """

    def __init__(
        self, per_account: int | None = None, per_address: int | None = None, max_concurrent: int = 2
    ) -> None:
        self._accounts = rate_window(per_account, 60)
        self._addresses = rate_window(per_address, 60)
        self._checking = asyncio.Semaphore(max_concurrent)

    def wrap(self, login: Callable[[Request], Awaitable[T]]) -> Callable[[Request], Awaitable[T]]:
        """Login route that counts failures."""

        async def route(request: Request) -> T:
            body = await read_body(request)
            account = mapping_of(request, body).get("username")
            if isinstance(account, str):
                set_subject(request, account)
            async with self.attempt(request, account if isinstance(account, str) else None):
                return await login(Request(request.scope, replay_body(request.receive, body)))

        return route

    @contextlib.asynccontextmanager
    async def attempt(self, request: Request, account: str | None) -> AsyncIterator[None]:
        """Context of a password check: a wrong password counts; after too many none is checked."""
        address = request.client.host if request.client is not None else ""
        counters = [(self._addresses, address)]
        if account is not None:
            counters.append((self._accounts, f"{address} {account}"))
        _check_not_throttled(counters)
        async with self._checking:
            # Passwords checked while this request waited count as well.
            _check_not_throttled(counters)
            try:
                yield
            except PaiError as error:
                if isinstance(error, WrongPassword) or error.code in (
                    "NoUserError",
                    "IncorrectPasswordError",
                ):
                    for failures, key in counters:
                        if failures is not None and not failures.retry_after_s(key):
                            failures.take(key)
                raise


def _check_not_throttled(counters: list[tuple[RateWindow | None, str]]) -> None:
    for failures, key in counters:
        if failures is not None and (wait := failures.retry_after_s(key)):
            raise TooManyRequests(
                "Too many logins failed, please try again later.", retry_after_s=wait, limit=failures.limit
            )


def rate_window(limit: int | None, period_s: float) -> RateWindow | None:
    return None if limit is None else RateWindow(limit, period_s)


def replay_body(receive: Receive, body: bytes) -> Receive:
    """``receive`` for a request whose body was already read."""
    first = True

    async def receive_again() -> Message:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return receive_again
