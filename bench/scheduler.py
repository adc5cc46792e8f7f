"""The scheduler's figures: the next start behind a long line, the cost of a pass, a gang of two thousand."""

from __future__ import annotations

import json
import math
import statistics
import time
from typing import Any

from bench.server import Server, job
from bench.table import Row, alternate, limit_row, ms, ratio_row
from paicluster.scheduler.node_capacity import NodeCapacity
from paicluster.scheduler.pending_jobs import PRIORITY_CLASSES, PendingJobs, QueuedJob
from paicluster.scheduler.plan import Snapshot, plan
from paicluster.scheduler.resource_requests import ResourceRequest, Resources, RoleRequest

CLUSTERS = 8


def rows() -> list[Row]:
    return [next_start(), pass_cost(), *large_gang()]


# -- a task ends with 10 000 jobs waiting --------------------------------------------------------------


def next_start(waiting: int = 10_000, ends: int = 200) -> Row:
    """One core for each of 8 virtual clusters; each job is as short as can be, the next one follows it."""
    names = [f"vc{number}" for number in range(1, CLUSTERS)]
    shares = [word for name in names for word in ("--virtual-cluster", f"{name}=0,1,1000")]
    values = []
    with Server(
        "--cpus", str(CLUSTERS), "--memory-mb", str(CLUSTERS * 1000), "--gpus", "0", *shares
    ) as server:
        clusters = ["default", *names]
        for number, name in enumerate(clusters):
            _post(server, [_in(name, f"holder-{number}", "sleep 600")])
        # Shapes differ, so that the line is not all of one kind.
        line = [
            _in(clusters[n % CLUSTERS], f"waits-{n}", "sleep 600", memory_mb=10 + n % 20)
            for n in range(waiting)
        ]
        _post(server, line)
        running = {name: f"holder-{number}" for number, name in enumerate(clusters)}
        turn = 0
        for _ in range(5):
            took = []
            for _ in range(ends // 5):
                name = clusters[turn % CLUSTERS]
                turn += 1
                gap, running[name] = _end_to_next(server, running[name], name)
                took.append(gap)
            # Of twenty the nineteenth, not the slowest: that one alone would be the figure.
            values.append(sorted(took)[math.ceil(len(took) * 0.95) - 1])
    return limit_row(
        f"a task ends with {waiting} jobs waiting in {CLUSTERS} virtual clusters, to the next launched, p95",
        values,
        at_most=0.050,
        show=ms,
    )


def _in(cluster: str, name: str, command: str, *, memory_mb: int = 64) -> dict[str, Any]:
    return {**job(name, command, memory_mb=memory_mb), "defaults": {"virtualCluster": cluster}}


def _post(server: Server, described: list[dict[str, Any]]) -> None:
    connection = server.connect()
    for one in described:
        connection.request("POST", "/api/v2/jobs", json.dumps(one), server.headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 202:
            raise RuntimeError(f"refused: {answer.status} {text!r}")
    connection.close()


def _end_to_next(server: Server, name: str, cluster: str) -> tuple[float, str]:
    """End what runs in a virtual cluster: the time to the start of the next, and the name of that one."""
    server.call("PUT", f"/api/v2/jobs/{server.user}~{name}/executionType", {"value": "STOP"})
    while True:
        found = server.call("GET", f"/api/v2/jobs?state=RUNNING&vc={cluster}&limit=2")
        fresh = [one["name"] for one in found if one["name"] != name]
        if fresh:
            break
        time.sleep(0.002)
    ended = server.call("GET", f"/api/v2/jobs/{server.user}~{name}")["jobStatus"]["completedTime"]
    begun = server.call("GET", f"/api/v2/jobs/{server.user}~{fresh[0]}")["jobStatus"]["appLaunchedTime"]
    return (begun - ended) / 1000, fresh[0]


# -- one pass --------------------------------------------------------------------------------------


def pass_cost(few: int = 1_000, many: int = 100_000, shapes: int = 20) -> Row:
    """A pass over a full cluster of which one place has become free."""
    needs = [ResourceRequest((RoleRequest("main", 1, Resources(1, 10 + n, 0)),)) for n in range(shapes)]
    small, large = _line(few, needs), _line(many, needs)
    return ratio_row(
        f"one scheduling pass with {many} jobs waiting of {shapes} shapes / with {few}",
        *alternate(lambda: _one_pass(large), lambda: _one_pass(small), 15),
        at_most=2,
        show=ms,
    )


def _line(count: int, needs: list[ResourceRequest]) -> PendingJobs:
    waiting = PendingJobs()
    for n in range(count):
        user, priority = f"user{n % 10}", PRIORITY_CLASSES[n // 10 % len(PRIORITY_CLASSES)]
        waiting.add(QueuedJob(n, f"vc{n % CLUSTERS}", user, priority, needs[n % len(needs)]))
    return waiting


def _one_pass(waiting: PendingJobs) -> float:
    whole = Resources(64, 640_000, 0)
    share = Resources(whole.cpu // CLUSTERS, whole.memory_mb // CLUSTERS, 0)
    used = {f"vc{n}": Resources(share.cpu, 1000, 0) for n in range(CLUSTERS)}
    used["vc3"] = Resources(share.cpu - 1, 1000, 0)
    room = NodeCapacity("here", whole, Resources(1, whole.memory_mb - 8000, 0))
    snapshot = Snapshot([room], {f"vc{n}": share for n in range(CLUSTERS)}, used)
    took = []
    for _ in range(5):
        began = time.perf_counter()
        decisions = plan(snapshot, waiting)
        took.append(time.perf_counter() - began)
        if not decisions:
            raise RuntimeError("nothing was decided")
    return statistics.median(took)


# -- a large gang ----------------------------------------------------------------------------------


def large_gang(tasks: int = 2_000, runs: int = 3) -> list[Row]:
    """A quarter of it comes first: what grows faster than the gang would take the machine down with it."""
    what = f"{tasks}-task gang of `sleep`, to all launched", f"{tasks}-task gang, to all stopped"
    sample = tasks // 4
    quick, _ = _gang(sample, 0)
    if quick > _LIMIT_S / 2:
        ours = f"not run: {sample} tasks took {quick:.1f} s"
        return [Row(one, ours, "-", "-", f"<= {_seconds(_LIMIT_S)}", False) for one in what]
    launched, stopped = zip(*(_gang(tasks, run) for run in range(runs)), strict=True)
    return [
        limit_row(what[0], list(launched), at_most=_LIMIT_S, show=_seconds),
        limit_row(what[1], list(stopped), at_most=_LIMIT_S, show=_seconds),
    ]


_LIMIT_S = 10.0


def _seconds(value: float) -> str:
    return f"{value:.1f} s"


def _gang(tasks: int, run: int) -> tuple[float, float]:
    """From the submission until all run, and from asking to stop until all have stopped."""
    with Server("--cpus", str(tasks * 2), "--memory-mb", str(tasks * 100), "--gpus", "0") as server:
        name = f"gang-{run}"
        described = job(name, "sleep 600", memory_mb=10)
        described["taskRoles"]["main"]["instances"] = tasks
        began = time.perf_counter()
        server.call("POST", "/api/v2/jobs", described)
        _until_tasks(server, name, "RUNNING", tasks)
        launched = time.perf_counter() - began
        began = time.perf_counter()
        server.call("PUT", f"/api/v2/jobs/{server.user}~{name}/executionType", {"value": "STOP"})
        while server.call("GET", f"/api/v2/jobs?keyword={name}")[0]["state"] != "STOPPED":
            time.sleep(0.02)
        return launched, time.perf_counter() - began


def _until_tasks(server: Server, name: str, state: str, count: int) -> None:
    """Looked at lightly: the whole of so large a job, again and again, would be half the work of a core."""
    while server.call("GET", f"/api/v2/jobs?keyword={name}")[0]["state"] == "WAITING":
        time.sleep(0.05)
    while True:
        found = server.call("GET", f"/api/v2/jobs/{server.user}~{name}")
        tasks = found["taskRoles"].get("main", {}).get("taskStatuses", [])
        if sum(task["taskState"] == state for task in tasks) == count:
            return
        if found["jobStatus"]["state"] in ("FAILED", "STOPPED"):
            raise RuntimeError(f"the gang ended: {found['jobStatus']}")
        time.sleep(0.3)
