"""Jobs end to end: one job, many jobs, durable submissions, server start, idle cost, log latency."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from bench.server import Server, cpu_s, follow_to_end, free_port, job, pss_kb, wait_for_port
from bench.table import Row, alternate, limit_row, ms, ratio_row, sized

_BARE = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
async def post(request):
    body = await request.body()
    return Response(b'{"status":202,"message":"accepted"}', 202, media_type="application/json")
app = Starlette(routes=[Route("/jobs", post, methods=["POST"])])
port = int(sys.argv[1])
uvicorn.run(app, port=port, http="httptools", loop="uvloop", access_log=False, log_level="warning")
"""


def rows() -> list[Row]:
    return [one_job(), many_jobs(), submissions(), *start_and_idle(), log_latency()]


def one_job() -> Row:
    with Server() as server, tempfile.TemporaryDirectory() as folder:
        number = iter(range(10**6))

        def ours() -> float:
            took = []
            for _ in range(sized(10, 1)):
                name = f"one-{next(number)}"
                began = time.perf_counter()
                server.call("POST", "/api/v2/jobs", job(name, "true"))
                if follow_to_end(server, name) != "SUCCEEDED":
                    raise RuntimeError("the job failed")
                took.append(time.perf_counter() - began)
            return statistics.median(took)

        file = os.open(Path(folder) / "record", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

        def reference() -> float:
            took = []
            for _ in range(sized(10, 1)):
                began = time.perf_counter()
                pid = os.posix_spawn("/bin/bash", ["bash", "-c", "true"], {})
                os.waitpid(pid, 0)
                for _ in range(2):
                    os.write(file, b"x" * 512)
                    os.fsync(file)
                took.append(time.perf_counter() - began)
            return statistics.median(took)

        ours()
        return ratio_row(
            "one `true` job, submit to SUCCEEDED at the client / bash -c true + 2 fsyncs",
            *alternate(ours, reference),
            at_most=12,
            show=ms,
        )


def many_jobs(count: int = sized(500, 10)) -> Row:
    rates = []
    for round_ in range(sized(5, 1)):
        with Server() as server:
            took = _run_many(server, count, round_)
            rates.append(count / took)
    return limit_row(
        f"{count} `true` jobs, until all have finished",
        rates,
        at_least=100,
        show=lambda v: f"{v:.0f} jobs/s",
        reference=f"{os.cpu_count()} cores",
    )


def _run_many(server: Server, count: int, round_: int) -> float:
    names = [f"many-{round_}-{i}" for i in range(count)]
    began = time.perf_counter()

    def submit(part: list[str]) -> None:
        connection = server.connect()
        for name in part:
            connection.request("POST", "/api/v2/jobs", json.dumps(job(name, "true")), server.headers)
            response = connection.getresponse()
            response.read()
            if response.status != 202:
                raise RuntimeError(f"submission failed: {response.status}")

    threads = [threading.Thread(target=submit, args=(names[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The last job is followed to its end; then the remaining ones are polled.
    follow_to_end(server, names[-1])
    while True:
        page = server.call("GET", "/api/v2/jobs?state=SUCCEEDED&limit=0&withTotalCount=true")
        if page["totalCount"] == count:
            return time.perf_counter() - began
        time.sleep(0.005)


def submissions(seconds: float = sized(3.0, 0.3)) -> Row:
    with Server() as server, tempfile.TemporaryDirectory() as folder:
        # One job occupies the node, so that submission is measured and not execution.
        server.call("POST", "/api/v2/jobs", job("holder", "sleep 600", cpu=os.cpu_count() or 1))
        bare_script = Path(folder) / "bare.py"
        bare_script.write_text(_BARE)
        port = free_port()
        bare = subprocess.Popen([sys.executable, str(bare_script), str(port)])
        number = iter(range(10**9))

        def load(address: str, path: str) -> float:
            host, _, at = address.partition(":")
            count = int(seconds * 9000)
            bodies = b"\n".join(
                json.dumps(job(f"submitted-{next(number)}", "true", pad=2048)).encode() for _ in range(count)
            )
            done = subprocess.run(
                [sys.executable, "-m", "bench.load", host, at, path, "16", str(seconds), server.token],
                input=bodies,
                stdout=subprocess.PIPE,
                check=True,
            )
            responses, errors, took = done.stdout.split()
            if int(errors):
                raise RuntimeError(f"{errors.decode()} submissions failed")
            return int(responses) / float(took)

        try:
            wait_for_port(port)
            netloc = urlsplit(server.url).netloc
            load(f"127.0.0.1:{port}", "/jobs")
            return ratio_row(
                "durable submissions, 16 connections, 2 kB / bare Starlette POST",
                *alternate(
                    lambda: load(netloc, "/api/v2/jobs"), lambda: load(f"127.0.0.1:{port}", "/jobs"), 5
                ),
                at_least=0.4,
                show=lambda v: f"{v:.0f}/s",
            )
        finally:
            bare.terminate()
            bare.wait()


def start_and_idle() -> list[Row]:
    ready, memory, idle = [], [], []
    with Server() as server:
        follow_once(server)
        for _ in range(sized(5, 1)):
            server.stop()
            server.start()
            ready.append(server.ready_s)
            memory.append(pss_kb(server.pids()) / 1024)
        pids = server.pids()
        time.sleep(sized(3.0, 0.1))  # let the work of the start finish
        interval_s = sized(5.0, 0.2)
        for _ in range(sized(4, 1)):
            before = cpu_s(pids)
            time.sleep(interval_s)
            idle.append((cpu_s(pids) - before) / interval_s * 100)
    return [
        limit_row("server ready after start (warm)", ready, at_most=1.0, show=ms),
        limit_row("idle memory (PSS of all our processes)", memory, at_most=80, show=lambda v: f"{v:.0f} MB"),
        # Too little CPU time for a meaningful spread: the mean counts.
        limit_row("idle CPU", [statistics.mean(idle)], at_most=0.2, show=lambda v: f"{v:.2f} %"),
    ]


def follow_once(server: Server) -> None:
    server.call("POST", "/api/v2/jobs", job("warm", "true"))
    follow_to_end(server, "warm")


def log_latency() -> Row:
    program = (
        "import sys,time\n"
        f"for i in range({sized(400, 20)}):\n"
        "    print(time.time_ns(), flush=True)\n"
        "    time.sleep(0.005)\n"
    )
    latencies: list[float] = []
    with Server() as server:
        command = f"{sys.executable} -c '{program}'"
        for run in range(sized(5, 1)):
            server.call("POST", "/api/v2/jobs", job(f"lines-{run}", command))
            latencies.append(_p99_of_lines(server, f"lines-{run}"))
    return limit_row("log line from flush to follower, p99", latencies, at_most=0.050, show=ms)


def _p99_of_lines(server: Server, name: str) -> float:
    connection = server.connect()
    connection.request("GET", f"/api/v2/jobs/{server.user}~{name}/follow", headers=server.headers)
    response = connection.getresponse()
    took = []
    while True:
        frame = json.loads(response.readline())
        if frame["kind"] == "log":
            data = response.read(frame["size"])
            now = time.time_ns()
            took += [(now - int(line)) / 1e9 for line in data.split()]
        elif frame["kind"] == "end":
            break
    connection.close()
    return sorted(took)[int(len(took) * 0.99)]
