"""Load: clients that submit, follow, stop, upload, run commands and call functions until they shall end.

What they do depends on the seed; in which order it happens, on the machine. Each writes down what the cluster
acknowledged and what it then saw.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import openpaisdk
from chaos.site import Site
from openpaisdk import Cluster as UserCluster
from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.client.follow_stream import FollowRequest, attempt_of, follow_stream
from openpaisdk.client.models import FINAL_STATES
from openpaisdk.client.session import STDOUT, SessionRefused
from openpaisdk.functions.task_errors import TaskError
from openpaisdk.storage import Storage
from paiprotocol.errors import (
    STORAGE_FULL,
    Conflict,
    ConnectionFailed,
    NotFound,
    PaiError,
    TooManyRequests,
    Unavailable,
)
from support.server_fixture import job

_RETRY_S = 0.2
_FUNCTION_S = 240.0
# A break of a connection becomes visible this much later: a request may be sent again, an answer be late.
_AFTER_FAULT_S = 20.0
_MAX_UPLOAD_BYTES = 3 << 20
_TEMPORARY = (ConnectionFailed, Unavailable, TooManyRequests)


@dataclass(frozen=True)
class Expected:
    """What a job has to do. ``own_failures``: attempts that fail by themselves."""

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
    """What clients saw: acknowledged jobs, followed logs, uploaded files, and what was wrong at once."""

    jobs: dict[str, Expected] = field(default_factory=dict)
    followed: dict[tuple[str, int], dict[tuple[int, int], Followed]] = field(default_factory=dict)
    # By path, the hash of what was acknowledged last.
    files: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def report(self, text: str) -> None:
        with self.lock:
            self.wrong.append(text)


class Load:
    """``clients`` threads, each with a connection of its own through the proxy."""

    def __init__(self, site: Site, ledger: Path, seed: int, clients: int):
        self.site = site
        self.ledger = ledger
        self.seed = seed
        self.seen = Seen()
        self.done = threading.Event()
        self._numbers = itertools.count()
        self._numbers_lock = threading.Lock()
        self.threads = [
            threading.Thread(target=self._run_client, name=f"client-{n}", daemon=True) for n in range(clients)
        ]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def finish(self, deadline_s: float) -> None:
        """Let each client end its operation."""
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
            dice = random.Random(f"load {self.seed} {number}")
            kind = dice.choices(list(_OPERATIONS), [weight for weight, _ in _OPERATIONS.values()])[0]
            try:
                _OPERATIONS[kind][1](client, number, dice)
            except Exception as error:
                where = "".join(traceback.format_exception(error)[-9:])
                self.seen.report(f"{kind} {number}: {where}")
            self.seen.count(kind)


class Client:
    """One client: its connection, and the operations."""

    def __init__(self, load: Load):
        self.load, self.site, self.seen = load, load.site, load.seen
        # An operation is given up, and the run fails, when the cluster was in order for so long.
        self.patience_s = load.site.engine.patience_s
        site = self.site
        self.cluster = ClusterClient("chaos", Endpoint(site.proxy.url, site.cluster.user, site.cluster.token))
        self.storage = Storage.of(self.cluster.with_own_connection(), over_http=True)

    def retry(self, what: str, call: Callable[[], Any]) -> Any:
        """Call until the cluster has answered. It must, unless a fault is in the way."""
        gives_up_s = time.monotonic() + self.patience_s
        while True:
            began_s = time.monotonic()
            try:
                return call()
            except PaiError as error:
                if not isinstance(error, _TEMPORARY) and error.code != STORAGE_FULL:
                    raise
                if not self.site.was_disturbed(began_s - _AFTER_FAULT_S):
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
            except _TEMPORARY as error:
                # The first connection may fail; a broken one is resumed by the client itself.
                if logs:
                    self.seen.report(f"the follower of {expected.name} gave up: {error!r}")
                if not self.site.was_disturbed(began_s - _AFTER_FAULT_S):
                    self.seen.report(f"follow {expected.name}: {error!r} though no fault was near")
                if time.monotonic() > gives_up_s:
                    raise
                time.sleep(_RETRY_S)
        with self.seen.lock:
            self.seen.followed[expected.name, index] = logs


def _add(log: Followed, head: dict[str, Any], data: bytes) -> None:
    if data.startswith(b"[") and data.endswith(b" bytes of older output were dropped]\n"):
        log.dropped += 1  # the client's own words
        return
    log.pieces.append((int(head.get("offset") or 0), data))


# -- jobs ------------------------------------------------------------------------------------------


def make_job(
    load: Load, number: int, dice: random.Random, kind: str, *, tasks: int = 1, last: str = "", **more: Any
) -> Expected:
    """A job whose tasks write a line to a file of their own at their start and end, and number their output.

    ``last`` is the command after the last line of output.
    """
    fields = {name: more.pop(name) for name in ("state", "exit_code", "own_failures") if name in more}
    name = f"{kind}-{number}"
    lines = dice.randrange(5, 120)
    index = "$PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"
    file = f"{load.ledger}/{name}.{index}"
    commands = (
        f"echo start $PAI_CONTAINER_ID $(date +%s) >> {file}",
        f"for i in $(seq {lines}); do echo {name} {index} line $i; if [ $((i % 16)) = 0 ]; then sleep 0.1; "
        "fi; done",
        f"echo {name} {index} ends",
        f"echo end $PAI_CONTAINER_ID $(date +%s) >> {file}",
        *([last] if last else []),
    )
    spec = load.site.engine.place(job(name, *commands, instances=tasks, **more))
    return Expected(name, kind, tasks, lines, spec, **fields)


def _run(client: Client, expected: Expected, dice: random.Random) -> None:
    """Submit, then leave it alone, or follow one task to the end."""
    client.submit(expected)
    if dice.random() < 0.7:
        client.follow(expected, dice.randrange(expected.tasks))


def _single(client: Client, number: int, dice: random.Random) -> None:
    _run(client, make_job(client.load, number, dice, "single"), dice)


def _failing(client: Client, number: int, dice: random.Random) -> None:
    fails: dict[str, Any] = {"state": "FAILED", "exit_code": 255, "own_failures": 1}
    _run(client, make_job(client.load, number, dice, "failing", last="exit 3", **fails), dice)


def _retried(client: Client, number: int, dice: random.Random) -> None:
    fails: dict[str, Any] = {"state": "FAILED", "exit_code": 255, "own_failures": 3, "jobRetryCount": 2}
    _run(client, make_job(client.load, number, dice, "retried", last="exit 3", **fails), dice)


def _gang(client: Client, number: int, dice: random.Random) -> None:
    _run(client, make_job(client.load, number, dice, "gang", tasks=dice.randrange(2, 5)), dice)


def _array(client: Client, number: int, dice: random.Random) -> None:
    all_of_them = {"minFailedInstances": -1, "minSucceededInstances": -1}
    extras = {"gangAllocation": False, "openpaisdk": {"arrayLimit": 2}}
    made = make_job(
        client.load, number, dice, "array", tasks=dice.randrange(2, 6), completion=all_of_them, extras=extras
    )
    _run(client, made, dice)


def _stopped(client: Client, number: int, dice: random.Random) -> None:
    stopped: dict[str, Any] = {"state": "STOPPED", "exit_code": -210}
    made = make_job(client.load, number, dice, "stopped", last="sleep 600", **stopped)
    client.submit(made)
    if dice.random() < 0.7:
        client.wait(made.name, "RUNNING")
    client.retry(made.name, lambda: client.cluster.stop(made.name))
    client.wait(made.name)


def _dependent(client: Client, number: int, dice: random.Random) -> None:
    first = make_job(client.load, number, dice, "first")
    client.submit(first)
    after = {"openpaisdk": {"after": [{"job": first.name, "on": "success"}]}}
    check = f'grep -q "^end" {client.load.ledger}/{first.name}.0'
    _run(client, make_job(client.load, number, dice, "second", last=check, extras=after), dice)


# -- everything else -------------------------------------------------------------------------------


def _upload(client: Client, number: int, dice: random.Random) -> None:
    """Some are written over what an earlier version acknowledged."""
    path = f"/user/{client.site.cluster.user}/chaos/file-{number}"
    for version in range(1 + (dice.random() < 0.3)):
        content = dice.randbytes(int(_MAX_UPLOAD_BYTES * dice.random() ** 3))
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            client.retry(path, partial(client.storage.upload, file.name, path))
        with client.seen.lock:
            client.seen.files[path] = hashlib.sha256(content).hexdigest()
        client.seen.count(f"upload version {version}")
    if dice.random() < 0.5:
        check_file(client, path)


def check_file(client: Client, path: str) -> None:
    """Download a file, and compare it with what was acknowledged."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "file"
        try:
            client.retry(path, lambda: client.storage.download(path, str(target)))
        except NotFound:
            client.seen.report(f"the uploaded file {path} is gone")
            return
        if hashlib.sha256(target.read_bytes()).hexdigest() != client.seen.files[path]:
            client.seen.report(f"the uploaded file {path} has another content")


def _commands(client: Client, number: int, dice: random.Random) -> None:
    """Commands in a running job; a lost connection ends one, any other end must be right."""
    stopped: dict[str, Any] = {"state": "STOPPED", "exit_code": -210}
    made = make_job(client.load, number, dice, "host", last="sleep 600", **stopped)
    client.submit(made)
    for _ in range(4):
        if client.wait(made.name, "RUNNING") != "RUNNING":
            break
        began_s = time.monotonic()
        try:
            _run_command(client, made.name, dice)
        except PaiError as error:
            # The task may be lost at this moment, or not have begun.
            is_expected = isinstance(error, (*_TEMPORARY, Conflict, SessionRefused)) or "running" in str(
                error
            )
            if not is_expected or not client.site.was_disturbed(began_s - _AFTER_FAULT_S):
                client.seen.report(f"exec in {made.name}: {error!r} though no fault was near")
    client.retry(made.name, lambda: client.cluster.stop(made.name))
    client.wait(made.name)


def _run_command(client: Client, name: str, dice: random.Random) -> None:
    sent = dice.randbytes(dice.randrange(1, 60_000)).hex().encode()
    status = dice.randrange(100)
    began_s = time.monotonic()
    session = client.cluster.with_own_connection().open_session(name)
    try:
        session.start(["sh", "-c", f"cat; exit {status}"])
        session.send_stdin(sent)
        session.end_stdin()
        received = errors = b""
        while session.exit_status is None:
            for stream, data in session.receive():
                if stream == STDOUT:
                    received += data
                else:
                    errors += data
    finally:
        session.close()
    # The command ends with its task, or is not started.
    was_killed = client.site.was_disturbed(began_s - _AFTER_FAULT_S, *client.site.engine.ends_commands)
    if (received, session.exit_status) != (sent, status) and not was_killed:
        client.seen.report(
            f"exec in {name}: {len(received)} of {len(sent)} bytes, status {session.exit_status}, "
            f"not {status}: {received[-200:]!r} {errors[-200:]!r}"
        )
    client.seen.count("commands")


def _function(client: Client, number: int, dice: random.Random) -> None:
    site = client.site
    cluster = UserCluster("chaos", site.proxy.url, site.cluster.user, token=site.cluster.token)
    base = dice.randrange(2, 50)
    future = client.retry(
        "function",
        lambda: openpaisdk.submit(pow, base, number, cluster=cluster, image="host", mem="64m", sources=[]),
    )
    began_s = time.time()
    try:
        result = future.result(_FUNCTION_S)
    except TaskError:
        if site.was_full(began_s, time.time()):
            return  # its result could not be written
        raise
    if result != base**number:
        client.seen.report(f"function {number}: {result}, not {base**number}")


_OPERATIONS: dict[str, tuple[int, Callable[[Client, int, random.Random], None]]] = {
    "single": (6, _single),
    "failing": (2, _failing),
    "retried": (3, _retried),
    "gang": (4, _gang),
    "array": (3, _array),
    "stopped": (2, _stopped),
    "dependent": (2, _dependent),
    "upload": (5, _upload),
    "commands": (2, _commands),
    "function": (1, _function),
}
