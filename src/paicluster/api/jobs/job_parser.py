"""Job parser: small texts are parsed at once, others in worker processes; time is counted for each user.

Parsing a large or invalid job can take seconds, in which the event loop would answer no other request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import sys
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from paicluster.api.jobs import job_parse_worker
from paicluster.api.jobs.job_parse_worker import LENGTH, MAX_CPU_S, ParsedJob, ParsedV1Job, Response
from paicluster.api.middleware.rate_limits import RateWindow
from paiprotocol.errors import InvalidParameters, PaiError, TooManyRequests, Unavailable

log = logging.getLogger("paicluster.api")

INLINE_CHARS = 8 << 10
"""Longest text that is parsed at once. Most jobs are shorter, and parsed in less than a millisecond."""
_SLOW_S = 0.005
# Of each user's texts that are slow or invalid, so many milliseconds a minute are spent on the event loop.
# Beyond that all texts of the user are parsed in a worker: others then do not notice them.
_INLINE_ALLOWANCE_MS = 100
_PERIOD_S = 60.0
MAX_WORKERS = 2
"""Worker processes at a time; one user occupies one of them at most."""
WORKER_IDLE_S = 60.0
"""Time after which an unused worker ends: it takes some 20 MB of memory."""
# Wall-clock time of one text. The worker's processor time is limited, but the machine may be overloaded.
_MAX_WAIT_S = 60.0


class JobParser:
    """Parses submitted jobs. ``budget_s``: processor seconds for the slow texts of a user per minute."""

    def __init__(self, budget_s: int | None = None, *, worker_idle_s: float = WORKER_IDLE_S) -> None:
        self._budget_s = budget_s
        self._budget = None if budget_s is None else RateWindow(budget_s * 1000, _PERIOD_S)
        self._inline = RateWindow(_INLINE_ALLOWANCE_MS, _PERIOD_S)
        self._slots = asyncio.Semaphore(MAX_WORKERS)
        self._idle: deque[_Worker] = deque()
        self._turns: dict[str, _Turn] = {}
        self._worker_idle_s = worker_idle_s
        self._closed = False

    async def parse_v2(self, user: str, text: str) -> ParsedJob:
        job: ParsedJob = await self._run(user, "parse_v2", text)
        return job

    async def parse_v1(self, user: str, text: str, default_fs_uri: str) -> ParsedV1Job:
        job: ParsedV1Job = await self._run(user, "parse_v1", text, user, default_fs_uri)
        return job

    async def convert(self, user: str, function: str, text: str) -> str:
        """The result of a function of the worker that takes a text and returns one."""
        converted: str = await self._run(user, function, text)
        return converted

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            await self._idle.pop().end()

    async def _run(self, user: str, function: str, text: str, *more: str) -> Any:
        self._check_budget(user)
        if len(text) <= INLINE_CHARS and not self._inline.retry_after_s(user):
            response = job_parse_worker.respond(function, (text, *more))
            if response.error is not None or response.cpu_s > _SLOW_S:
                self._inline.add(user, 1 + int(response.cpu_s * 1000))
        else:
            async with self._turn(user), self._slots:
                self._check_budget(user)
                response = await self._run_in_worker(user, function, (text, *more))
        if response.error is not None:
            raise response.error
        return response.result

    def _check_budget(self, user: str) -> None:
        if self._budget is not None and (wait_s := self._budget.retry_after_s(user)):
            raise TooManyRequests(
                f"Large or invalid jobs of user {user} took more than {self._budget_s} s of processor time "
                "in a minute.",
                retry_after_s=wait_s,
                limit=self._budget.limit,
                hint="Check job files with `pai check-job` before you submit them, and put large values "
                "into files.",
            )

    @contextlib.asynccontextmanager
    async def _turn(self, user: str) -> AsyncIterator[None]:
        """One text of a user at a time is parsed in a worker."""
        turn = self._turns.setdefault(user, _Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                self._turns.pop(user, None)

    async def _run_in_worker(self, user: str, function: str, arguments: tuple[str, ...]) -> Response:
        worker = self._take_idle() or _Worker()
        cpu_s = float(MAX_CPU_S)
        try:
            async with asyncio.timeout(_MAX_WAIT_S):
                response = await worker.respond(function, arguments)
            cpu_s = response.cpu_s
        except (OSError, EOFError, TimeoutError) as error:
            log.warning("A job of user %s ended the process that parsed it: %s", user, worker.describe(error))
            return Response(None, _too_expensive(), cpu_s)
        finally:
            if self._budget is not None:
                self._budget.add(user, 1 + int(cpu_s * 1000))
            if worker.is_usable and not self._closed:
                worker.end_after(self._worker_idle_s)
                self._idle.append(worker)
            else:
                await worker.end()
        return response

    def _take_idle(self) -> _Worker | None:
        while self._idle:
            # The last one used: the others become idle for long enough to end.
            worker = self._idle.pop()
            if worker.reuse():
                return worker
        return None


class _Turn:
    __slots__ = ("lock", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


class _Worker:
    """A worker process, started at its first text."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        self.is_usable = False

    async def respond(self, function: str, arguments: tuple[str, ...]) -> Response:
        # Until the response is complete, the worker is in the middle of something.
        self.is_usable = False
        process = self._process or await self._start()
        assert process.stdin is not None and process.stdout is not None
        body = pickle.dumps((function, arguments))
        process.stdin.write(LENGTH.pack(len(body)) + body)
        await process.stdin.drain()
        size = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))[0]
        response: Response = pickle.loads(await process.stdout.readexactly(size))
        self.is_usable = True
        return response

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", job_parse_worker.__name__),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise Unavailable(
                f"The cluster could not start a process that parses the job: {error.strerror}.",
                retry_after_s=1.0,
            ) from error
        return self._process

    def end_after(self, idle_s: float) -> None:
        """End it unless it is used again within this time."""
        self._end_timer = asyncio.get_running_loop().call_later(idle_s, self._close_input)

    def reuse(self) -> bool:
        """Use it again; False when it has ended meanwhile."""
        if self._end_timer is not None:
            self._end_timer.cancel()
        process = self._process
        is_alive = process is not None and process.returncode is None and process.stdin is not None
        return is_alive and not process.stdin.is_closing()  # type: ignore[union-attr]

    def _close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def end(self) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def describe(self, error: Exception) -> str:
        status = None if self._process is None else self._process.returncode
        return f"{type(error).__name__}, exit status {status}"


def _too_expensive() -> PaiError:
    memory_mb = job_parse_worker.MAX_MEMORY_BYTES >> 20
    return InvalidParameters(
        f"The job cannot be read within {MAX_CPU_S} s of processor time and {memory_mb} MB of memory.",
        code="InvalidProtocolError",
        hint="Make it smaller: put large values and long lists into a file of the sources or the storage.",
    )
