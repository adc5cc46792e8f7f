"""The engine on a real Kubernetes 1.20: its contract, and what only a kubelet and a scheduler do."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from paicluster.engines.interface import Loss, Phase
from support.container_images import NO_SHELL, WITH_BASH, WITH_PYTHON
from support.engine_contract.launch_contract import LaunchContract
from support.engine_contract.log_contract import LogContract
from support.engine_contract.stop_contract import StopContract
from support.engine_rig import Driven, appears, task
from support.kubernetes_cluster import RealKubernetes
from support.kubernetes_rig import KubernetesRig
from support.ports import free_ports
from support.server_fixture import Cluster, eventually, job

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.xdist_group("kubernetes")]

FILE = """
listen: {{external-url: "http://{host}:{port}", host: 0.0.0.0, allow-plain-http: true}}
engine:
  type: kubernetes
  kubeconfig: {kubeconfig}
  runtime-image: {runtime}
  image: {image}
"""


# Not yet: sessions and usage.
class TestKubernetesEngine(LaunchContract, StopContract, LogContract):
    async def test_ports_in_use_are_not_free(self, rig: KubernetesRig) -> None:  # type: ignore[override]
        """Not applicable: a pod has an address of its own."""
        async with Driven(rig) as driven:
            assert driven.engine.ports_free(rig.node, [80], non_ephemeral=False)


async def test_nothing_is_left_of_a_task(rig: KubernetesRig, kubernetes: RealKubernetes) -> None:
    async with Driven(rig) as driven:
        (seen,) = await driven.run(task(rig, "exit 3"))
        assert (seen.exit_code, seen.placement is not None and seen.placement.node) == (
            3,
            kubernetes.nodes[0],
        )
        await appears(lambda: not kubernetes.pods() and not kubernetes.secrets(), "the end of all objects")


async def test_image_without_a_shell_is_rejected_with_a_sentence(rig: KubernetesRig) -> None:
    async with Driven(rig) as driven:
        (seen,) = await driven.run(replace(task(rig, "true"), image=NO_SHELL))
    assert seen.platform_code == -1203 and "has no shell" in seen.rejection


async def test_image_that_cannot_be_pulled_is_rejected_after_a_while(rig: KubernetesRig) -> None:
    async with Driven(rig, image_timeout_s=3) as driven:
        one = replace(task(rig, "true"), image="nosuch.invalid/x:1")
        await driven.launch(one)
        await appears(lambda: [notice for _, notice in driven.notices], "a word on the image")
        seen = await driven.ended(one.uid)
    assert seen.platform_code == -120 and "could not be pulled" in seen.rejection


async def test_out_of_memory_is_reported(rig: KubernetesRig) -> None:
    one = task(rig, 'x=$(head -c 200000000 /dev/zero | tr "\\0" x)', memory_mb=60)
    async with Driven(rig) as driven:
        (seen,) = await driven.run(one)
    assert (seen.signal, seen.out_of_memory) == (signal.SIGKILL, True)


@pytest.mark.parametrize("grace_s", [30, 0])
async def test_pod_that_others_delete_is_cancelled(
    rig: KubernetesRig, kubernetes: RealKubernetes, grace_s: int
) -> None:
    one = task(rig, "echo up; sleep 600")
    async with Driven(rig) as driven:
        await driven.launch(one)
        await driven.wait_for_output(one.uid, b"up")
        path = f"/api/v1/namespaces/default/pods/{one.uid}?gracePeriodSeconds={grace_s}"
        await asyncio.to_thread(kubernetes.request, "DELETE", path)
        seen = await driven.until(one.uid, Phase.ENDED, Phase.LOST)
        assert seen.loss is Loss.CANCELLED and not seen.stopped
        assert driven.log(one.uid, "stdout") == b"up\n"


async def test_tasks_run_while_the_api_server_is_away(rig: KubernetesRig, kubernetes: RealKubernetes) -> None:
    one = task(rig, "echo before; until [ -e go ]; do sleep 0.05; done; echo after; exit 6")
    other = task(rig, "exit 7")
    async with Driven(rig) as driven:
        await driven.launch(one)
        await driven.wait_for_output(one.uid, b"before")
        await asyncio.to_thread(kubernetes.stop_api_server)
        try:
            await driven.launch(other)
            await appears(
                lambda: "KubernetesUnavailable" in [notice.reason for _, notice in driven.notices],
                "a word on it",
            )
            work = next(kubernetes.folder.glob("node0/kubelet/pods/*/volumes/kubernetes.io~empty-dir/work"))
            (work / "go").touch()
            assert (await driven.ended(one.uid)).exit_code == 6
            assert driven.log(one.uid) == b"before\nafter\n"
        finally:
            await asyncio.to_thread(kubernetes.start_api_server)
        assert (await driven.ended(other.uid)).exit_code == 7


@pytest.fixture(scope="module")
def cluster(kubernetes: RealKubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home, port = tmp_path_factory.mktemp("cluster") / "home", free_ports(1)[0]
    home.mkdir()
    values = {"kubeconfig": kubernetes.kubeconfig, "runtime": WITH_PYTHON, "image": WITH_BASH}
    (home / "cluster.yaml").write_text(FILE.format(host=kubernetes.host, port=port, **values))
    running = Cluster(home, ("--embedded", "--port", str(port)))
    try:
        yield running.start()
    finally:
        running.close()


def test_job_through_a_server(cluster: Cluster, kubernetes: RealKubernetes) -> None:
    cluster.accept(job("trivial", "echo hello from $PAI_TASK_ROLE_NAME", "exit 3"))
    ended: dict[str, Any] = cluster.wait_over("trivial")
    assert ended["state"] == "FAILED"
    assert cluster.log_of("trivial") == b"hello from main\n"
    assert ended["appExitMessages"]["runtime"]["originUserExitCode"] == 3
    eventually(lambda: not kubernetes.pods() and not kubernetes.secrets(), "the end of all objects")


def test_job_that_is_stopped_through_a_server(cluster: Cluster, kubernetes: RealKubernetes) -> None:
    cluster.accept(job("long", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done"))
    eventually(lambda: b"up" in cluster.log_of("long"), "the output")
    cluster.stop("long")
    assert cluster.wait_over("long")["state"] == "STOPPED"
    assert b"bye" in cluster.log_of("long")
    eventually(lambda: not kubernetes.pods(), "the end of all pods")
