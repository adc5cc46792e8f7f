"""How much one may ask for: rates, and logins that fail."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive

from openpaisdk.errors import PaiError, TooManyRequests
from paicluster.api.middleware.audit import set_subject
from paicluster.api.responses import mapping_of, read_body
from paicluster.auth.users import WrongPassword

Handler = Callable[[Request], Awaitable[Response]]

MESSAGE = "Too many requests, please try again later."
# Whoever comes from that many addresses in a minute is not told apart by them.
_MOST_KEYS = 100_000


class RateWindow:
    """So many in a span of time for each key. All start over together, which keeps counting cheap."""

    __slots__ = ("_counts", "_ends", "most", "seconds")

    def __init__(self, most: int, seconds: float) -> None:
        self.most = most
        self.seconds = seconds
        self._counts: dict[str, int] = {}
        self._ends = time.monotonic() + seconds

    def take(self, key: str) -> None:
        """One more of this key, or TooManyRequests."""
        now = time.monotonic()
        if now >= self._ends or len(self._counts) > _MOST_KEYS:
            self._counts.clear()
            self._ends = now + self.seconds
        count = self._counts.get(key, 0) + 1
        if count > self.most:
            raise TooManyRequests(MESSAGE, retry_after_s=self._ends - now, limit=self.most)
        self._counts[key] = count

    def full(self, key: str) -> float:
        """Seconds until this key may have one more; 0 when it may now."""
        rest = self._ends - time.monotonic()
        return rest if rest > 0 and self._counts.get(key, 0) >= self.most else 0.0


@dataclass(frozen=True, slots=True)
class Rates:
    """The three rates of the original; None sets no limit."""

    # Of all requests, for each address.
    requests: RateWindow | None = None
    # Of lists of jobs, and of submissions, for each user.
    lists: RateWindow | None = None
    submissions: RateWindow | None = None


class LoginThrottle:
    """Logins that failed, by account and by address: after so many in a minute the next must wait.

    Checking a password is slow on purpose, so only ``at_once`` are checked at a time: whoever tries many
    takes nothing from those who read logs meanwhile.
    """

    def __init__(
        self, of_account: int | None = None, of_address: int | None = None, at_once: int = 2
    ) -> None:
        self._accounts = window(of_account, 60)
        self._addresses = window(of_address, 60)
        self._checking = asyncio.Semaphore(at_once)

    def guarded(self, login: Handler) -> Handler:
        """A login route that keeps count of what goes wrong."""

        async def route(request: Request) -> Response:
            body = await read_body(request, 1 << 20)
            account = mapping_of(request, body).get("username")
            if isinstance(account, str):
                set_subject(request, account)
            async with self.attempt(request, account if isinstance(account, str) else None):
                return await login(Request(request.scope, replayed(request.receive, body)))

        return route

    @contextlib.asynccontextmanager
    async def attempt(self, request: Request, account: str | None) -> AsyncIterator[None]:
        """Around the check of a password: a wrong one counts, and after too many none is checked."""
        counted = [(self._addresses, request.client.host if request.client is not None else "")]
        if account is not None:
            counted.append((self._accounts, account))
        _refuse_if_full(counted)
        async with self._checking:
            # Those that were checked while this one waited its turn count as well.
            _refuse_if_full(counted)
            try:
                yield
            except PaiError as error:
                if isinstance(error, WrongPassword) or error.code in (
                    "NoUserError",
                    "IncorrectPasswordError",
                ):
                    for failures, key in counted:
                        if failures is not None and not failures.full(key):
                            failures.take(key)
                raise


def _refuse_if_full(counted: list[tuple[RateWindow | None, str]]) -> None:
    for failures, key in counted:
        if failures is not None and (wait := failures.full(key)):
            raise TooManyRequests(
                "Too many logins failed, please try again later.", retry_after_s=wait, limit=failures.most
            )


def window(most: int | None, seconds: float) -> RateWindow | None:
    return None if most is None else RateWindow(most, seconds)


def replayed(receive: Receive, body: bytes) -> Receive:
    """``receive`` of a request whose body was read already."""
    first = True

    async def again() -> Message:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again
