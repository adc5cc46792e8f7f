"""Storages that are mounted for tasks on the nodes of a real Slurm."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paicluster.engines.container.client import Client
from paicluster.engines.interface import StorageMount, TaskLaunch
from paicluster.engines.slurm import gang_folder, node_mounts, sbatch_command
from paicluster.engines.slurm.options import SlurmOptions
from pairuntime.slurm import allocation, gang_launcher
from support.cli_user import CliUser
from support.cloud_servers import ACCESS_KEY, SECRET_KEY, CloudServer
from support.container_images import PLAIN, make
from support.fuse import fuse_fixture  # noqa: F401
from support.server_fixture import Cluster
from support.slurm_cluster import RealSlurm, eventually
from support.slurm_jobs import over_slurm

on_slurm = [
    pytest.mark.slow,
    pytest.mark.service,
    pytest.mark.usefixtures("fuse"),
]

PREFIX = f"on-slurm-{os.getpid()}"
SETTINGS = """
engines:
  - type: process
  - type: slurm
    folder: {folder}/shared
    file-lag: 0.5
    interval: 0.5
    node-folder: {folder}/node
    mount-python: {python}
    container: podman
    container-command: {command}
    container-options: {options}
virtual-clusters:
  slurm: {{engine: slurm}}
storages:
  - {{name: home, type: own}}
  - {{name: sets, {bucket}, credentials: {folder}/s3.yaml}}
  - {{name: wrong, {bucket}, credentials: {folder}/wrong.yaml}}
"""
SAVES_AT_THE_END = "trap 'sleep 0.3; echo saved > /mnt/sets/{0}; exit 1' TERM; echo ready; sleep 600 & wait"


@pytest.fixture(scope="module", name="mounting")
def cluster_with_storages(
    slurm: RealSlurm, podman: Client, s3_server: CloudServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("mounting")
    for name, secret in {"s3": SECRET_KEY, "wrong": "not-the-secret"}.items():
        (folder / f"{name}.yaml").write_text(f"access-key-id: {ACCESS_KEY}\nsecret-access-key: {secret}\n")
        (folder / f"{name}.yaml").chmod(0o600)
    (folder / "home").mkdir()
    (folder / "node").mkdir()
    (folder / "home" / "cluster.yaml").write_text(
        SETTINGS.format(
            folder=folder,
            python=sys.executable,
            command=json.dumps(["podman", *podman.options]),
            options=json.dumps([*podman.run_options]),
            bucket=f"type: s3, bucket: team-data, prefix: {PREFIX}, region: us-east-1, "
            f"endpoint-url: '{s3_server.endpoint}'",
        )
    )
    running = Cluster(folder / "home", ("--embedded",), variables={"SLURM_CONF": str(slurm.conf)})
    try:
        yield running.start()
    finally:
        running.close()


def named(*storages: str, **more: Any) -> dict[str, Any]:
    return {"storages": [{"name": name} for name in storages], **more}


def content(s3_server: CloudServer, path: str) -> bytes:
    import s3fs  # type: ignore[import-untyped]

    bucket = s3fs.S3FileSystem(
        endpoint_url=s3_server.endpoint, key=ACCESS_KEY, secret=SECRET_KEY, skip_instance_cache=True
    )
    return bytes(bucket.cat_file(f"team-data/{PREFIX}/{path}"))


def mount_pids(cluster: Cluster) -> list[int]:
    """The processes that serve mounts of this cluster's tasks."""
    found = []
    staging = f"TMPDIR={cluster.home.parent}/node".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if staging in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def is_clean(cluster: Cluster) -> bool:
    """Whether neither a mount nor a process of a mount is left, nor a folder for mounts."""
    folder = cluster.home.parent / "node"
    mounted = Path("/proc/self/mountinfo").read_text()
    is_mounted = " /mnt/sets " in mounted or f" {folder}/" in mounted
    return not is_mounted and not mount_pids(cluster) and not list(folder.iterdir())


def begin(cluster: Cluster, spec: dict[str, Any]) -> str:
    name = cluster.accept(spec)
    cluster.wait_state(name, "RUNNING")
    tasks = int(spec["taskRoles"]["main"]["instances"])
    eventually(
        lambda: all(b"ready" in cluster.log_of(name, index=index) for index in range(tasks)),
        f"{name} to begin",
    )
    return name


def cancel(cluster: Cluster, slurm: RealSlurm, job: str, name: str) -> bool:
    """Cancel a job in Slurm; whether it has ended."""
    slurm.ask("scancel", job)
    return str(cluster.status(name)["state"]) == "STOPPED"


class TestOnNodes:
    pytestmark = on_slurm

    def test_task_keeps_its_storages_until_it_has_ended(
        self, mounting: Cluster, slurm: RealSlurm, s3_server: CloudServer, tmp_path: Path
    ) -> None:
        """However it ends: Slurm's signals reach all processes of a job."""
        cancelled = begin(mounting, over_slurm("cancelled", "echo ready; sleep 600", extras=named("sets")))
        # On a busy machine slurmctld does not answer every request.
        jobs: list[str] = []
        eventually(lambda: jobs.extend(slurm.jobs()) or jobs, "the job in Slurm's queue")
        gang = SAVES_AT_THE_END.format("gang-$PAI_TASK_INDEX")
        stopped = begin(mounting, over_slurm("stopped", gang, instances=2, extras=named("sets")))
        # As Slurm does where it has no cgroups.
        pids = mount_pids(mounting)
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        assert len(pids) == 3
        limited = over_slurm(
            "limited",
            "echo at $PAI_MOUNT_SETS > /mnt/sets/first; cat /mnt/sets/first",
            SAVES_AT_THE_END.format("limited"),
            extras=named("sets", openpaisdk={"timeLimit": 5}),
        )
        mounting.accept(limited)
        person = CliUser(tmp_path / "person")
        uri = f"http://127.0.0.1:{mounting.address[1]}"
        words = ("-a", "over", "--pai-uri", uri, "--user", mounting.user, "--authen-token", mounting.token)
        assert person.pai("add-cluster", *words).status == 0
        seen = person.pai("exec", "-a", "over", stopped, "--", "sh", "-c", "grep -c /mnt/sets /proc/mounts")
        assert seen.out == "1\n", seen
        assert "/mnt/sets" not in Path("/proc/self/mountinfo").read_text()
        mounting.stop(stopped)
        eventually(lambda: cancel(mounting, slurm, jobs[0], cancelled), "the end of the cancelled job")
        for name, state in {cancelled: "STOPPED", stopped: "STOPPED", "limited": "FAILED"}.items():
            assert mounting.wait_over(name)["state"] == state, mounting.log_of(name)
        assert mounting.log_of("limited") == b"at /mnt/sets\nready\n"
        for path in ("gang-0", "gang-1", "limited"):
            assert content(s3_server, path) == b"saved\n"
        eventually(lambda: is_clean(mounting), "the end of all mounts")

    def test_container_has_its_storages_and_a_wrong_one_fails_the_job(
        self, mounting: Cluster, s3_server: CloudServer, slurm: RealSlurm
    ) -> None:
        make("podman", PLAIN)
        wrong = mounting.accept(over_slurm("wrong", "echo started", extras=named("wrong")))
        boxed = over_slurm(
            "boxed",
            "grep -o ' /data/sets fuse.pai rw' /proc/mounts; echo $PAI_MOUNT_SETS > /data/sets/boxed",
            "cat /data/sets/boxed",
            memory_mb=200,
            extras={"storages": [{"name": "sets", "mountPath": "/data/sets"}]},
        )
        boxed["prerequisites"][0]["uri"] = PLAIN
        assert mounting.run(boxed)["state"] == "SUCCEEDED", mounting.log_of("boxed")
        assert mounting.log_of("boxed") == b" /data/sets fuse.pai rw\n/data/sets\n"
        assert content(s3_server, "boxed") == b"/data/sets\n"
        assert mounting.wait_over(wrong)["state"] == "FAILED"
        assert mounting.log_of(wrong).decode() == (
            "The storage wrong cannot be mounted: The storage /mnt/wrong rejects the credentials "
            "(SignatureDoesNotMatch). An administrator of the cluster has to check the storage.\n"
        )
        eventually(lambda: is_clean(mounting), "the end of all mounts")


def mounting_task(uid: str, *kinds: str, **more: Any) -> TaskLaunch:
    mounts = [StorageMount(kind, kind, f"/mnt/{kind}", f"PAI_MOUNT_{kind.upper()}", {}) for kind in kinds]
    return TaskLaunch(uid, "", "true", {}, storage_mounts=tuple(mounts), **more)


def test_memory_of_mounts_is_requested_in_addition() -> None:
    options = SlurmOptions(folder=Path("/shared"), overhead_mb=10)
    plain, mounting = (
        sbatch_command.sbatch([mounting_task("uid", *kinds, memory_mb=1000)], options, Path("/shared/gang"))
        for kinds in ((), ("s3", "nfs"))
    )
    assert "--mem=1010M" in plain and "--mem=1522M" in mounting


def test_each_task_of_a_gang_has_its_own_paths_in_its_variables(tmp_path: Path) -> None:
    shared = {"PAI_MOUNT_S3": "/mnt/s3", "OTHER": "1"}
    gang = [mounting_task(uid, "s3", shared_environment=shared) for uid in ("ab1", "ab2")]
    options, home = SlurmOptions(folder=tmp_path), gang_folder.SlurmFolders(tmp_path)
    gang_folder.prepare(home, gang, options, tmp_path / "runtime/one/compiled.pyz", {}, [], None)
    template = (home.gang("ab1") / gang_launcher.ENVIRONMENT_TEMPLATE).read_text()
    assert "OTHER" in template and "PAI_MOUNT" not in template
    spec_file = home.task("ab2") / "spec.json"
    assert json.loads(spec_file.read_text())["env"]["PAI_MOUNT_S3"] == "/mnt/s3"
    assert spec_file.stat().st_mode & 0o077 == 0  # it has the credentials


def test_mounts_have_the_proxies_of_the_server_and_the_paths_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, task_folder = SlurmOptions(folder=tmp_path), tmp_path / "tasks/ui/uid"
    with monkeypatch.context() as patch:
        for name in ("PATH", "PYTHONPATH", "SSL_CERT_FILE", "https_proxy", "PAI_TRANSFER_RETRY_S"):
            patch.setenv(name, f"/server/{name}")
        spec = node_mounts.spec_of(mounting_task("uid", "s3"), options, task_folder, in_container=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", "/node/ca.pem")
    (tmp_path / "spec.json").write_text(json.dumps({"argv": ["true"], "env": {}, "storage_mounts": spec}))
    place = {"node": "n1", "ip": "1.1.1.1", "ports": {}, "gpus": ""}
    env = allocation.apply_placement(str(tmp_path), place, {})["storage_mounts"]["env"]
    assert env["https_proxy"] == "/server/https_proxy"
    assert env["PAI_TRANSFER_RETRY_S"] == "/server/PAI_TRANSFER_RETRY_S"
    assert (env["SSL_CERT_FILE"], env["PATH"]) == ("/node/ca.pem", os.environ["PATH"])
    assert "PYTHONPATH" not in env


def test_name_of_the_folder_of_mounts_is_not_known_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    task, options = mounting_task("uid", "s3"), SlurmOptions(folder=Path("/shared"))
    first = node_mounts.folder_of(task, options)
    assert node_mounts.binds_of(task, options)[0].source.parent == first
    monkeypatch.setattr(node_mounts, "_KEY", b"of another server")
    assert node_mounts.folder_of(task, options) != first


def test_python_without_the_sdk_says_what_to_install() -> None:
    task = mounting_task("uid", "samba", "s3", "nfs")
    options = SlurmOptions(folder=Path("/shared"), mount_python=sys.executable)
    spec = node_mounts.spec_of(task, options, Path("/shared/tasks/ui/uid"), in_container=False)
    assert spec is not None
    argv: Any = spec["argv"]
    # Without the packages that were installed for it.
    bare = subprocess.run(
        [argv[0], "-I", "-S", *argv[1:]], input="", capture_output=True, text=True, check=False
    )
    assert (bare.returncode, bare.stderr) == (1, "")
    assert bare.stdout == (
        f"The Python {sys.executable} of the node {os.uname().nodename} cannot import openpaisdk and s3fs "
        "and smbprotocol. An administrator has to install openpaisdk[s3,samba] for a Python of all nodes, "
        "and to name that Python as mount-python of the Slurm engine.\n"
    )
