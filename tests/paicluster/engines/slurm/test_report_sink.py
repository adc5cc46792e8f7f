"""Report sink: uploads are stored once, in order and within limits."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from paicluster.config.sections import EngineSettings
from paicluster.config.settings import Settings
from paicluster.engines.interface import Node as Machine
from paicluster.engines.interface import Phase, TaskLaunch
from paicluster.engines.slurm import gang_folder as folder
from paicluster.engines.slurm import observe, runtime_archive, sbatch_command
from paicluster.engines.slurm.options import SlurmOptions
from paicluster.engines.slurm.remote_launch import RemoteLaunch
from paicluster.engines.slurm.report_sink import SlurmReportSink
from paicluster.logs.metric_summary import summarize
from paicluster.logs.reader import LogReader
from paicluster.logs.task_metrics import read_metric_lines
from paicluster.server.engine_factory import build_engines
from paiprotocol.errors import ConfigError, Conflict, Unavailable
from pairuntime.local_files import log_times_format
from pairuntime.slurm import gang_launcher as batch
from pairuntime.supervisor import attempt_factory, claim, exit_record, process_tree
from support.report_server import QuietServer, app_of
from support.small_disk import fill, mounted

SEGMENT, LIMIT = 100, 300


def task(script: str = "true") -> TaskLaunch:
    path = {"PATH": os.environ["PATH"]}
    return TaskLaunch(uid=str(uuid.uuid4()), node="", script=script, environment=path)


class Node:
    """A prepared gang and its report sink."""

    def __init__(
        self,
        root: Path,
        thread: ThreadPoolExecutor,
        tasks: int = 1,
        script: str = "true",
        url: str = "http://127.0.0.1:1",
        node_folder: Path = Path("/scratch"),
        log_limit: int = LIMIT,
        log_segment: int = SEGMENT,
    ):
        limits = {"log_limit": log_limit, "log_segment": log_segment}
        self.options = SlurmOptions(root, shared=False, python=sys.executable, **limits)
        self.home = folder.SlurmFolders(root)
        self.gang = [task(script) for _ in range(tasks)]
        self.uid = self.gang[0].uid
        self.carried = RemoteLaunch.new(url, node_folder)
        self.hints: list[str] = []
        archive = runtime_archive.install(root / "runtime")
        words = sbatch_command.sbatch(self.gang, self.options, self.home.gang(self.uid))
        prepared = (self.home, self.gang, self.options, archive, limits, words, None, self.carried)
        folder.prepare(*prepared)
        self.reports = SlurmReportSink(self.home, self.options, thread, self.hints.append)

    async def begun(self) -> Node:
        await self.reports.claim(self.uid, {"nonce": "a", "pid": 7, "placement": {"node": "n1"}})
        return self

    async def put(self, at: int, data: bytes, after: int | None = None) -> int:
        taken = await self.reports.append(self.uid, "all", at, at if after is None else after, data)
        return taken.end

    def log(self) -> list[tuple[int, bytes]]:
        reader = LogReader(self.home.task(self.uid), "all")
        found, at = [], 0
        while (chunk := reader.read(at, 1 << 20)).data:
            found.append((chunk.offset, chunk.data))
            at = chunk.end
        return found


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as one:
        yield one


@pytest.fixture
def node(tmp_path: Path, thread: ThreadPoolExecutor) -> Node:
    return Node(tmp_path / "slurm", thread)


async def test_report_that_a_full_disk_refuses_is_accepted_later(
    tmp_path: Path, thread: ThreadPoolExecutor
) -> None:
    with mounted(tmp_path / "disk", "size=8m") as disk:
        node = Node(disk / "slurm", thread)
        filler = fill(disk)
        with pytest.raises(Unavailable, match="cannot store reports of tasks: No space left"):
            await node.begun()
        filler.unlink()
        await node.begun()
        assert await node.put(0, b"one\n") == 4


async def test_repeated_upload_is_stored_once(node: Node) -> None:
    await node.begun()
    assert await node.put(0, b"one\n") == 4
    assert await node.put(0, b"one\ntwo\n") == 8
    assert await node.put(0, b"one\n") == 8
    assert node.log() == [(0, b"one\ntwo\n")]


async def test_upload_past_the_end_returns_the_current_end(node: Node) -> None:
    """Truncate a file, as after a crash of the machine."""
    await node.begun()
    await node.put(0, b"one\n")
    assert await node.put(8, b"three\n") == 4
    assert node.log() == [(0, b"one\n")]


async def test_dropped_bytes_are_a_gap_and_offsets_stay(node: Node) -> None:
    await node.begun()
    await node.put(0, b"one\n")
    assert await node.put(50, b"late\n", after=4) == 55
    assert await node.put(55, b"r\n") == 57
    assert node.log() == [(0, b"one\n"), (50, b"late\nr\n")]


async def test_log_keeps_its_newest_part_within_its_limit(node: Node) -> None:
    await node.begun()
    at = 0
    for number in range(100):
        at = await node.put(at, b"%09d\n" % number)
    sizes = [path.stat().st_size for path in node.home.task(node.uid).glob("all.*")]
    assert sum(sizes) <= LIMIT + SEGMENT
    assert max(sizes) <= SEGMENT
    assert node.log()[-1][1].endswith(b"000000099\n")
    assert node.log()[0][0] == 1000 - sum(sizes)


async def test_gaps_do_not_create_unlimited_segments(node: Node) -> None:
    await node.begun()
    for number in range(200):
        await node.put(number * 10, b"x", after=number * 10 - 9 if number else 0)
    assert len(list(node.home.task(node.uid).glob("all.*"))) <= 64


async def test_exit_record_is_accepted_when_the_log_is_complete(node: Node) -> None:
    await node.begun()
    await node.put(0, b"one\n")
    said = {"exit_code": 3, "started_ms": 1, "ended_ms": 2}
    sizes = {"all": 8, "stdout": 0, "stderr": 0}
    assert await node.reports.end(node.uid, said, sizes) == {"all": 4, "stdout": 0, "stderr": 0}
    assert observe.observe_attempt(node.home, node.uid, None, 0).phase is Phase.RUNNING
    await node.put(4, b"two\n")
    assert await node.reports.end(node.uid, said, sizes) is None
    assert await node.reports.end(node.uid, {"exit_code": 0}, sizes) is None
    seen = observe.observe_attempt(node.home, node.uid, None, 0)
    assert (seen.phase, seen.exit_code) == (Phase.ENDED, 3)
    with pytest.raises(Conflict):
        await node.put(8, b"more\n")


async def test_accepted_exit_record_is_synced(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.begun()
    settled: list[str] = []
    monkeypatch.setattr(exit_record, "sync", settled.append)
    assert await node.reports.end(node.uid, {"exit_code": 0}, {}) is None
    assert settled == [str(node.home.task(node.uid))]


async def test_uploads_of_an_unclaimed_task_are_rejected(node: Node) -> None:
    with pytest.raises(Conflict):
        await node.put(0, b"one\n")
    with pytest.raises(Conflict):
        await node.reports.end(node.uid, {}, {})


async def test_repeated_claim_of_one_process_is_accepted(node: Node) -> None:
    await node.begun()
    await node.begun()
    with pytest.raises(Conflict):
        await node.reports.claim(node.uid, {"nonce": "b", "pid": 8})
    seen = observe.observe_attempt(node.home, node.uid, None, 0)
    assert seen.placement is not None
    assert (seen.phase, seen.placement.node) == (Phase.RUNNING, "n1")
    assert set(node.hints) == {node.uid}


async def test_buried_task_cannot_be_claimed_or_downloaded(node: Node) -> None:
    claim.bury(str(node.home.task(node.uid)), node.uid)
    for said in ({"nonce": "a"}, {"nonce": ""}, {}):
        with pytest.raises(Conflict):
            await node.reports.claim(node.uid, said)
    with pytest.raises(Conflict):
        await node.reports.launch_bundle(node.uid, "1", None, 0)


async def test_second_slurm_job_of_a_gang_is_rejected(node: Node) -> None:
    await node.reports.launch_bundle(node.uid, "1", None, 0)
    await node.reports.launch_bundle(node.uid, "1", None, 0)
    with pytest.raises(Conflict):
        await node.reports.launch_bundle(node.uid, "2", None, 0)


async def test_stop_request_comes_with_the_upload_response(node: Node) -> None:
    await node.begun()
    folder.request_stop(node.home.task(node.uid), node.uid, 4.0)
    taken = await node.reports.append(node.uid, "all", 0, 0, b"")
    assert taken.stop == {"grace_s": 4.0}


async def test_bundle_contains_only_the_files_of_one_process(
    tmp_path: Path, thread: ThreadPoolExecutor
) -> None:
    node = Node(tmp_path / "slurm", thread, tasks=2)
    pilot, second = (
        await node.reports.launch_bundle(node.uid, "1", None, 0),
        await node.reports.launch_bundle(node.uid, "0", 0, 1),
    )
    for parcel, own in ((pilot, []), (second, [node.gang[1].uid])):
        with tarfile.open(fileobj=io.BytesIO(b"".join(parcel.chunks()))) as tar:
            names = tar.getnames()
            assert [name.split("/")[2] for name in names if name.endswith("spec.json")] == own
            # Last: it marks the bundle complete.
            assert names[-1].endswith("gang.json")
            assert not any(member.mode & 0o077 for member in tar)
    kept = json.loads((node.home.task(node.gang[1].uid) / "spec.json").read_text())
    assert kept["cwd"] == f"{node.carried.root}-0-1/tasks/{node.gang[1].uid[:2]}/{node.gang[1].uid}/work"


async def test_only_the_hash_of_a_ticket_is_stored_per_gang(
    tmp_path: Path, thread: ThreadPoolExecutor
) -> None:
    node, other = (Node(tmp_path / name, thread, tasks=2) for name in ("a", "b"))
    assert all(node.reports.allows(task.uid, node.carried.ticket) for task in node.gang)
    assert not node.reports.allows(node.uid, other.carried.ticket)
    assert not node.reports.allows("no-such", node.carried.ticket)
    assert (node.home.gang(node.uid) / folder.TICKET).read_text() != node.carried.ticket
    script = node.home.gang(node.uid) / "batch.sh"
    assert script.stat().st_mode & 0o077 == 0
    # Command lines are visible to all users.
    assert node.carried.ticket not in script.read_text().rpartition("\nexec ")[2]


async def test_metrics_are_stored_up_to_their_limit(node: Node) -> None:
    await node.begun()
    file = node.home.task(node.uid) / "work" / ".pai" / "metrics.jsonl"
    for at, data in ((0, b'{"a":1}\n'), (0, b'{"a":1}\n{"a":2}\n'), (100, b"beyond")):
        await node.reports.append(node.uid, "metrics", at, at, data)
    assert file.read_bytes() == b'{"a":1}\n{"a":2}\n'
    os.truncate(file, 32 << 20)
    taken = await node.reports.append(node.uid, "metrics", 32 << 20, 32 << 20, b"x")
    assert taken.end == 32 << 20


async def test_index_of_times_is_replaced_at_its_beginning(node: Node) -> None:
    await node.begun()
    index = node.home.task(node.uid) / log_times_format.NAME

    async def put(at: int, data: bytes) -> int:
        return (await node.reports.append(node.uid, "times", at, at, data)).end

    assert await put(0, b"one") == 3
    assert await put(3, b"two") == 6
    assert await put(3, b"two") == 6
    assert await put(9, b"gap") == 6
    assert index.read_bytes() == b"onetwo"
    assert await put(0, b"new") == 3
    assert index.read_bytes() == b"new"
    assert await put(3, b"x" * (1 << 20)) == 3


async def test_reported_metrics_are_summarized_by_complete_lines(node: Node) -> None:
    await node.begun()
    lines = b"".join(b'{"step": %d, "values": {"loss": %d}}\n' % (step, 9 - step) for step in range(3))
    found = []
    for start, end in ((0, 50), (50, len(lines))):  # a node sends what the file has, whole lines or not
        await node.reports.append(node.uid, "metrics", start, start, lines[start:end])
        part = read_metric_lines(node.home.task(node.uid), found[-1].end if found else 0, 1 << 20)
        found.append(part)
    assert [part.end for part in found] == [35, len(lines)]
    loss = summarize(b"".join(part.lines for part in found))[0]["loss"]
    assert (loss.count, loss.last, loss.min, loss.max_step) == (3, 7, 7, 0)


def test_remote_job_writes_no_predictable_files(tmp_path: Path) -> None:
    options = replace(SlurmOptions(tmp_path), shared=False)
    words = sbatch_command.sbatch([task()], options, tmp_path / "g")
    assert "--output=/dev/null" in words
    assert "--chdir=/tmp" in words


@pytest.mark.slow
async def test_every_byte_is_uploaded_once_despite_lost_responses(
    tmp_path: Path, thread: ThreadPoolExecutor
) -> None:
    """The batch script as Slurm runs it, and a server that fails every second request."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    local = tmp_path / "node"
    local.mkdir()
    script = "seq 1 40000; echo wrong >&2; exit 6"
    limits = {"log_limit": 64 << 20, "log_segment": 200_000}
    node = Node(tmp_path / "slurm", thread, script=script, url=url, node_folder=local, **limits)
    app = app_of(node.reports)
    asked = 0

    async def unreliable(scope: Scope, receive: Receive, send: Send) -> None:
        async def unheard(message: Message) -> None: ...

        nonlocal asked
        asked += 1
        if asked % 2:
            await app(scope, receive, send)
            return
        if asked % 4:
            await app(scope, receive, unheard)
        await Response(status_code=502)(scope, receive, send)

    server = QuietServer(uvicorn.Config(unreliable, lifespan="off", log_config=None, access_log=False))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "1", "SLURMD_NODENAME": "n1"}
    ran = await asyncio.to_thread(
        subprocess.run,
        ["sh", str(node.home.gang(node.uid) / "batch.sh")],
        env=environment,
        timeout=90,
        check=False,
    )
    server.should_exit = True
    await serving
    assert ran.returncode == 0
    out = "".join(f"{n}\n" for n in range(1, 40001)).encode()
    path = node.home.task(node.uid)
    assert b"".join(data for _, data in node.log()) == out + b"wrong\n"
    assert LogReader(path, "stdout").last(1 << 20) == out
    assert LogReader(path, "stderr").last(1 << 20) == b"wrong\n"
    seen = observe.observe_attempt(node.home, node.uid, None, 0)
    assert (seen.phase, seen.exit_code) == (Phase.ENDED, 6)
    assert list(local.iterdir()) == []


async def test_folder_that_every_user_may_change_is_refused(
    tmp_path: Path, thread: ThreadPoolExecutor
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    local = tmp_path / "node"
    local.mkdir()
    local.chmod(0o777)
    node = Node(tmp_path / "slurm", thread, url=url, node_folder=local)
    config = uvicorn.Config(app_of(node.reports), lifespan="off", log_config=None, access_log=False)
    server = QuietServer(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    command = ["sh", str(node.home.gang(node.uid) / "batch.sh")]
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "1", "SLURMD_NODENAME": "n1"}

    def run_batch_script() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=environment, timeout=90, capture_output=True, text=True, check=False
        )

    refused = await asyncio.to_thread(run_batch_script)
    reason = (
        f"Every user of the node may replace the files of tasks in {local}, the node-folder: it has no "
        f"sticky bit. Set it on every node: chmod +t {local}"
    )
    assert (refused.returncode, refused.stderr) == (1, f"{reason}\n")
    assert folder.output_tail(node.home.gang(node.uid)) == reason
    assert list(local.iterdir()) == []
    local.chmod(0o1777)
    started = await asyncio.to_thread(run_batch_script)
    server.should_exit = True
    await serving
    assert started.returncode == 0, started
    assert observe.observe_attempt(node.home, node.uid, None, 0).phase == Phase.ENDED


def test_remote_launch_requires_an_external_url(tmp_path: Path) -> None:
    slurm = EngineSettings("slurm", "slurm", {"shared": False})
    settings = Settings(home=tmp_path, engines=(slurm,))
    here = Machine("here", "127.0.0.1", 1, 1)
    with pytest.raises(ConfigError, match="external-url is not set") as refused:
        build_engines(settings, here).all()
    assert "external-url" in refused.value.hint
    reachable = replace(settings, external_url="https://pai.example.com")
    assert build_engines(reachable, here).report_sink("anything") is not None


def test_remote_spec_reaches_the_supervisor_through_the_uploader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the supervisor would react to Slurm's signal before it is known who requested the end."""
    specs: list[dict[str, object]] = []
    attempts: list[str] = []

    def supervise_attempt(
        folder: str, cgroup: process_tree.Cgroup, spec: dict[str, object], attempt_class: type
    ) -> int:
        specs.append(spec)
        return 5

    def run_attempt(folder: str, attempt: str, run: Callable[[], int]) -> int:
        attempts.append(attempt)
        return run()

    monkeypatch.setattr(attempt_factory, "supervise", supervise_attempt)
    assert batch._run_attempt("/nowhere", {"attempt": "one", "remote": True}, run_attempt) == 5
    assert attempts == ["one"]
    assert [spec["remote"] for spec in specs] == [True]


async def test_reports_on_a_full_disk_are_to_be_repeated(tmp_path: Path, thread: ThreadPoolExecutor) -> None:
    with mounted(tmp_path / "disk") as disk:
        node = await Node(disk / "slurm", thread).begun()
        filler = fill(disk)
        with pytest.raises(Unavailable, match="cannot store reports"):
            await node.reports.record_usage(node.uid, b"{}")
        with pytest.raises(Unavailable, match="cannot store reports"):
            await node.reports.record_diagnostics(node.uid, b"why")
        filler.unlink()
        await node.reports.record_usage(node.uid, b"{}")
