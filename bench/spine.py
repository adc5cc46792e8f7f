"""The spine's figures: one job, many jobs, durable submissions, start, idle, the way of a line."""

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

from bench.server import Server, cpu_s, follow_to_end, job, pss_kb
from bench.table import Row, alternate, limit_row, ms, ratio_row

_BARE = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
async def take(request):
    body = await request.body()
    return Response(b'{"status":202,"message":"taken"}', 202, media_type="application/json")
app = Starlette(routes=[Route("/jobs", take, methods=["POST"])])
port = int(sys.argv[1])
uvicorn.run(app, port=port, http="httptools", loop="uvloop", access_log=False, log_level="warning")
"""


def rows() -> list[Row]:
    return [one_job(), many_jobs(), submissions(), *start_and_idle(), line_latency()]


def one_job() -> Row:
    with Server() as server, tempfile.TemporaryDirectory() as folder:
        number = iter(range(10**6))

        def ours() -> float:
            took = []
            for _ in range(10):
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
            for _ in range(10):
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
            "one `true` job, submit to SUCCEEDED seen / bash -c true + 2 fsyncs",
            *alternate(ours, reference),
            at_most=12,
            show=ms,
        )


def many_jobs(count: int = 500) -> Row:
    rates = []
    for round_ in range(5):
        with Server() as server:
            took = _run_many(server, count, round_)
            rates.append(count / took)
    return limit_row(
        f"{count} `true` jobs, all submitted, all finished",
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
            answer = connection.getresponse()
            answer.read()
            if answer.status != 202:
                raise RuntimeError(f"refused: {answer.status}")

    threads = [threading.Thread(target=submit, args=(names[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The last in line is followed to its end; what is left after it is asked for.
    follow_to_end(server, names[-1])
    while True:
        page = server.call("GET", "/api/v2/jobs?state=SUCCEEDED&limit=0&withTotalCount=true")
        if page["totalCount"] == count:
            return time.perf_counter() - began
        time.sleep(0.005)


def submissions(seconds: float = 3.0) -> Row:
    with Server() as server, tempfile.TemporaryDirectory() as folder:
        # One job holds the machine, so that taking jobs in is measured and not running them.
        server.call("POST", "/api/v2/jobs", job("holder", "sleep 600", cpu=os.cpu_count() or 1))
        bare_script = Path(folder) / "bare.py"
        bare_script.write_text(_BARE)
        port = 18731
        bare = subprocess.Popen([sys.executable, str(bare_script), str(port)])
        number = iter(range(10**9))

        def load(where: str, path: str) -> float:
            host, _, at = where.partition(":")
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
            answered, refused, took = done.stdout.split()
            if int(refused):
                raise RuntimeError(f"{refused.decode()} submissions were refused")
            return int(answered) / float(took)

        try:
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
        for _ in range(5):
            server.stop()
            server.start()
            ready.append(server.ready_s)
            memory.append(pss_kb(server.pids()) / 1024)
        pids = server.pids()
        time.sleep(3)  # what a start leaves to be done is not idling
        for _ in range(4):
            before = cpu_s(pids)
            time.sleep(5)
            idle.append((cpu_s(pids) - before) / 5 * 100)
    return [
        limit_row("server ready after start (warm)", ready, at_most=1.0, show=ms),
        limit_row("idle memory (PSS of all our processes)", memory, at_most=80, show=lambda v: f"{v:.0f} MB"),
        # Too few ticks to have a spread: the mean is the figure.
        limit_row("idle CPU", [statistics.mean(idle)], at_most=0.2, show=lambda v: f"{v:.2f} %"),
    ]


def follow_once(server: Server) -> None:
    server.call("POST", "/api/v2/jobs", job("warm", "true"))
    follow_to_end(server, "warm")


def line_latency() -> Row:
    program = (
        "import sys,time\n"
        "for i in range(400):\n"
        "    print(time.time_ns(), flush=True)\n"
        "    time.sleep(0.005)\n"
    )
    late: list[float] = []
    with Server() as server:
        command = f"{sys.executable} -c '{program}'"
        for run in range(5):
            server.call("POST", "/api/v2/jobs", job(f"lines-{run}", command))
            late.append(_p99_of_lines(server, f"lines-{run}"))
    return limit_row("a line flushed by a job to a follower, p99", late, at_most=0.050, show=ms)


def _p99_of_lines(server: Server, name: str) -> float:
    connection = server.connect()
    connection.request("GET", f"/api/v2/jobs/{server.user}~{name}/follow", headers=server.headers)
    answer = connection.getresponse()
    took = []
    while True:
        frame = json.loads(answer.readline())
        if frame["kind"] == "log":
            data = answer.read(frame["size"])
            now = time.time_ns()
            took += [(now - int(line)) / 1e9 for line in data.split()]
        elif frame["kind"] == "end":
            break
    connection.close()
    return sorted(took)[int(len(took) * 0.99)]
