"""REST API: job lists from a long history, details of a large job, memory of idle followers."""

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

from bench.server import Server, free_port, job, pss_kb, wait_for_port
from bench.store import fill
from bench.table import Row, alternate, limit_row, ms, ratio_row, sized
from paicluster.api.v2.job_summaries import render_summary
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

JOBS = sized(100_000, 500)
TASKS = sized(2000, 20)
FOLLOWERS = sized(500, 5)
# More large jobs than the server caches: each response is built from the database.
LARGE_JOBS = sized(40, 3)

_BARE = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
body = open(sys.argv[2], "rb").read()
async def get(request):
    return Response(body, media_type="application/json")
app = Starlette(routes=[Route("/jobs", get)])
port = int(sys.argv[1])
uvicorn.run(app, port=port, http="httptools", loop="uvloop", access_log=False, log_level="warning")
"""


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder:
        home = Path(folder)
        # The first start creates the key files; a server refuses a database without them.
        with Server(home=home):
            pass
        store = Store.open(home / "cluster.db", render_summary)
        fill(store, JOBS, all_finished=True)
        for number in range(LARGE_JOBS):
            store.write_sync(lambda conn, number=number: _large_job(conn, f"large-{number}"))  # type: ignore[misc]
        store.close()
        with Server("--keep-jobs", "1000000", "--cpus", "8", home=home) as server:
            # Followers first: large responses leave free memory behind, in which followers would not show.
            idle_followers = followers(server)
            return [lists(server, home), detail(server), idle_followers]


def lists(server: Server, folder: Path, seconds: float = sized(2.0, 0.2)) -> Row:
    """Requests per second over 16 connections, against a bare route that returns the same bytes."""
    path = "/api/v2/jobs?limit=50"
    body = folder / "body.json"
    body.write_bytes(json.dumps(server.call("GET", path), separators=(",", ":")).encode())

    def load(address: str, path: str) -> float:
        host, _, port = address.partition(":")
        done = subprocess.run(
            [sys.executable, "-m", "bench.load", host, port, path, "16", str(seconds), server.token, "GET"],
            input=b"\n" * int(seconds * 12_000),
            stdout=subprocess.PIPE,
            check=True,
        )
        responses, errors, took = done.stdout.split()
        if int(errors):
            raise RuntimeError(f"{errors.decode()} list requests failed")
        return int(responses) / float(took)

    with bare_server(body) as bare:
        ours = urlsplit(server.url).netloc
        load(ours, path)
        load(bare, "/jobs")
        return ratio_row(
            f"GET /api/v2/jobs?limit=50 with {JOBS} jobs / bare Starlette route with the same bytes",
            *alternate(lambda: load(ours, path), lambda: load(bare, "/jobs"), 5),
            at_least=0.35,
            show=lambda v: f"{v:.0f}/s",
        )


@contextmanager
def bare_server(body: Path) -> Iterator[str]:
    port = free_port()
    script = body.with_name("bare.py")
    script.write_text(_BARE)
    process = subprocess.Popen([sys.executable, str(script), str(port), str(body)])
    try:
        wait_for_port(port)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def detail(server: Server, rounds: int = sized(5, 1)) -> Row:
    """Time to the last byte, including the loopback transfer."""
    url = urlsplit(server.url)
    requests = [
        f"GET /api/v2/jobs/alice~large-{number} HTTP/1.1\r\nHost: bench\r\n"
        f"Authorization: Bearer {server.token}\r\n\r\n".encode()
        for number in range(LARGE_JOBS)
    ]
    with socket.create_connection((url.hostname or "", url.port or 0)) as connection:
        values = []
        _request(connection, requests[0])
        for _ in range(rounds):
            took = [_request(connection, request) for request in requests]
            values.append(statistics.quantiles(took, n=20)[-1])
    return limit_row(
        f"details of a job with {TASKS} tasks, to the last byte, p95", values, at_most=0.060, show=ms
    )


def _request(connection: socket.socket, request: bytes) -> float:
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
    """Server memory for each client that follows a job without output."""
    server.call("POST", "/api/v2/jobs", job("silent", "sleep 600"))
    path = f"/api/v2/jobs/{server.user}~silent/follow"
    while server.call("GET", path.removesuffix("/follow"))["jobStatus"]["state"] != "RUNNING":
        time.sleep(0.05)
    url = urlsplit(server.url)
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode()

    async def follow_all() -> float:
        before = pss_kb([server.process.pid])
        writers = []
        for _ in range(FOLLOWERS):
            reader, writer = await asyncio.open_connection(url.hostname, url.port)
            writer.write(request)
            await reader.readuntil(b'"kind"')
            writers.append(writer)
        await asyncio.sleep(1)  # let the work of opening them finish
        growth = pss_kb([server.process.pid]) - before
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
        return growth / FOLLOWERS

    # Only once: a second round would reuse memory that the first one freed.
    growth = asyncio.run(follow_all())
    return limit_row(
        f"memory for each of {FOLLOWERS} idle followers", [growth], at_most=60, show=lambda v: f"{v:.0f} kB"
    )


def _large_job(conn: Connection, name: str = "large") -> None:
    inserted = insert_jobs(conn, [NewJob("alice", name, "default", "{}", "{}", 1_700_000_000_000)])[0]
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
