"""Load: clients that carry out operations until they are stopped, and record what they saw.

What they do depends on the seed; in which order it happens, on the machine.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.site import Site, report
from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.client.follow_stream import FollowRequest, attempt_of, follow_stream
from openpaisdk.client.models import FINAL_STATES
from openpaisdk.storage import Storage
from paiprotocol.errors import (
    STORAGE_FULL,
    ConnectionFailed,
    PaiError,
    TooManyRequests,
    Unavailable,
)

_RETRY_S = 0.2
_NOTEBOOK_INTERVAL_S = 20.0
# A client may notice a broken connection this much later: a request is sent again, or a response is late.
AFTER_FAULT_S = 20.0
TEMPORARY = (ConnectionFailed, Unavailable, TooManyRequests)


@dataclass(frozen=True)
class Expected:
    """Expected result of a job. ``own_failures``: attempts that fail without a fault."""

    name: str
    kind: str
    tasks: int
    lines: int
    spec: dict[str, Any]
    state: str = "SUCCEEDED"
    exit_code: int = 0
    own_failures: int = 0

    def log(self, index: int) -> bytes:
        lines = "".join(f"{self.name} {index} line {i}\n" for i in range(1, self.lines + 1))
        return (lines + f"{self.name} {index} ends\n").encode()


@dataclass
class Followed:
    """The log of one task attempt as a follower received it: pieces by offset, and how many were dropped."""

    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    dropped: int = 0


@dataclass
class Seen:
    """Record of the clients: acknowledged jobs, followed logs, uploaded files, and failures that they met."""

    jobs: dict[str, Expected] = field(default_factory=dict)
    followed: dict[tuple[str, int], dict[tuple[int, int], Followed]] = field(default_factory=dict)
    # By path, the hash of what was acknowledged last.
    files: dict[str, str] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def report(self, text: str) -> None:
        """Record what is wrong, and print it at once: the checks at the end may fail before they print it."""
        report(f"          {text}")
        with self.lock:
            self.wrong.append(text)


# Weight of an operation, and the function that carries it out for a client, with its number.
Choice = tuple[int, Callable[["Client", int, random.Random], None]]


class Load:
    """``clients`` threads, each with a connection of its own through the proxy."""

    def __init__(self, site: Site, ledger: Path, seed: int, clients: int, operations: Mapping[str, Choice]):
        self.site = site
        self._operations = operations
        self.ledger = ledger
        self.seed = seed
        self.seen = Seen()
        self.done = threading.Event()
        self._numbers = itertools.count()
        self._numbers_lock = threading.Lock()
        self._next_notebook_s = 0.0
        self.threads = [
            threading.Thread(target=self._run_client, name=f"client-{n}", daemon=True) for n in range(clients)
        ]

    def may_run_notebook(self) -> bool:
        with self._numbers_lock:
            may = time.monotonic() >= self._next_notebook_s
            if may:
                self._next_notebook_s = time.monotonic() + _NOTEBOOK_INTERVAL_S
            return may

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def finish(self, deadline_s: float) -> None:
        """Wait until each client has ended its operation."""
        self.done.set()
        ends = time.monotonic() + deadline_s
        for thread in self.threads:
            thread.join(max(0.0, ends - time.monotonic()))
            if thread.is_alive():
                self.seen.report(f"{thread.name} did not end its operation in {deadline_s:.0f} s")

    def _run_client(self) -> None:
        client = Client(self)
        while not self.done.is_set():
            with self._numbers_lock:
                number = next(self._numbers)
            rng = random.Random(f"load {self.seed} {number}")
            kind = rng.choices(list(self._operations), [weight for weight, _ in self._operations.values()])[0]
            try:
                self._operations[kind][1](client, number, rng)
            except Exception as error:
                where = "".join(traceback.format_exception(error)[-9:])
                self.seen.report(f"{kind} {number}: {where}")
            self.seen.count(kind)


class Client:
    """One client: its connection, and the operations."""

    def __init__(self, load: Load):
        self.load, self.site, self.seen = load, load.site, load.seen
        # A client gives an operation up after this time, and the run fails.
        self.patience_s = load.site.engine.patience_s
        site = self.site
        self.cluster = ClusterClient("chaos", Endpoint(site.proxy.url, site.cluster.user, site.cluster.token))
        self.storage = Storage.of(self.cluster.with_own_connection(), over_http=True)

    def retry(self, what: str, call: Callable[[], Any]) -> Any:
        """Call until the cluster responds. Failures without a fault shortly before are reported."""
        gives_up_s = time.monotonic() + self.patience_s
        while True:
            began_s = time.monotonic()
            try:
                return call()
            except PaiError as error:
                if not isinstance(error, TEMPORARY) and error.code != STORAGE_FULL:
                    raise
                if not self.site.was_disturbed(began_s - AFTER_FAULT_S):
                    self.seen.report(f"{what}: {error!r} though no fault was near")
                if time.monotonic() > gives_up_s:
                    raise
            time.sleep(_RETRY_S)

    def submit(self, expected: Expected) -> None:
        text = json.dumps(expected.spec)
        self.retry(expected.name, lambda: self.cluster.submit(text, key=f"key-{expected.name}"))
        with self.seen.lock:
            self.seen.jobs[expected.name] = expected

    def state(self, name: str) -> str:
        return str(self.retry(name, lambda: self.cluster.job(name)).state)

    def wait(self, name: str, *states: str) -> str:
        gives_up_s = time.monotonic() + self.patience_s
        while (state := self.state(name)) not in (*states, *FINAL_STATES):
            if time.monotonic() > gives_up_s:
                raise AssertionError(f"{name} is {state}, not {states}, after {self.patience_s:.0f} s")
            time.sleep(_RETRY_S)
        return state

    def follow(self, expected: Expected, index: int) -> None:
        """Follow a task from its first attempt to the job's end."""
        logs: dict[tuple[int, int], Followed] = {}
        request = FollowRequest(expected.name, role="main", index=index, all_attempts=True)
        gives_up_s = time.monotonic() + self.patience_s
        while True:
            logs.clear()
            began_s = time.monotonic()
            try:
                for frame in follow_stream(self.cluster.with_own_connection(), request):
                    if frame.kind == "log":
                        _add(logs.setdefault(attempt_of(frame), Followed()), frame.head, frame.data)
                break
            except TEMPORARY as error:
                # The first connection may fail; a broken one is resumed by the client itself.
                if logs:
                    self.seen.report(f"the follower of {expected.name} gave up: {error!r}")
                if not self.site.was_disturbed(began_s - AFTER_FAULT_S):
                    self.seen.report(f"follow {expected.name}: {error!r} though no fault was near")
                if time.monotonic() > gives_up_s:
                    raise
                time.sleep(_RETRY_S)
        with self.seen.lock:
            self.seen.followed[expected.name, index] = logs


def _add(log: Followed, head: dict[str, Any], data: bytes) -> None:
    if data.startswith(b"[") and data.endswith(b" bytes of older output were dropped]\n"):
        log.dropped += 1  # a notice of the client, not of the task
        return
    log.pieces.append((int(head.get("offset") or 0), data))
