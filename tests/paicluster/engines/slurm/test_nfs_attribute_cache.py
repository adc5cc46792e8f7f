"""A shared folder with NFS semantics: every machine has its own mount, with attribute caches and no inotify.

Every node and the server see one folder through a mount of their own (bindfs). Changes by others trigger no
inotify, a file's size is up to a second old, and a missing name is cached for two seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.engines.interface import Phase
from pairuntime.local_files.network_fs import is_on_network
from support.engine_rig import DEADLINE_S, Driven, task
from support.external_services import debian
from support.server_fixture import Cluster, FollowStream, job
from support.slurm_cluster import NODE_COUNT, RealSlurm, eventually, open_folder, running_slurm
from support.slurm_rig import SlurmRig

pytestmark = [pytest.mark.slow, pytest.mark.service]

_REMEMBERS = "attr_timeout=1,entry_timeout=2,negative_timeout=2,allow_other"
# Of a folder, to a folder; under its process id in a third. It says nothing when it is ready.
_MOUNT = (
    f'bindfs -f -o {_REMEMBERS} "$1" "$2" & mkdir -p "$3"; touch "$3/$!"; '
    'until mountpoint -q "$2"; do sleep 0.02; done'
)
_NEVER_S = 3600.0
_FILE = """
engine: {{type: slurm, folder: {shared}/slurm, partition: main, interval: 0.5}}
"""


class Shared:
    """A folder and its mounts."""

    def __init__(self, folder: Path):
        debian(["bindfs"], commands=["bindfs"])
        self.folder, self.backing, self._pids = folder / "seen", folder / "backing", folder / "pids"
        for path in (self.folder, self.backing):
            path.mkdir()
            path.chmod(0o755)
        self.view = (_MOUNT, str(self.backing), str(self.folder), str(self._pids))
        subprocess.run(["sh", "-ec", self.view[0], "view", *self.view[1:]], check=True, timeout=90)
        (self._own,) = self.mounts

    @property
    def mounts(self) -> list[int]:
        return [int(path.name) for path in self._pids.iterdir()]

    @contextlib.contextmanager
    def not_answering(self) -> Iterator[None]:
        """The mount of the server does not answer, as one of NFS whose server is away."""
        os.kill(self._own, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._own, signal.SIGCONT)

    def close(self) -> None:
        for pid in self.mounts:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in self.mounts), "the end of bindfs")


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    with open_folder("remembers-") as folder:
        yield folder


@pytest.fixture(scope="module")
def shared(base: Path) -> Iterator[Shared]:
    made = Shared(base)
    yield made
    made.close()


@pytest.fixture(scope="module")
def nodes(shared: Shared) -> Iterator[RealSlurm]:
    with running_slurm(view=shared.view) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(base: Path, shared: Shared, nodes: RealSlurm) -> Iterator[Cluster]:
    home = base / "home"
    home.mkdir()
    (home / "cluster.yaml").write_text(_FILE.format(shared=shared.folder))
    running = Cluster(home, ("--embedded",), variables={"SLURM_CONF": str(nodes.conf)})
    try:
        yield running.start()
    finally:
        running.close()


def test_every_node_has_its_own_nfs_mount(shared: Shared, nodes: RealSlurm) -> None:
    assert is_on_network(shared.folder)
    assert len(shared.mounts) == 1 + NODE_COUNT
    (shared.folder / "probe").exists()  # it does not, and that is cached here
    nodes.ask("srun", "--quiet", "--chdir=/", "touch", str(shared.folder / "probe"))
    assert not (shared.folder / "probe").exists() and (shared.backing / "probe").exists()
    eventually(lambda: (shared.folder / "probe").exists(), "what a node wrote to be seen")


def test_exit_codes_and_logs_are_complete_over_nfs(cluster: Cluster) -> None:
    wrote = "".join(f"line {n}\n" for n in range(5_000))
    says = "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done"
    for name, ending, state in (("well", "", "SUCCEEDED"), ("badly", "; exit 3", "FAILED")):
        status = cluster.run(job(name, says + ending))
        assert (status["state"], status["retries"]) == (state, 0), cluster.events(name)
        assert cluster.log_of(name).decode() == wrote


async def test_end_is_observed_as_soon_as_it_is_visible(
    shared: Shared, nodes: RealSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No polling, and Slurm is not queried again: the event file alone, which is visible before the exit
    record, must lead to the end."""
    monkeypatch.setenv("SLURM_CONF", str(nodes.conf))
    rig = SlurmRig(nodes, shared.folder / "alone")
    one = task(rig, "true")
    async with Driven(rig, interval_s=_NEVER_S, file_lag_s=_NEVER_S) as driven, asyncio.timeout(DEADLINE_S):
        await driven.launch(one)
        while (await driven.look(one.uid)).phase is not Phase.ENDED:
            await driven.hinted(one.uid)


async def test_engine_waits_beside_the_event_loop_for_a_folder_that_does_not_answer(
    shared: Shared, nodes: RealSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread releases the folder again: what blocks the loop would fail the test, not hang it."""
    monkeypatch.setenv("SLURM_CONF", str(nodes.conf))
    rig = SlurmRig(nodes, shared.folder / "stalled")
    mark = shared.folder.parent / "stalled-marks"
    mark.mkdir(mode=0o777)
    running, stopped, new = (
        task(rig, f"mkdir {mark}/{name}; echo up; exec sleep {seconds}")
        for name, seconds in (("running", 1), ("stopped", 600), ("new", 0))
    )
    async with Driven(rig, file_lag_s=10) as driven:
        for one in (running, stopped):
            await driven.launch(one)
            await driven.wait_for_output(one.uid, b"up")
        released = threading.Event()
        answers_again = threading.Timer(DEADLINE_S, released.set)
        stalled = shared.not_answering()
        stalled.__enter__()
        release = threading.Thread(target=lambda: (released.wait(), stalled.__exit__(None, None, None)))
        release.start()
        answers_again.start()
        try:
            waiting = [
                asyncio.create_task(driven.engine.launch([new])),
                asyncio.create_task(driven.engine.stop([stopped.uid], 5)),
                asyncio.create_task(driven.engine.observe([running.uid])),  # type: ignore[arg-type]
            ]
            for _ in range(100):
                await asyncio.sleep(0.01)
            assert not released.is_set()
            assert not any(one.done() for one in waiting)
        finally:
            answers_again.cancel()
            released.set()
            release.join()
        await asyncio.gather(*waiting)
        assert (await driven.ended(running.uid)).exit_code == 0
        assert (await driven.ended(stopped.uid)).stopped
        assert (await driven.ended(new.uid)).exit_code == 0
    # Each ran once: a second `mkdir` would fail.
    assert sorted(path.name for path in mark.iterdir()) == ["new", "running", "stopped"]


def test_many_short_jobs_run_once_each(cluster: Cluster, base: Path) -> None:
    marks = base / "marks"
    marks.mkdir()
    names = [f"short-{n}" for n in range(20)]
    for name in names:
        cluster.accept(job(name, f"mkdir {marks}/{name}"))
    for name in names:
        status = cluster.wait_over(name)
        assert (status["state"], status["retries"]) == ("SUCCEEDED", 0), cluster.events(name)
    assert sorted(path.name for path in marks.iterdir()) == sorted(names)


def test_gang_across_nodes_finds_its_peers(cluster: Cluster, nodes: RealSlurm) -> None:
    spread = {"openpaisdk": {"slurm": ["--nodes=3", "--ntasks-per-node=1"]}}
    says = "echo $SLURMD_NODENAME; echo done > $PAI_OUTPUT_DIR/of-$PAI_TASK_INDEX"
    status = cluster.run(job("gang", says, instances=3, extras=spread))
    assert (status["state"], status["retries"]) == ("SUCCEEDED", 0), cluster.events("gang")
    tasks = cluster.detail("gang")["taskRoles"]["main"]["taskStatuses"]
    assert sorted(one["containerNodeName"] for one in tasks) == nodes.nodes


def test_log_is_visible_while_running_and_stop_works(cluster: Cluster) -> None:
    cluster.accept(job("long", "trap 'echo asked; exit 0' TERM", "echo begun", "while :; do sleep 0.1; done"))
    eventually(lambda: b"begun" in cluster.log_of("long"), "the first line")
    cluster.stop("long")
    assert cluster.wait_over("long")["state"] == "STOPPED"
    assert b"asked" in cluster.log_of("long")


def test_follower_reads_to_the_last_line(cluster: Cluster) -> None:
    """The cached size of the log is older than the exit record."""
    says = "for i in $(seq 60); do echo line $i; sleep 0.05; done; for i in 1 2 3; do echo last $i; done"
    wrote = "".join([*(f"line {n}\n" for n in range(1, 61)), *(f"last {n}\n" for n in range(1, 4))])
    for number in range(4):
        frames = cluster.follow(cluster.accept(job(f"followed-{number}", says)))
        try:
            read = b"".join(frame["data"] for frame in frames if frame["kind"] == "log")
        finally:
            frames.close()
        assert read.decode() == wrote


def test_server_answers_while_the_folder_of_followed_logs_does_not(cluster: Cluster, shared: Shared) -> None:
    """A stalled read on the event loop would hold up all requests until the end of the stall."""
    name = cluster.accept(job("read-later", "for i in $(seq 100); do echo line $i; sleep 0.1; done"))
    cluster.wait_state(name, "RUNNING")
    followers = [cluster.follow(name) for _ in range(2)]
    read = [_log_until(frames, b"line 1\n") for frames in followers]
    with shared.not_answering():
        ends = time.monotonic() + 5
        # Also one that begins now.
        followers.append(cluster.follow(name))
        read.append(b"")
        while time.monotonic() < ends:
            assert cluster.get("/api/v2/jobs?limit=10").status == 200
            time.sleep(0.05)
    for begun, frames in zip(read, followers, strict=True):
        try:
            rest = b"".join(frame["data"] for frame in frames if frame["kind"] == "log")
        finally:
            frames.close()
        assert (begun + rest).decode() == "".join(f"line {n}\n" for n in range(1, 101))
    assert cluster.wait_over(name)["state"] == "SUCCEEDED"


def _log_until(frames: FollowStream, text: bytes) -> bytes:
    read = b""
    for frame in frames:
        read += frame["data"] if frame["kind"] == "log" else b""
        if text in read:
            break
    return read


def test_killed_server_adopts_all_jobs(cluster: Cluster, base: Path) -> None:
    mark = base / "ran"
    cluster.accept(job("survives", f"echo x >>{mark}", "sleep 3", "echo survived"))
    eventually(mark.exists, "the start")
    cluster.kill()
    cluster.start()
    status = cluster.wait_over("survives")
    assert (status["state"], status["retries"]) == ("SUCCEEDED", 0), cluster.events("survives")
    assert mark.read_text() == "x\n" and cluster.log_of("survives") == b"survived\n"
