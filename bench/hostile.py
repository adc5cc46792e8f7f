"""Hostile users: what others notice of hostile jobs and of many clients, and the cost of the checks."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from bench.restapi import bare_server
from bench.server import Server, job
from bench.table import Row, alternate, limit_row, ms, ratio_row, sized
from paicluster.auth.tokens import Tokens, new_token_row
from paicluster.store import Store, users
from paiprotocol.jobs import v2_reader
from paiprotocol.jobs.document import read
from paiprotocol.jobs.v2_reader import to_model
from paiprotocol.jobs.v2_schema import JOB_V2

JOBS = "/api/v2/jobs"
LIST = f"{JOBS}?limit=50"
DETAIL = f"{JOBS}/{{}}~team"
SECONDS = sized(6.0, 0.5)
HOSTILE_CONNECTIONS = 4
HOSTILE_KB = sized(830, 20)
FOLLOWERS = sized(300, 5)
POLLERS = sized(50, 2)
QUEUED_JOBS = sized(2000, 20)
FOLLOWERS_OF_TEAM = sized(200, 2)
SUBMITTERS = sized(50, 2)
POLLERS_OF_TEAM = sized(20, 2)
SESSIONS = sized(100, 2)
TEAM = (
    f"{FOLLOWERS_OF_TEAM} followers, {SUBMITTERS} submitters, "
    f"{POLLERS_OF_TEAM} pollers and {SESSIONS} sessions"
)

HOW = """\
hostile: latencies are those of one client that reads the list of jobs every few milliseconds, in a process of
its own; p99 of 6 seconds, idle and under load in turn. The pollers read the same list, each once a second. Of
the team, each submitter submits a job, and each session types a key, once a second, too; the bare route is a
server of its own on the same machine, which has nothing else to do."""


def rows(group: str = "") -> list[Row]:
    return [row for name, measure in GROUPS.items() if name == (group or name) for row in measure()]


def hostile_jobs() -> list[Row]:
    """Four connections send invalid jobs, the most expensive to parse, as fast as they are refused."""
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder, contextlib.ExitStack() as stack:
        home = Path(folder)
        # The first start creates the key files.
        with Server(home=home):
            pass
        other = _add_user(home, "other")
        server = stack.enter_context(Server("--cpus", "2", home=home))
        _fill_list(server, 50)
        # Each kind was the slowest for one part of the parser: problems, positions, duplicate keys.
        size = HOSTILE_KB << 10
        bodies = [
            json.dumps({**job("hostile", "true"), "prerequisites": [1] * (size // 3)}),
            json.dumps({**job("hostile", "true"), **{f"k{n:06}": 1 for n in range(size // 14)}}),
            "{" + "a," * (size // 2),
            json.dumps({**job("hostile", "true"), "prerequisites": [1] * (7000 // 3)}),
        ]
        loaded, idle = alternate(
            lambda: _while_sending(server, "\n".join(bodies * 50), lambda: _p99(server, other)),
            lambda: _p99(server, other),
            5,
        )
    what = f"list, p99, while {HOSTILE_CONNECTIONS} connections send hostile jobs"
    return [
        ratio_row(f"{what} / idle", loaded, idle, at_most=10, show=ms),
        limit_row(what, loaded, at_most=0.100, show=ms),
    ]


def many_clients() -> list[Row]:
    """Followers and pollers of a long queue."""
    with Server("--cpus", "2") as server:
        _fill_list(server, QUEUED_JOBS)
        loaded, idle = alternate(
            lambda: asyncio.run(_with_clients(server)), lambda: _p99(server, server.token), 5
        )
    what = f"list, p99, with {FOLLOWERS} followers, {POLLERS} pollers and {QUEUED_JOBS} queued jobs / idle"
    return [ratio_row(what, loaded, idle, at_most=20, show=ms)]


def cost_of_checks() -> list[Row]:
    """Time of one submission's parse with the bounds on what it expands to, against a parse without them."""
    text = json.dumps({**job("j", "echo <% $parameters.lr %>"), "parameters": {"lr": 0.1}})
    rounds = sized(2000, 10)

    def timed(parse: Callable[[str], object]) -> float:
        began = time.perf_counter()
        for _ in range(rounds):
            parse(text)
        return (time.perf_counter() - began) / rounds

    def unchecked(source: str) -> object:
        document = read(source)
        v2_reader.check(document.data)
        JOB_V2.accepts(document.data)
        return to_model(document.data)

    with Server() as server:
        submission = _submission_s(server)
    checked, bare = alternate(lambda: timed(v2_reader.read_job), lambda: timed(unchecked), 9)
    cost = [submission + with_checks - without for with_checks, without in zip(checked, bare, strict=True)]
    return [
        ratio_row(
            "submission with the bounds on its expansion / without",
            cost,
            [submission] * len(cost),
            at_most=1.05,
            show=ms,
        )
    ]


def team() -> list[Row]:
    """What a whole team does at once, beside a bare route on the same busy machine."""
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder, Server("--cpus", "4") as server:
        server.call("POST", "/api/v2/jobs", job("team", "while sleep 0.5; do date; done"))
        _wait_until_running(server, "team")
        body = Path(folder) / "body.json"
        body.write_bytes(json.dumps(server.call("GET", DETAIL.format(server.user))).encode())
        number = itertools.count()
        with bare_server(body) as bare, _team_at_work(server):
            answers = {
                "detail of a job": (3.0, lambda: _p99(server, server.token, DETAIL.format(server.user))),
                "list of jobs": (6.0, lambda: _p99(server, server.token)),
                "submission": (8.0, lambda: _p99(server, server.token, JOBS, f"probe-{next(number)}")),
            }
            return [
                ratio_row(
                    f"{what}, p99, under {TEAM} / bare Starlette route under the same load",
                    *alternate(measure, lambda: _p99_of(bare.split(":"), "/jobs", ""), 5),
                    at_most=goal,
                    show=ms,
                )
                for what, (goal, measure) in answers.items()
            ]


GROUPS: dict[str, Callable[[], list[Row]]] = {
    "jobs": hostile_jobs,
    "clients": many_clients,
    "checks": cost_of_checks,
    "team": team,
}


def _submission_s(server: Server) -> float:
    """Time of one submission over a persistent connection."""
    connection = server.connect()
    took = []
    for number in range(sized(200, 3)):
        body = json.dumps(job(f"timed-{number}", "true", cpu=10_000))
        began = time.perf_counter()
        connection.request("POST", "/api/v2/jobs", body, server.headers)
        connection.getresponse().read()
        took.append(time.perf_counter() - began)
    connection.close()
    return sorted(took)[len(took) // 2]


def _add_user(home: Path, name: str) -> str:
    """Create a user in a home whose server does not run; returns a token of the user."""
    store = Store.open(home / "cluster.db")
    row = new_token_row(name, "application")
    store.write_sync(lambda conn: users.add_user(conn, name, "!", created_ms=0, admin=False))
    store.write_sync(lambda conn: users.add_token(conn, row))
    token = Tokens.open(store, home / "keys").render(row)
    store.close()
    return token


def _fill_list(server: Server, count: int) -> None:
    """Jobs that wait: two occupy the machine, as far as the scheduler knows."""
    bodies = "\n".join(json.dumps(job(f"queued-{n}", "sleep 3600", cpu=1)) for n in range(count))
    host, port = _address(server)
    subprocess.run(
        [sys.executable, "-m", "bench.load", host, port, "/api/v2/jobs", "8", "600", server.token],
        input=bodies.encode(),
        stdout=subprocess.DEVNULL,
        check=True,
    )


def _address(server: Server) -> tuple[str, str]:
    url = urlsplit(server.url)
    return url.hostname or "", str(url.port or 0)


def _p99(server: Server, token: str, path: str = LIST, prefix: str = "") -> float:
    return _p99_of(_address(server), path, token, prefix)


def _p99_of(address: Sequence[str], path: str, token: str, prefix: str = "") -> float:
    """Of GETs, or of submissions of jobs whose names begin with a prefix."""
    words = [*address, path, str(SECONDS), token, *(["1", "0.005", prefix] if prefix else [])]
    done = subprocess.run(
        [sys.executable, "-m", "bench.probe", *words], stdout=subprocess.PIPE, check=True, text=True
    )
    return float(done.stdout.split()[1])


def _wait_until_running(server: Server, name: str) -> None:
    deadline = time.monotonic() + 60
    while server.call("GET", f"{JOBS}/{server.user}~{name}")["jobStatus"]["state"] != "RUNNING":
        if time.monotonic() > deadline:
            raise RuntimeError(f"{name} does not run")
        time.sleep(0.05)


@contextlib.contextmanager
def _team_at_work(server: Server) -> Iterator[None]:
    counts = map(str, (FOLLOWERS_OF_TEAM, SUBMITTERS, POLLERS_OF_TEAM, SESSIONS))
    command = [sys.executable, "-m", "bench.team_load", *_address(server), server.token, server.user, "team"]
    load = subprocess.Popen([*command, *counts], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert load.stdin is not None and load.stdout is not None
    try:
        if load.stdout.readline() != "ready\n":
            raise RuntimeError("the load has ended")
        yield
        done, _ = load.communicate()
        if json.loads(done)["errors"]:
            raise RuntimeError(f"errors under load: {done}")
    finally:
        if load.poll() is None:
            load.kill()
            load.wait()


def _while_sending(server: Server, bodies: str, measure: Callable[[], float]) -> float:
    """The result of ``measure`` while the bodies are sent over several connections."""
    command = [sys.executable, "-m", "bench.load", *_address(server), "/api/v2/jobs"]
    load = subprocess.Popen(
        [*command, str(HOSTILE_CONNECTIONS), str(SECONDS + 1), server.token],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert load.stdin is not None
    load.stdin.write(bodies.encode())
    load.stdin.close()
    try:
        return measure()
    finally:
        load.terminate()
        load.wait()


async def _with_clients(server: Server) -> float:
    """p99 while followers are connected and pollers poll."""
    host, port = _address(server)
    head = f" HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {server.token}\r\n\r\n"
    writers = []
    for number in range(FOLLOWERS):
        reader, writer = await asyncio.open_connection(host, int(port))
        path = f"/api/v2/jobs/{server.user}~queued-{number % QUEUED_JOBS}/follow"
        writer.write(f"GET {path}{head}".encode())
        await reader.readuntil(b'"kind"')
        writers.append(writer)
    pollers = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.probe", host, port, LIST, str(SECONDS + 1), server.token),
        *(str(POLLERS), "1"),
        stdout=subprocess.DEVNULL,
    )
    p99 = await asyncio.to_thread(_p99, server, server.token)
    await pollers.wait()
    for writer in writers:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
    return p99
