"""Accounts of Slurm jobs, exec, detection of the configuration, and the distributed example."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.engines.common.unix_accounts import Accounts
from paicluster.engines.container import client_detection
from paicluster.engines.container.client import Client
from paicluster.engines.interface import LaunchFailed, Notice, Phase
from paicluster.engines.slurm.engine import SlurmEngine
from support.cli_user import CliUser
from support.engine_rig import Driven, appears, task
from support.external_services import install_podman
from support.paths import REPOSITORY
from support.server_fixture import Cluster, job
from support.slurm_cluster import RealSlurm
from support.slurm_engine import options
from support.slurm_rig import SlurmRig

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.xdist_group("slurm")]

EXAMPLE = REPOSITORY / "examples" / "distributed" / "job.yaml"


class PeoplesRig(SlurmRig):
    """A root server with separate accounts: alice is the account `nobody`."""

    def engine(self, **limits: object) -> SlurmEngine:
        return SlurmEngine(options(self.home, **limits), accounts=Accounts({"alice": "nobody"}, lambda: 2))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every account can reach."""
    folder = Path(tempfile.mkdtemp(prefix="pai-shared-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


async def test_each_job_runs_under_its_users_account(slurm: RealSlurm, open_folder: Path) -> None:
    rig = PeoplesRig(slurm, open_folder / "shared")
    script = "id -un; touch mine; echo $HOME; trap 'echo bye; exit 0' TERM; echo up; sleep 60 & wait"
    gang = [task(rig, script, owner="alice") for _ in range(2)]
    async with Driven(rig) as driven:
        await driven.launch(*gang)
        for one in gang:
            await driven.wait_for_output(one.uid, b"up")
            assert driven.log(one.uid).startswith(b"nobody\n")
            path = driven.engine.log_folder(one.uid)
            assert path.stat().st_mode & 0o777 == 0o700
            assert (path / "work" / "mine").stat().st_uid == pwd.getpwnam("nobody").pw_uid
        await driven.engine.stop([one.uid for one in gang], 20)
        for one in gang:
            assert (await driven.ended(one.uid)).stopped
            assert b"bye" in driven.log(one.uid)
        with pytest.raises(LaunchFailed, match="no Unix account"):
            await driven.launch(task(rig, "true", owner="nobody-we-know"))
    rig.close()


def test_unprivileged_server_runs_jobs_of_its_own_account(slurm: RealSlurm, open_folder: Path) -> None:
    account = pwd.getpwnam("nobody")
    home = open_folder / "own"
    home.mkdir()
    os.chown(home, account.pw_uid, account.pw_gid)
    code = open_folder / "code"
    for name in ("src/openpaisdk", "src/paicluster", "src/paiprotocol", "src/pairuntime"):
        shutil.copytree(REPOSITORY / name, code / name, ignore=shutil.ignore_patterns("__pycache__"))
    packages = [path for path in sys.path if path.endswith("site-packages")]
    if not all(os.access(path, os.R_OK) for path in packages) or not os.access("/usr/bin/python3", os.X_OK):
        pytest.skip("no Python that every account can run")
    program = code / "own.py"
    program.write_text(_OWN)
    done = subprocess.run(
        ["/usr/bin/python3", str(program), str(home)],
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[],
        cwd="/",
        env={**slurm.environment, "HOME": str(home), "PYTHONPATH": ":".join([str(code / "src"), *packages])},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.stdout == "0 b'nobody\\n'\n", done


_OWN = """
import asyncio, sys
from pathlib import Path
from paicluster.engines.interface import Phase, TaskLaunch
from paicluster.engines.slurm.engine import SlurmEngine
from paicluster.engines.slurm.options import SlurmOptions

async def main():
    engine = SlurmEngine(SlurmOptions(Path(sys.argv[1]) / "shared", file_lag_s=0.5))
    await engine.start(lambda uid: None)
    one = TaskLaunch("some-uid", "", "id -un", {"PATH": "/usr/bin:/bin"}, memory_mb=40)
    await engine.launch([one])
    while (seen := (await engine.observe([one.uid]))[one.uid]).phase is not Phase.ENDED:
        await asyncio.sleep(0.05)
    print(seen.exit_code, await engine.log_tail(one.uid, 100))
    await engine.close()

asyncio.run(main())
"""


async def test_exec_reaches_a_task_of_the_second_component(slurm: RealSlurm, tmp_path: Path) -> None:
    rig = SlurmRig(slurm, tmp_path / "shared")
    small = task(rig, "echo up; sleep 60")
    large = dataclasses.replace(task(rig, "echo here >file; echo up; sleep 60"), cpu=2)
    async with Driven(rig) as driven:
        assert isinstance(driven.engine, SlurmEngine)
        await driven.launch(small, large)
        for one in (small, large):
            await driven.wait_for_output(one.uid, b"up")
        words = driven.engine.exec_command(large.uid, ["cat", "file"])
        ran = await asyncio.to_thread(
            subprocess.run, list(words), capture_output=True, timeout=90, check=False
        )
        assert ran.stdout == b"here\n", ran
        await driven.engine.stop([small.uid, large.uid], 0)
        for one in (small, large):
            await driven.ended(one.uid)
    rig.close()


async def test_missing_node_software_is_reported(slurm: RealSlurm, tmp_path: Path) -> None:
    """Without Python on a node no supervisor can run: the job shows the output of the batch script."""
    said: list[Notice] = []
    engine = SlurmEngine(options(tmp_path / "shared", python="/no/such/python3"))
    await engine.start(lambda uid: None, lambda uid, remark: said.append(remark))
    rig = SlurmRig(slurm, tmp_path / "shared")
    one = task(rig, "true")
    await engine.launch([one])
    for _ in range(300):
        seen = (await engine.observe([one.uid]))[one.uid]
        if seen.phase.value == "lost":
            break
        await asyncio.sleep(0.1)
    assert seen.phase.value == "lost"
    assert any("/no/such/python3" in remark.message for remark in said), said
    await engine.close()
    rig.close()


async def test_pending_reason_is_reported_soon_while_others_run(slurm: RealSlurm, tmp_path: Path) -> None:
    rig = SlurmRig(slurm, tmp_path / "shared")
    running = task(rig, "echo up; sleep 60")
    held = task(rig, "true", options={"slurm": ("--hold",)})
    async with Driven(rig, steady_interval_s=600) as driven:
        assert isinstance(driven.engine, SlurmEngine)
        await driven.launch(running)
        await driven.wait_for_output(running.uid, b"up")
        asked = driven.engine.calls["squeue"]
        await appears(lambda: driven.engine.calls["squeue"] > asked, "a question that finds it running")
        await driven.launch(held)
        is_explained = lambda: any("is held in Slurm" in remark.message for _, remark in driven.notices)  # noqa: E731
        await appears(is_explained, "why the other waits")
        await driven.engine.stop([running.uid, held.uid], 0)
        for one in (running, held):
            await driven.ended(one.uid)
    rig.close()


async def test_submission_with_lost_response_is_not_repeated(slurm: RealSlurm, tmp_path: Path) -> None:
    """The server died before it could record sbatch's output; one job is pending, the other runs."""
    rig = SlurmRig(slurm, tmp_path / "shared")
    held = task(rig, "echo ran", options={"slurm": ("--hold",)})
    running = task(rig, "echo up; sleep 60")
    async with Driven(rig) as driven:
        await driven.launch(held)
        await driven.launch(running)
        await driven.wait_for_output(running.uid, b"up")
        await appears((rig.gang(held.uid) / "job").exists, "Slurm's answer")
    jobs = slurm.jobs()
    for one in (held, running):
        (rig.gang(one.uid) / "job").unlink()
    async with Driven(rig) as driven:
        assert isinstance(driven.engine, SlurmEngine)
        await driven.until(running.uid, Phase.RUNNING)
        await driven.until(held.uid, Phase.QUEUED)
        await appears((rig.gang(held.uid) / "job").exists, "what Slurm knows of it")
        assert driven.engine.calls.get("sbatch", 0) == 0
        assert slurm.jobs() == jobs
        await driven.engine.stop([held.uid, running.uid], 0)
        assert (await driven.ended(running.uid)).stopped
        assert (await driven.ended(held.uid)).started_ms is None
        await appears(lambda: not slurm.jobs(), "the end of both in Slurm")
    rig.close()


_FILE = """
engine: {{type: slurm, folder: {shared}, file-lag: 0.5, options: [--ntasks-per-node=1]}}
"""


def test_distributed_example_runs_on_two_nodes(slurm: RealSlurm, tmp_path: Path) -> None:
    person = CliUser(tmp_path / "person")
    shutil.copy(EXAMPLE, person.project)
    home = tmp_path / "home"
    home.mkdir()
    (home / "cluster.yaml").write_text(_FILE.format(shared=tmp_path / "shared"))
    cluster = Cluster(home, ("--embedded",), variables={"SLURM_CONF": str(slurm.conf)}).start()
    try:
        here = person.pai("submit", "--follow", "job.yaml")
        assert here.status == 0 and "the sum is 10" in here.out, here
        url = f"http://{cluster.address[0]}:{cluster.address[1]}"
        added = person.pai(
            "add-cluster", "-a", "big", "--pai-uri", url, "--user", cluster.user, "--token", cluster.token
        )
        assert added.status == 0, added
        person.pai("select-cluster", "big")
        there = person.pai("submit", "--follow", "job.yaml")
        assert there.status == 0 and "the sum is 10" in there.out, there
        roles = cluster.detail("distributed")["taskRoles"]
        nodes = {one["containerNodeName"] for role in roles.values() for one in role["taskStatuses"]}
        assert len(nodes) == 2 and nodes <= {*slurm.nodes}
    finally:
        person.stop_cluster()
        cluster.close()


async def test_task_runs_in_its_image_with_podman(slurm: RealSlurm, tmp_path: Path) -> None:
    install_podman()
    client = await client_detection.detect(tmp_path, ("podman",))
    assert isinstance(client, Client), client
    image = "localhost/pai-slurm-test:1"
    await asyncio.to_thread(_make_image, client, tmp_path, image)
    rig = SlurmRig(slurm, tmp_path / "shared")
    slow = tmp_path / "slow-podman"
    slow.write_text('#!/bin/sh\ncase " $* " in *" run "*) sleep 2;; esac\nexec podman "$@"\n')
    slow.chmod(0o755)
    said = {
        "container": "podman",
        "container_command": (str(slow), *client.options),
        "container_options": client.run_options,
    }
    inside = 'ls /bin; echo "task $NUMBER in $PWD"; touch made; exit 5'
    one = task(rig, inside, image=image, environment={"NUMBER": "7"}, memory_mb=200)
    long = task(rig, "echo up; sleep 60", image=image, environment={"NUMBER": "8"}, memory_mb=200)
    try:
        async with Driven(rig, **said) as driven:
            (seen,) = await driven.run(one)
            output = driven.log(one.uid).decode()
            assert seen.exit_code == 5, output
            work = driven.engine.log_folder(one.uid) / "work"
            assert output == f"busybox\nls\nsh\nsleep\ntouch\ntask 7 in {work}\n"
            assert (work / "made").exists()
            await driven.launch(long)
            # Its container is still on its way.
            while (await driven.engine.observe([long.uid]))[long.uid].phase is not Phase.RUNNING:
                await asyncio.sleep(0.01)
            assert isinstance(driven.engine, SlurmEngine)
            words = driven.engine.exec_command(long.uid, ["sh", "-c", "ls /bin; echo $NUMBER; pwd; exit 6"])
            ran = await asyncio.to_thread(subprocess.run, list(words), capture_output=True, timeout=90)
            own = driven.engine.log_folder(long.uid) / "work"
            assert ran.stdout.decode() == f"busybox\nls\nsh\nsleep\ntouch\n8\n{own}\n", ran
            assert ran.returncode == 6
            await driven.engine.stop([long.uid], 1)
            assert (await driven.ended(long.uid)).stopped
        look = ("ps", "-aq", "--filter", f"name=pai-{long.uid}")
        await appears(lambda: not _podman(client, *look), "the end of the container")
    finally:
        await asyncio.to_thread(_podman, client, "rmi", "-f", image)
        rig.close()


def _make_image(client: Client, folder: Path, image: str) -> None:
    """A root file system with only the listed programs: no Python, no bash."""
    root = folder / "root"
    (root / "bin").mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox is not None
    shutil.copy(busybox, root / "bin" / "busybox")
    for name in ("sh", "ls", "sleep", "touch"):
        (root / "bin" / name).symlink_to("busybox")
    tar = folder / "root.tar"
    subprocess.run(["tar", "-C", str(root), "-cf", str(tar), "."], check=True)
    _podman(client, "import", str(tar), image)


def _podman(client: Client, *words: str) -> str:
    done = subprocess.run(
        client.command(*words), env=dict(client.environment), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_detected_configuration_runs_jobs(slurm: RealSlurm, tmp_path: Path) -> None:
    home = tmp_path / "home"
    words = [sys.executable, "-m", "paicluster", "init", "--slurm", "--home", str(home)]
    subprocess.run(words, env=slurm.environment, check=True, timeout=90, capture_output=True)
    cluster = Cluster(home, ("--embedded",), variables={"SLURM_CONF": str(slurm.conf)})
    try:
        cluster.start()
        for number, vc in enumerate(("default", "low")):
            what = job(f"in-{number}", "echo $SLURM_JOB_PARTITION", defaults={"virtualCluster": vc})
            assert cluster.run(what)["state"] == "SUCCEEDED", cluster.events(what["name"])
            assert cluster.log_of(what["name"]) == (b"main\n" if vc == "default" else b"low\n")
    finally:
        cluster.close()


def test_check_config_reports_options_that_sbatch_rejects(slurm: RealSlurm, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    text = "engine: {type: slurm, options: [%s], clusters: {gpu: {options: [--nice=5]}}}"
    errors = []
    for option in ("--exclude=n1", "--constrain=a100", "--constrainnt=a100"):
        file.write_text(text % option)
        words = [sys.executable, "-m", "paicluster", "check-config", str(file)]
        done = subprocess.run(
            words, env=slurm.environment, capture_output=True, text=True, timeout=90, check=True
        )
        errors.append(done.stderr)
    assert errors[:2] == ["", ""]
    assert errors[2] == (
        "Note: sbatch on this machine rejects --constrainnt=a100: unrecognized option '--constrainnt=a100'.\n"
    )
