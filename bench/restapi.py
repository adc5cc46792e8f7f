"""The REST API's figures: lists out of a long history, the detail of a large job, followers that wait."""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy import Connection

from bench.server import Server, job, pss_kb
from bench.store import fill
from bench.table import Row, alternate, limit_row, ms, ratio_row
from paicluster.store import Store
from paicluster.store.jobs import (
    AttemptRow,
    Inserted,
    NewJob,
    TaskRow,
    insert_jobs,
    insert_tasks,
    update_job,
    upsert_attempt,
)

JOBS = 100_000
TASKS = 2000
FOLLOWERS = 500
# So many large jobs in turn are more than the server remembers: each answer is made anew.
LARGE_JOBS = 40

_BARE = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
body = open(sys.argv[2], "rb").read()
async def give(request):
    return Response(body, media_type="application/json")
app = Starlette(routes=[Route("/jobs", give)])
port = int(sys.argv[1])
uvicorn.run(app, port=port, http="httptools", loop="uvloop", access_log=False, log_level="warning")
"""


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder:
        home = Path(folder)
        # The first start creates the key files; a server refuses a database without them.
        with Server(home=home):
            pass
        store = Store.open(home / "cluster.db")
        fill(store, JOBS, over=True)
        for number in range(LARGE_JOBS):
            store.write_sync(lambda conn, number=number: _large_job(conn, f"large-{number}"))  # type: ignore[misc]
        store.close()
        with Server("--keep-jobs", "1000000", "--cpus", "8", home=home) as server:
            # Followers first: large answers leave room behind in which they would hide.
            waiting = followers(server)
            return [lists(server, home), detail(server), waiting]


def lists(server: Server, folder: Path, seconds: float = 2.0) -> Row:
    """Requests a second over 16 connections, against a route that gives the same bytes and does nothing."""
    path = "/api/v2/jobs?limit=50"
    same = folder / "same.json"
    same.write_bytes(json.dumps(server.call("GET", path), separators=(",", ":")).encode())

    def load(where: str, path: str) -> float:
        host, _, port = where.partition(":")
        done = subprocess.run(
            [sys.executable, "-m", "bench.load", host, port, path, "16", str(seconds), server.token, "GET"],
            input=b"\n" * int(seconds * 12_000),
            stdout=subprocess.PIPE,
            check=True,
        )
        answered, refused, took = done.stdout.split()
        if int(refused):
            raise RuntimeError(f"{refused.decode()} lists were refused")
        return int(answered) / float(took)

    with _bare(same) as bare:
        ours = urlsplit(server.url).netloc
        load(ours, path)
        load(bare, "/jobs")
        return ratio_row(
            f"GET /api/v2/jobs?limit=50 with {JOBS} jobs / bare Starlette route of the same bytes",
            *alternate(lambda: load(ours, path), lambda: load(bare, "/jobs"), 5),
            at_least=0.35,
            show=lambda v: f"{v:.0f}/s",
        )


@contextmanager
def _bare(body: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = body.with_name("bare.py")
    script.write_text(_BARE)
    process = subprocess.Popen([sys.executable, str(script), str(port), str(body)])
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def detail(server: Server, rounds: int = 5) -> Row:
    """The time until the last byte is here; loopback adds a little to the server's own."""
    where = urlsplit(server.url)
    requests = [
        f"GET /api/v2/jobs/somebody~large-{number} HTTP/1.1\r\nHost: bench\r\n"
        f"Authorization: Bearer {server.token}\r\n\r\n".encode()
        for number in range(LARGE_JOBS)
    ]
    with socket.create_connection((where.hostname or "", where.port or 0)) as connection:
        found = []
        _ask(connection, requests[0])
        for _ in range(rounds):
            took = [_ask(connection, request) for request in requests]
            found.append(statistics.quantiles(took, n=20)[-1])
    return limit_row(
        f"detail of a job with {TASKS} tasks, to the last byte, p95", found, at_most=0.060, show=ms
    )


def _ask(connection: socket.socket, request: bytes) -> float:
    buffer = bytearray(1 << 20)
    began = time.perf_counter()
    connection.sendall(request)
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(65536)
    head, _, rest = head.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(head.decode())
    at = head.lower().index(b"content-length: ")
    left = int(head[at + 16 :].split(b"\r\n", 1)[0]) - len(rest)
    while left > 0:
        left -= connection.recv_into(buffer)
    return time.perf_counter() - began


def followers(server: Server) -> Row:
    """What the server grows by for each of many who follow a job that says nothing."""
    server.call("POST", "/api/v2/jobs", job("silent", "sleep 600"))
    path = f"/api/v2/jobs/{server.user}~silent/follow"
    while server.call("GET", path.removesuffix("/follow"))["jobStatus"]["state"] != "RUNNING":
        time.sleep(0.05)
    where = urlsplit(server.url)
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode()

    async def follow_all() -> float:
        before = pss_kb([server.process.pid])
        writers = []
        for _ in range(FOLLOWERS):
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            writer.write(request)
            await reader.readuntil(b'"kind"')
            writers.append(writer)
        await asyncio.sleep(1)  # what opening them left to be done is not waiting
        grown = pss_kb([server.process.pid]) - before
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
        return grown / FOLLOWERS

    # Once only: a second round would find the room that the first one left.
    grown = asyncio.run(follow_all())
    return limit_row(
        f"memory for each of {FOLLOWERS} idle followers", [grown], at_most=60, show=lambda v: f"{v:.0f} kB"
    )


def _large_job(conn: Connection, name: str = "large") -> None:
    inserted = insert_jobs(conn, [NewJob("somebody", name, "default", "{}", "{}", 1_700_000_000_000)])[0]
    if not isinstance(inserted, Inserted):
        raise inserted
    began = 1_700_000_001_000
    tasks = [
        TaskRow(
            str(uuid.uuid4()), inserted.id, 0, "worker", 0, index, 0, str(uuid.uuid4()), "Completed",
            "node-1", "10.0.0.1", json.dumps({"ssh": [20000 + index], "http": [30000 + index]}), "[0]", 4,
            1024, began, began + 5, began + 60_000, 0 if index % 7 else 255,
            json.dumps({"exitCode": 255, "originUserExitCode": 3}) if index % 7 == 0 else None,
        )
        for index in range(TASKS)
    ]  # fmt: skip
    insert_tasks(conn, tasks)
    upsert_attempt(
        conn, AttemptRow(inserted.id, 0, "Completed", began, began + 5, began + 60_000, 255, "Failed")
    )
    update_job(
        conn,
        inserted.id,
        sub_state="Completed",
        launched_ms=began,
        completed_ms=began + 60_000,
        exit_code=255,
    )
