"""The engine, with a stand-in for the API server and pods made of namespaces."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paicluster.engines.common import runtime_install
from paicluster.engines.interface import Notice, Observation, Phase, Placeholders, TaskLaunch
from paicluster.engines.kubernetes import cluster_access
from paicluster.engines.kubernetes.engine import KubernetesEngine
from paicluster.engines.kubernetes.options import KubernetesOptions
from paicluster.logs.reader import LogReader
from support import external_services, namespace_kubernetes
from support.container_images import WITH_BASH, WITH_PYTHON
from support.namespace_kubernetes import NamespaceKubernetes
from support.ports import free_ports
from support.report_server import serving
from support.runtime_copy import copy_runtime

DEADLINE_S = 90.0
OPTIONS = KubernetesOptions(runtime_image=WITH_PYTHON, image=WITH_BASH, drain_s=5, reason_timeout_s=5)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NamespaceKubernetes]:
    if os.geteuid() != 0:
        external_services.missing("root, to make namespaces")
    (tmp_path / "pods").mkdir()
    with namespace_kubernetes.running(tmp_path / "pods") as made:
        yield made


def task(script: str, **fields: Any) -> TaskLaunch:
    given: dict[str, Any] = {"uid": str(uuid.uuid4()), "node": "", "environment": {"LANG": "C.UTF-8"}}
    return TaskLaunch(script=script, **{**given, "owner": "alice", "job": "train", "vc": "default", **fields})


class Driven:
    def __init__(self, engine: KubernetesEngine):
        self.engine = engine
        self.notices: list[Notice] = []

    async def until(self, uid: str, *phases: Phase) -> Observation:
        async with asyncio.timeout(DEADLINE_S):
            while (seen := (await self.engine.observe([uid]))[uid]).phase not in phases:
                await asyncio.sleep(0.02)
        return seen

    async def ended(self, uid: str) -> Observation:
        return await self.until(uid, Phase.ENDED, Phase.LOST)

    def log(self, uid: str, stream: str = "all") -> bytes:
        return LogReader(self.engine.log_folder(uid), stream).read(0, 1 << 24).data

    async def wait_for_output(self, uid: str, text: bytes) -> None:
        await until(lambda: text in self.log(uid))


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not true():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def driven(
    cluster: NamespaceKubernetes, home: Path, port: int = 0, options: KubernetesOptions = OPTIONS
) -> AsyncIterator[Driven]:
    """An engine as a server has it; a second one over the same home is that of the next server."""
    port = port or free_ports(1)[0]
    copy_runtime(home, runtime_install.install)
    access = cluster_access.of_kubeconfig([cluster.write_kubeconfig(home / "kubeconfig")])
    engine = KubernetesEngine(home, options, access, url=f"http://127.0.0.1:{port}", grace_s=5)
    made = Driven(engine)
    await engine.start(lambda uid: None, lambda uid, notice: made.notices.append(notice))
    try:
        async with serving(engine.reports, "127.0.0.1", port):
            yield made
    finally:
        await engine.close()


async def test_task_runs_and_nothing_is_left(cluster: NamespaceKubernetes, tmp_path: Path) -> None:
    one = task("echo out; echo err >&2; exit 3", secrets=("hunter2-secret",))
    async with driven(cluster, tmp_path / "home") as made:
        await made.engine.launch([one])
        seen = await made.ended(one.uid)
        assert (seen.phase, seen.exit_code, seen.stopped) == (Phase.ENDED, 3, False)
        assert seen.placement is not None and seen.placement.node == namespace_kubernetes.NODE
        assert made.log(one.uid, "stdout") == b"out\n" and made.log(one.uid, "stderr") == b"err\n"
        await until(lambda: not cluster.names("pods") and not cluster.names("secrets"))
        again = await made.ended(one.uid)
        assert again == seen
        # A second launch changes nothing.
        await made.engine.launch([one])
        assert await made.ended(one.uid) == seen
        assert cluster.requests.count("POST pods") == 1
    left = [
        path for path in (tmp_path / "home").rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()
    ]
    assert left == []


async def test_nodes_are_those_of_the_cluster(cluster: NamespaceKubernetes, tmp_path: Path) -> None:
    async with driven(cluster, tmp_path / "home") as made:
        (node,) = made.engine.nodes()
        assert (node.name, node.cpu, node.memory_mb, node.gpus) == (
            namespace_kubernetes.NODE,
            64,
            16384,
            (0, 1),
        )


async def test_stop_gives_the_task_its_grace(cluster: NamespaceKubernetes, tmp_path: Path) -> None:
    one = task("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done")
    async with driven(cluster, tmp_path / "home") as made:
        await made.engine.launch([one])
        await made.wait_for_output(one.uid, b"up")
        await made.engine.stop([one.uid], 30)
        seen = await made.ended(one.uid)
        assert (seen.exit_code, seen.stopped, seen.killed_by_us) == (7, True, False)
        assert made.log(one.uid, "stdout") == b"up\nbye\n"
        await until(lambda: not cluster.names("pods"))


async def test_stop_before_the_pod_has_a_node(cluster: NamespaceKubernetes, tmp_path: Path) -> None:
    cluster.unschedulable = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    one = task("echo never")
    async with driven(cluster, tmp_path / "home") as made:
        await made.engine.launch([one])
        await until(lambda: made.notices)
        assert made.notices[0].pending and "without enough free nvidia.com/gpu" in made.notices[0].message
        assert (await made.until(one.uid, Phase.QUEUED)).phase is Phase.QUEUED
        await made.engine.stop([one.uid], 30)
        seen = await made.ended(one.uid)
        assert seen.stopped and seen.started_ms is None
        await until(lambda: not cluster.names("pods") and not cluster.names("secrets"))
        assert made.log(one.uid) == b""


async def test_stopped_attempt_is_never_created(cluster: NamespaceKubernetes, tmp_path: Path) -> None:
    one = task("echo never")
    async with driven(cluster, tmp_path / "home") as made:
        await made.engine.stop([one.uid], 5)
        await made.engine.launch([one])
        assert (await made.ended(one.uid)).stopped
    assert "POST pods" not in cluster.requests


async def test_pod_deleted_by_others_is_lost(cluster: NamespaceKubernetes, tmp_path: Path) -> None:
    one = task("echo up; exec sleep 600")
    async with driven(cluster, tmp_path / "home") as made:
        await made.engine.launch([one])
        await made.wait_for_output(one.uid, b"up")
        await made.engine._client.delete(f"/api/v1/namespaces/default/pods/{one.uid}", grace_s=10)  # type: ignore[union-attr]
        seen = await made.ended(one.uid)
        assert seen.loss is not None and not seen.stopped
        assert made.log(one.uid) == b"up\n"


async def test_pod_that_vanishes_is_lost(cluster: NamespaceKubernetes, tmp_path: Path) -> None:
    one = task("echo up; exec sleep 600")
    async with driven(cluster, tmp_path / "home") as made:
        await made.engine.launch([one])
        await made.wait_for_output(one.uid, b"up")
        await made.engine._client.delete(f"/api/v1/namespaces/default/pods/{one.uid}", grace_s=0)  # type: ignore[union-attr]
        seen = await made.ended(one.uid)
        assert seen.phase is Phase.LOST and seen.exit_code is None
        # It stays lost.
        await made.engine.launch([one])
        assert (await made.ended(one.uid)).phase is Phase.LOST


async def test_runtime_that_is_killed_loses_its_task(cluster: NamespaceKubernetes, tmp_path: Path) -> None:
    one = task("echo up; exec sleep 600")
    async with driven(cluster, tmp_path / "home") as made:
        await made.engine.launch([one])
        await made.wait_for_output(one.uid, b"up")
        cluster.pods[one.uid].kill("pai-runtime")
        assert (await made.ended(one.uid)).phase is Phase.LOST


async def test_next_server_adopts_what_an_earlier_one_started(
    cluster: NamespaceKubernetes, tmp_path: Path
) -> None:
    home, port = tmp_path / "home", free_ports(1)[0]
    long, short = (
        task("echo before; until [ -e go ]; do sleep 0.02; done; echo after; exit 22"),
        task("exit 21"),
    )
    async with driven(cluster, home, port) as made:
        await made.engine.launch([long])
        await made.wait_for_output(long.uid, b"before")
        await made.engine.launch([short])
    (cluster.pods[long.uid].volumes["work"] / "go").touch()
    async with driven(cluster, home, port) as made:
        assert (await made.ended(long.uid)).exit_code == 22
        assert made.log(long.uid) == b"before\nafter\n"
        assert (await made.ended(short.uid)).exit_code == 21
        await until(lambda: not cluster.names("pods") and not cluster.names("secrets"))


async def test_pod_of_no_attempt_is_deleted(cluster: NamespaceKubernetes, tmp_path: Path) -> None:
    one = task("exec sleep 600")
    async with driven(cluster, tmp_path / "home") as made:
        await made.engine.launch([one])
        await made.until(one.uid, Phase.RUNNING)
        await made.engine.remove([one.uid])
        await until(lambda: not cluster.names("pods") and not cluster.names("secrets"))
        assert not made.engine.has(one.uid)


async def test_killed_task_is_reported_once_its_reason_is_known(
    cluster: NamespaceKubernetes, tmp_path: Path
) -> None:
    one = task("kill -KILL $$")
    async with driven(cluster, tmp_path / "home") as made:
        await made.engine.launch([one])
        began = time.monotonic()
        seen = await made.ended(one.uid)
        assert (seen.signal, seen.killed_by_us, seen.out_of_memory) == (signal.SIGKILL, False, False)
        assert time.monotonic() - began < DEADLINE_S / 2


async def test_tasks_of_a_gang_know_each_other_and_start_together(
    cluster: NamespaceKubernetes, tmp_path: Path
) -> None:
    shared = {"ALL": "%pai.0.ip%:%pai.0.w.0% %pai.1.ip%:%pai.1.w.0%"}
    gang = [
        task(
            'echo "$ALL"; echo "mine $PORT"',
            shared_environment=shared,
            environment={"PORT": f"%pai.{number}.w.0%"},
            placeholders=Placeholders(
                f"%pai.{number}.ip%", {"w": (f"%pai.{number}.w.0%",)}, f"%pai.{number}.gpus%"
            ),
        )
        for number in range(2)
    ]
    async with driven(cluster, tmp_path / "home") as made:
        await made.engine.launch(gang)
        assert [(await made.ended(one.uid)).exit_code for one in gang] == [0, 0]
        logs = [made.log(one.uid).decode().splitlines() for one in gang]
        assert logs[0][0] == logs[1][0]
        ports = [word.partition(":")[2] for word in logs[0][0].split()]
        # Both pods have the address of this machine here.
        assert ports[0] != ports[1]
        assert [lines[1] for lines in logs] == [f"mine {port}" for port in ports]
        await until(lambda: not cluster.names("pods") and not cluster.names("secrets"))


async def test_gang_that_is_not_scheduled_in_time_is_withdrawn_and_created_again(
    cluster: NamespaceKubernetes, tmp_path: Path
) -> None:
    cluster.unschedulable = "0/1 nodes are available: 1 Insufficient cpu."
    gang = [task("exit 4") for _ in range(2)]
    options = replace(OPTIONS, gang_timeout_s=1)
    async with driven(cluster, tmp_path / "home", options=options) as made:
        await made.engine.launch(gang)
        await until(lambda: "GangWithdrawn" in [one.reason for one in made.notices])
        assert cluster.names("pods") == []
        assert (await made.until(gang[0].uid, Phase.QUEUED)).phase is Phase.QUEUED
        cluster.unschedulable = ""
        assert [(await made.ended(one.uid)).exit_code for one in gang] == [4, 4]


async def test_gangs_of_one_pool_are_created_one_after_the_other(
    cluster: NamespaceKubernetes, tmp_path: Path
) -> None:
    cluster.unschedulable = "0/1 nodes are available: 1 Insufficient cpu."
    first, second = ([task("exit 0") for _ in range(2)] for _ in range(2))
    alone = task("exit 0")
    async with driven(cluster, tmp_path / "home") as made:
        await made.engine.launch(first)
        await until(lambda: len(cluster.names("pods")) == 2)
        await made.engine.launch(second)
        await made.engine.launch([alone])
        await until(lambda: alone.uid in cluster.names("pods"))
        assert {one.uid for one in second}.isdisjoint(cluster.names("pods"))
        cluster.unschedulable = ""
        for one in (*first, *second, alone):
            assert (await made.ended(one.uid)).exit_code == 0


async def test_api_server_that_is_away_delays_a_launch(tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    cluster = NamespaceKubernetes(tmp_path / "pods")
    one = task("exit 5")
    async with driven(cluster, tmp_path / "home") as made:
        await made.engine.launch([one])
        await until(lambda: made.notices)
        assert made.notices[0].reason == "KubernetesUnavailable"
        assert (await made.until(one.uid, Phase.QUEUED)).phase is Phase.QUEUED
        cluster.start()
        try:
            assert (await made.ended(one.uid)).exit_code == 5
        finally:
            await asyncio.to_thread(cluster.stop)
