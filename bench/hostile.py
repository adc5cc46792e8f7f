"""Hostile users: what others notice of hostile jobs and of many clients, and the cost of the checks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from bench.server import Server, job
from bench.table import Row, alternate, limit_row, ms, ratio_row, sized
from openpaisdk.protocol import v2_reader
from openpaisdk.protocol.document import read
from openpaisdk.protocol.v2_reader import to_model
from openpaisdk.protocol.v2_schema import JOB_V2
from paicluster.auth.tokens import Tokens, new_token_row
from paicluster.store import Store, users

LIST = "/api/v2/jobs?limit=50"
SECONDS = sized(6.0, 0.5)
HOSTILE_CONNECTIONS = 4
HOSTILE_KB = sized(830, 20)
FOLLOWERS = sized(300, 5)
POLLERS = sized(50, 2)
QUEUED_JOBS = sized(2000, 20)

HOW = """\
hostile: latencies are those of one client that reads the list of jobs every few milliseconds, in a process of
its own; p99 of 6 seconds, idle and under load in turn. The pollers read the same list, each once a second."""


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


GROUPS: dict[str, Callable[[], list[Row]]] = {
    "jobs": hostile_jobs,
    "clients": many_clients,
    "checks": cost_of_checks,
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


def _p99(server: Server, token: str) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "bench.probe", *_address(server), LIST, str(SECONDS), token],
        stdout=subprocess.PIPE,
        check=True,
    )
    return float(done.stdout.split()[1])


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
