"""Both containers of a pod, with the report API, without Kubernetes: pods are made of namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tarfile
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paicluster.engines.common import runtime_install
from paicluster.engines.common.gang_folders import GangFolders
from paicluster.engines.interface import Loss, Observation, Phase, Placeholders, TaskLaunch
from paicluster.engines.kubernetes import gang_folder, observe, pod_manifest
from paicluster.engines.kubernetes.options import KubernetesOptions, PodSettings
from paicluster.engines.kubernetes.pod_manifest import RUNTIME, TASK
from paicluster.engines.kubernetes.pod_states import Verdict
from paicluster.engines.kubernetes.report_sink import KubernetesReportSink
from paicluster.logs.reader import LogReader
from support import external_services
from support.container_images import PLAIN, WITH_BASH, WITH_PYTHON
from support.namespace_pod import NamespacePod
from support.ports import free_ports
from support.report_server import serving
from support.runtime_copy import copy_runtime

DEADLINE_S = 90.0
GRACE_S = 5.0
OPTIONS = KubernetesOptions(runtime_image=WITH_PYTHON, image=WITH_BASH)


def task(script: str, **fields: Any) -> TaskLaunch:
    defaults: dict[str, Any] = {"uid": str(uuid.uuid4()), "node": "", "environment": {"LANG": "C.UTF-8"}}
    return TaskLaunch(script=script, **{**defaults, **fields})


class Pods:
    """A server's side of a Kubernetes engine, and pods that report to it."""

    def __init__(self, home: Path, port: int):
        self.home = GangFolders(home)
        self.port = port
        self.sink = KubernetesReportSink(self.home, OPTIONS, _inline(), lambda uid: None)
        copy_runtime(home, runtime_install.install)
        self._runtime = next((home / "runtime").glob("*/pairuntime.pyz"))
        self._started: list[NamespacePod] = []

    def start(self, one: TaskLaunch, **options: Any) -> NamespacePod:
        """Prepare a task as the engine does, and start its pod."""
        context = pod_manifest.PodContext("cluster", one.uid, PodSettings(), OPTIONS, GRACE_S)
        ticket = uuid.uuid4().hex
        text = gang_folder.bootstrap_text(f"http://127.0.0.1:{self.port}", "", ticket, one.uid)
        secret = pod_manifest.secret_manifest(context, text)
        gang_folder.prepare(
            self.home,
            [one],
            OPTIONS,
            self._runtime,
            ticket=ticket,
            namespace="default",
            pool="all",
            manifests={},
            grace_s=GRACE_S,
        )
        manifest = pod_manifest.pod_manifest(one, context)
        pod = NamespacePod(manifest, [secret], self.home.root / f"pod-{one.uid}", **options)
        self._started.append(pod)
        return pod

    def observe(self, uid: str) -> Observation:
        return observe.observe_attempt(self.home.task(uid), is_prepared=True, reason_timeout_s=0)

    async def until(self, uid: str, *phases: Phase) -> Observation:
        async with asyncio.timeout(DEADLINE_S):
            while (seen := self.observe(uid)).phase not in phases:
                await asyncio.sleep(0.02)
        return seen

    async def run(self, one: TaskLaunch, **options: Any) -> Observation:
        pod = self.start(one, **options)
        try:
            seen = await self.until(one.uid, Phase.ENDED)
        except TimeoutError:
            path = self.home.gang(one.uid) / "diagnostics"
            diagnostics = path.read_text() if path.exists() else ""
            pytest.fail(f"{diagnostics}\n---\n{pod.output(RUNTIME)}\n---\n{pod.output(TASK)}")
        for name in (RUNTIME, TASK):
            await asyncio.to_thread(pod.wait, name)
        return seen

    def log(self, uid: str, stream: str = "all") -> bytes:
        return LogReader(self.home.task(uid), stream).read(0, 1 << 24).data

    async def wait_for_output(self, uid: str, text: bytes) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while text not in self.log(uid):
                await asyncio.sleep(0.02)

    def close(self) -> None:
        for pod in self._started:
            pod.close()


def _inline() -> Any:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1)


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    if os.geteuid() != 0:
        external_services.missing("root, to make namespaces")
    made = Pods(tmp_path / "home", free_ports(1)[0])
    yield made
    made.close()


@contextlib.asynccontextmanager
async def served(pods: Pods) -> AsyncIterator[None]:
    async with serving(pods.sink, "127.0.0.1", pods.port):
        yield


async def test_task_runs_with_its_environment_and_reports(pods: Pods) -> None:
    one = task(
        'echo "$GIVEN|${KUBERNETES_PORT-}|$PWD"; echo err >&2; command -v hdfs; id -u; exit 3',
        environment={"GIVEN": 'it\'s "quoted" $HOME\n\\n'},
    )
    async with served(pods):
        seen = await pods.run(one)
    assert (seen.exit_code, seen.signal, seen.start_error, seen.stopped) == (3, None, "", False)
    assert seen.started_ms and seen.ended_ms and seen.started_ms <= seen.ended_ms
    assert pods.log(one.uid, "stdout") == (
        b'it\'s "quoted" $HOME\n\\n||/pai/work\n/pai/runtime/bin/hdfs\n1000\n'
    )
    assert pods.log(one.uid, "stderr") == b"err\n"


@pytest.mark.parametrize("order", [(RUNTIME, TASK), (TASK, RUNTIME)])
async def test_containers_may_start_in_any_order(pods: Pods, order: tuple[str, str]) -> None:
    one = task("echo done")
    async with served(pods):
        assert (await pods.run(one, order=order)).exit_code == 0
    assert pods.log(one.uid) == b"done\n"


async def test_image_needs_a_shell_and_nothing_else(pods: Pods) -> None:
    one = replace(task("echo alone; exit 4"), image=PLAIN)
    async with served(pods):
        assert (await pods.run(one)).exit_code == 4
    assert pods.log(one.uid) == b"alone\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGPIPE])
async def test_signal_of_the_program_is_reported(pods: Pods, number: signal.Signals) -> None:
    one = task(f"kill -{number.value} $$")
    async with served(pods):
        seen = await pods.run(one)
    assert (seen.exit_code, seen.signal, seen.killed_by_us) == (None, number, False)


async def test_output_is_complete_and_secrets_are_masked(pods: Pods) -> None:
    one = task(
        "seq 200000; printf hunter2-; sleep 0.2; printf 'secret;'; printf 'no end' >&2",
        secrets=("hunter2-secret",),
    )
    async with served(pods):
        await pods.run(one)
    assert pods.log(one.uid, "stdout") == b"".join(b"%d\n" % n for n in range(1, 200001)) + b"******;"
    assert pods.log(one.uid, "stderr") == b"no end"


async def test_leftover_processes_are_ended_with_the_program(pods: Pods) -> None:
    one = task("(trap '' TERM; while :; do sleep 0.1; done) & sleep 0.2; exit 5")
    async with served(pods):
        seen = await pods.run(one)
    assert (seen.exit_code, seen.signal, seen.killed_by_us) == (5, None, False)


async def test_output_of_a_process_that_drains_its_pipe_is_kept(pods: Pods) -> None:
    one = task("exec > >(cat) 2>&1\nseq 20000\necho last")
    async with served(pods):
        await pods.run(one)
    assert pods.log(one.uid) == b"".join(b"%d\n" % n for n in range(1, 20001)) + b"last\n"


async def test_deleted_pod_ends_its_task_with_the_grace_that_the_server_says(pods: Pods) -> None:
    one = task("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done")
    async with served(pods):
        pod = pods.start(one)
        await pods.wait_for_output(one.uid, b"up")
        gang_folder.request_stop(pods.home.task(one.uid), one.uid, 60)
        pod.terminate()
        seen = await pods.until(one.uid, Phase.ENDED)
    assert (seen.exit_code, seen.stopped, seen.killed_by_us, seen.loss) == (7, True, False, None)
    assert pods.log(one.uid, "stdout") == b"up\nbye\n"


async def test_task_that_ignores_the_signal_is_killed_after_its_grace(pods: Pods) -> None:
    one = task("trap '' TERM; echo up; while :; do sleep 0.05; done")
    async with served(pods):
        pod = pods.start(one)
        await pods.wait_for_output(one.uid, b"up")
        gang_folder.request_stop(pods.home.task(one.uid), one.uid, 0.2)
        pod.terminate()
        seen = await pods.until(one.uid, Phase.ENDED)
    assert (seen.signal, seen.stopped, seen.killed_by_us) == (signal.SIGKILL, True, True)


async def test_pod_deleted_by_others_is_not_a_stop(pods: Pods) -> None:
    one = task("trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done")
    async with served(pods):
        pod = pods.start(one)
        await pods.wait_for_output(one.uid, b"up")
        pod.terminate()
        seen = await pods.until(one.uid, Phase.ENDED)
    assert seen.stopped is False and seen.loss is not None


async def test_nothing_runs_on_without_the_runtime(pods: Pods) -> None:
    one = task("trap '' TERM HUP PIPE; echo up; while :; do sleep 0.05; done")
    async with served(pods):
        pod = pods.start(one)
        await pods.wait_for_output(one.uid, b"up")
        pod.kill(RUNTIME)
        await asyncio.to_thread(pod.wait, TASK)
        assert pods.observe(one.uid).phase is Phase.RUNNING  # what Kubernetes says decides


async def test_task_that_was_given_up_ends_though_its_node_is_away(pods: Pods) -> None:
    one = task("trap '' TERM; echo up; while :; do sleep 0.05; done")
    async with served(pods):
        pod = pods.start(one)
        await pods.wait_for_output(one.uid, b"up")
        gang_folder.write_verdict(pods.home.task(one.uid), Verdict(loss=Loss.NODE))
        assert pods.observe(one.uid).loss is Loss.NODE
        # The next report is refused.
        for name in (RUNTIME, TASK):
            await asyncio.to_thread(pod.wait, name)
        assert pods.observe(one.uid).phase is Phase.LOST


async def test_stopped_task_never_starts(pods: Pods) -> None:
    one = task("echo never")
    async with served(pods):
        pod = pods.start(one)
        gang_folder.request_stop(pods.home.task(one.uid), one.uid, 1)
        seen = await pods.until(one.uid, Phase.ENDED)
        # Of its containers one asks the server, and the other ends with it.
        await asyncio.to_thread(pod.wait, RUNTIME)
    assert seen.stopped and pods.log(one.uid) == b""


async def test_start_that_fails_is_reported_with_the_words_of_the_shell(pods: Pods) -> None:
    one = task("echo never", environment={"HUGE": "x" * 200_000})
    async with served(pods):
        seen = await pods.run(one)
    assert "too long" in seen.start_error
    assert pods.log(one.uid) == b""


async def test_sources_placeholders_and_time_limit(pods: Pods, tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("from sources\n")
    with tarfile.open(tmp_path / "sources.tar", "w") as archive:
        archive.add(tmp_path / "given.txt", "data/given.txt")
    one = task(
        'cat data/given.txt; echo "$ADDRESS $GPUS"; echo "$PORT" | grep -E "^[0-9]+$" > port; sleep 600',
        sources=tmp_path / "sources.tar",
        environment={"ADDRESS": "%pai.0.ip%", "PORT": "%pai.0.p.web.0%", "GPUS": "%pai.0.gpus%"},
        placeholders=Placeholders("%pai.0.ip%", {"web": ("%pai.0.p.web.0%",)}, "%pai.0.gpus%"),
        gpu_count=2,
        time_limit_s=2,
    )
    async with served(pods):
        seen = await pods.run(one)
    assert pods.log(one.uid) == b"from sources\n127.0.0.1 0,1\n"
    assert seen.timed_out and seen.signal == signal.SIGTERM
    assert seen.placement is not None and seen.placement.ip == "127.0.0.1" and seen.placement.ports["web"]


async def test_server_that_is_away_gets_everything_when_it_is_back(pods: Pods) -> None:
    one = task("echo before; until [ -e go ]; do sleep 0.05; done; echo after; exit 6")
    async with served(pods):
        pod = pods.start(one)
        await pods.wait_for_output(one.uid, b"before")
    (pod.volumes["work"] / "go").touch()
    await asyncio.to_thread(pod.processes[TASK].wait, DEADLINE_S)
    assert pods.observe(one.uid).phase is Phase.RUNNING
    async with served(pods):
        assert (await pods.until(one.uid, Phase.ENDED)).exit_code == 6
    assert pods.log(one.uid) == b"before\nafter\n"
