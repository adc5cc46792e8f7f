"""Jobs that name an image, on a whole cluster with a real podman."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from openpaisdk.client import ClusterClient, Endpoint
from openpaisdk.jobs.job_options import JobOptions
from openpaisdk.jobs.pre_commands import PreCommands
from openpaisdk.storage import Storage
from paicluster.controller.mountable_storages import MountableStorage, mounts_of, unmountable
from paiprotocol.jobs import read_job
from support.container_images import PLAIN, WITH_PYTHON, make, make_own
from support.docker_and_registry import registry
from support.external_services import install_podman
from support.paths import REPOSITORY
from support.server_fixture import Cluster, eventually, job

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("image-jobs")]

USER, PASSWORD = "reader", "open-sesame-9"


@pytest.fixture(autouse=True, scope="module")
def podman() -> Iterator[None]:
    install_podman()
    make("podman", PLAIN)
    yield
    # Stopped ones only: other tests may be running theirs.
    arguments = ["container", "prune", "--force", "--filter", "label=org.openpai.cluster"]
    subprocess.run(["podman", *arguments], capture_output=True, check=False)


def in_image(name: str, *commands: str, image: str = PLAIN, **top: Any) -> dict[str, Any]:
    described = job(name, *commands, **top)
    described["prerequisites"][0]["uri"] = image
    return described


def reasons(cluster: Cluster, name: str) -> list[str]:
    return [event["reason"] for event in cluster.events(name)]


def test_embedded_cluster_runs_an_image_without_configuration(cluster: Cluster) -> None:
    assert cluster.get("/api/v2/info").json()["containers"] is True
    commands = ["type bash python3 || echo none of them", 'echo "$PAI_JOB_NAME in $PAI_WORK_DIR"']
    name = cluster.accept(in_image("boxed", *commands))
    assert cluster.wait_state(name, "SUCCEEDED", "FAILED")["state"] == "SUCCEEDED"
    frames = cluster.follow(name)
    said = b"".join(frame.get("data", b"") for frame in frames).decode()
    frames.close()
    assert "none of them\n" in said and f"{cluster.user}~boxed in /\n" in said
    assert reasons(cluster, name) == []


def test_selected_python_of_an_image(cluster: Cluster) -> None:
    make("podman", WITH_PYTHON)
    own = '"import sys; print(sys.executable)"'
    selection = PreCommands(JobOptions("job", [], python="/bin/python3")).pre_commands()
    commands = f"python -c {own}; python3 -c {own}"
    name = cluster.accept(in_image("selected", *selection, commands, image=WITH_PYTHON))
    assert cluster.wait_over(name)["state"] == "SUCCEEDED", cluster.log_of(name)
    assert cluster.log_of(name) == b"/bin/python3\n" * 2
    selection = PreCommands(JobOptions("job", [], python="/opt/python")).pre_commands()
    name = cluster.accept(in_image("not-there", *selection, "true"))
    status = cluster.wait_over(name)
    assert (status["state"], status["appExitCode"], status["retries"]) == ("FAILED", 248, 0)


def test_missing_image_fails_the_job_at_once_with_the_reason(cluster: Cluster, tmp_path: Path) -> None:
    with registry(tmp_path / "shelf") as shelf:
        name = cluster.accept(in_image("missing", "true", image=f"{shelf}/no/such:1", jobRetryCount=3))
        status = cluster.wait_state(name, "SUCCEEDED", "FAILED")
        assert (status["state"], status["appExitCode"], status["retries"]) == ("FAILED", 254, 0)
        assert f"There is no image {shelf}/no/such:1" in str(cluster.detail(name))
        assert {"Pulling", "FailedLaunch"} <= set(reasons(cluster, name))


def test_missing_localhost_image_fails_the_job_at_once(cluster: Cluster) -> None:
    name = cluster.accept(in_image("not-built", "true", image="localhost/pai-test/never-built:1"))
    status = cluster.wait_state(name, "SUCCEEDED", "FAILED")
    assert (status["state"], status["appExitCode"], status["retries"]) == ("FAILED", 254, 0)
    assert "no image localhost/pai-test/never-built:1 on this machine" in status["appExitDiagnostics"]


def test_job_with_an_unreachable_registry_waits_with_the_reason(cluster: Cluster) -> None:
    name = cluster.accept(in_image("far", "true", image="127.0.0.1:9/pai-test/far:1"))
    failed = eventually(
        lambda: [e for e in cluster.events(name) if e["reason"] == "FailedLaunch"], "word of the failed pull"
    )
    assert "127.0.0.1:9/pai-test/far:1 could not be pulled" in failed[0]["message"]
    assert "or `host`, which runs the task without a container." in failed[0]["message"]
    status = cluster.status(name)
    assert (status["state"], status["retries"], status["appExitCode"]) == ("WAITING", 0, None)
    cluster.stop(name)
    status = cluster.wait_state(name, "STOPPED", "FAILED")
    assert status["state"] == "STOPPED" and "could not be pulled" in status["appExitDiagnostics"]


def test_container_uses_the_cluster_that_runs_it(cluster: Cluster) -> None:
    """With the runtime's `hdfs dfs`, and with the SDK where the image has it."""
    make("podman", WITH_PYTHON)
    url = "http://{}:{}".format(*cluster.address)
    storage = Storage.of(ClusterClient("own", Endpoint(url, cluster.user, cluster.token)))
    for package in ("openpaisdk", "paiprotocol", "pairuntime"):
        storage.upload(REPOSITORY / "src" / package, f"/user/{cluster.user}/sdk/{package}")
    left = cluster.accept(in_image("left", "echo left > $PAI_OUTPUT_DIR/file"))
    assert cluster.wait_state(left, "SUCCEEDED", "FAILED")["state"] == "SUCCEEDED"
    commands = [
        "export HOME=/tmp",
        "hdfs dfs -cat pai://here/jobs/left/output/file",
        'hdfs dfs -get "pai://here/0/user/$PAI_USER_NAME/sdk" /tmp/sdk',
        "export PYTHONPATH=/tmp/sdk",
        "python3 -m openpaisdk list-jobs -o json | grep -o uses_its_cluster | head -n 1",
        "python3 -m openpaisdk copy $PAI_DEFAULT_FS_URI/user/$PAI_USER_NAME/jobs/left/output/file -",
        "python3 -m openpaisdk copy pai://here/jobs/left/output/file -",
        "python3 -m openpaisdk list-jobs -a local || echo status $?",
    ]
    name = cluster.accept(in_image("uses_its_cluster", *commands, image=WITH_PYTHON, memory_mb=512))
    assert cluster.wait_state(name, "SUCCEEDED", "FAILED")["state"] == "SUCCEEDED", cluster.log_of(name)
    said = cluster.log_of(name, "stdout").decode().splitlines()
    assert said == ["left", "uses_its_cluster", "left", "left", "status 1"], cluster.log_of(name)
    assert "not started inside a task" in cluster.log_of(name, "stderr").decode()


def test_login_from_secrets_is_used_and_not_stored(cluster: Cluster, tmp_path: Path) -> None:
    with registry(tmp_path / "locked", {USER: PASSWORD}) as shelf:
        image = f"{shelf}/pai-test/{uuid.uuid4().hex[:12]}:1"
        creds = ["--creds", f"{USER}:{PASSWORD}"]
        push = ["push", "-q", "--tls-verify=false", *creds, image]
        make_own("podman", image)
        for arguments in (push, ["rmi", image]):
            subprocess.run(["podman", *arguments], capture_output=True, check=True)
        described = in_image("private", "echo in", image=image, secrets={"pull": PASSWORD})
        described["prerequisites"][0]["auth"] = {
            "username": USER,
            "password": "<% $secrets.pull %>",
            "registryuri": f"http://{shelf}",
        }
        name = cluster.accept(described)
        assert cluster.wait_state(name, "SUCCEEDED", "FAILED")["state"] == "SUCCEEDED"
        assert sorted(reasons(cluster, name)) == ["Pulled", "Pulling"]
        without = in_image("private-without", "echo in", image=image.removesuffix(":1") + ":2")
        name = cluster.accept(without)
        assert cluster.wait_state(name, "SUCCEEDED", "FAILED")["appExitCode"] == 254
        assert "requires a login" in str(cluster.detail(name))
        subprocess.run(["podman", "rmi", "-f", image], capture_output=True, check=False)
    assert PASSWORD not in cluster.get(cluster.path("private", "/config")).text
    spoken = [path for path in cluster.home.rglob("*") if path.is_file()]
    assert [path for path in spoken if PASSWORD.encode() in path.read_bytes()] == []


def test_restarted_server_adopts_its_containers(cluster: Cluster, tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = "echo up; until [ -e /usr/local/pai/work/go ]; do sleep 0.05; done; echo done"
    name = cluster.accept(in_image("adopted", wait))
    doomed = cluster.accept(in_image("doomed", "echo up; sleep 600"))
    for one in (name, doomed):
        cluster.wait_state(one, "RUNNING")
    attempts = eventually(lambda: len(list(cluster.home.glob("tasks/*/*/stdout.0"))) == 2, "both are up")
    assert attempts
    cluster.kill()
    cluster.start()
    for work in cluster.home.glob("tasks/*/*/work"):
        (work / go.name).touch()
    assert cluster.wait_state(name, "SUCCEEDED", "FAILED")["state"] == "SUCCEEDED"
    assert cluster.status(doomed)["state"] == "RUNNING"
    cluster.stop(doomed)
    assert cluster.wait_state(doomed, "STOPPED", "FAILED")["state"] == "STOPPED"


def test_job_waiting_for_its_image_can_be_stopped_and_survives_a_restart(cluster: Cluster) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        image = f"127.0.0.1:{deaf.getsockname()[1]}/some/image:1"
        unwanted, patient = (cluster.accept(in_image(name, "true", image=image)) for name in ("no", "yes"))
        for name in (unwanted, patient):
            eventually(lambda name=name: reasons(cluster, name) == ["Pulling"], "the pull")
            assert cluster.status(name)["state"] == "WAITING"
        cluster.stop(unwanted)
        assert cluster.wait_state(unwanted, "STOPPED", "FAILED")["state"] == "STOPPED"
        assert cluster.terminate(10) == 0
        cluster.start()
        eventually(lambda: reasons(cluster, patient) == ["Pulling"] * 2, "the next pull")
        assert cluster.status(patient)["state"] == "WAITING"
        cluster.stop(patient)
        assert cluster.wait_state(patient, "STOPPED", "FAILED")["state"] == "STOPPED"


def test_out_of_memory_has_its_own_exit_code(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster().start("--limits", "enforce")
    greedy = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}"
    name = cluster.accept(in_image("greedy", greedy, memory_mb=64))
    assert cluster.wait_state(name, "SUCCEEDED", "FAILED")["appExitCode"] == -1200


def test_storages_are_mounted_at_the_paths_of_the_job(
    new_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    for name in ("home", "data", "private"):
        (tmp_path / name).mkdir()
    (tmp_path / "data/x").write_text("shared\n")
    (tmp_path / "home/cluster.yaml").write_text(
        "storages:\n"
        f"  - {{name: data, type: mount, path: {tmp_path / 'data'}, read-only: true}}\n"
        f"  - {{name: private, type: mount, path: {tmp_path / 'private'}, share: false}}\n"
    )
    cluster = new_cluster().start()
    wanted = {"storages": [{"name": "data"}, {"name": "private", "mountPath": "/mine"}]}
    script = "cat /mnt/data/x; touch /mnt/data/y || echo read-only; echo own >/mine/z"
    name = cluster.accept(in_image("mounted", script, extras=wanted))
    assert cluster.wait_state(name, "SUCCEEDED", "FAILED")["state"] == "SUCCEEDED"
    frames = cluster.follow(name)
    said = b"".join(frame.get("data", b"") for frame in frames)
    frames.close()
    assert said.startswith(b"shared\n") and b"read-only\n" in said
    assert (tmp_path / "private" / cluster.user / "z").read_text() == "own\n"
    usual = cluster.accept(in_image("usual", "cat /mnt/data/x", extras={"storages": []}))
    assert cluster.wait_state(usual, "SUCCEEDED", "FAILED")["state"] == "SUCCEEDED"
    host = cluster.accept(job("on-the-host", "true", extras=wanted))
    assert cluster.wait_state(host, "SUCCEEDED", "FAILED")["state"] == "SUCCEEDED"
    assert reasons(cluster, host) == ["StorageNotMounted"] * 2


def test_storage_of_the_cluster_is_mounted(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster().start()
    mine = f"user/{cluster.user}"
    for number, storages in enumerate(([], [{"name": "home", "mountPath": "/data"}])):
        where = "/data" if storages else "/mnt/home"
        script = f"mkdir -p {where}/{mine}; echo {number} > {where}/{mine}/from-{number}"
        name = cluster.accept(in_image(f"own-{number}", script, extras={"storages": storages}))
        assert cluster.wait_state(name, "SUCCEEDED", "FAILED")["state"] == "SUCCEEDED"
        listed = cluster.get(f"/webhdfs/v1/{mine}/from-{number}?op=GETFILESTATUS").json()["FileStatus"]
        assert (listed["owner"], listed["length"]) == (cluster.user, 2)
    host = cluster.accept(job("own-on-the-host", "true", extras={"storages": []}))
    assert cluster.wait_state(host, "SUCCEEDED", "FAILED")["state"] == "SUCCEEDED"
    (event,) = cluster.events(host)
    assert event["message"] == f"No storage is mounted at /mnt/home here: use {cluster.home / 'storage'}."


def test_storage_of_several_users_mounts_each_users_home(tmp_path: Path) -> None:
    wanted = read_job(json.dumps(in_image("mine", "true", extras={"storages": [{"name": "home"}]})))
    own = MountableStorage("home", tmp_path, own=True, homes="user", default=True)
    (mount,) = mounts_of(wanted, "alice", [own])
    assert (mount.source, mount.target) == (tmp_path / "user/alice", "/mnt/home/user/alice")
    assert mounts_of(wanted, "alice", [own], delegated=True) == ()
    reasons = unmountable(wanted, "alice", [own], on_host=False, delegated=True)
    assert "hdfs dfs -get" in reasons["/mnt/home/user/alice"]
    assert unmountable(wanted, "alice", [own], on_host=False, delegated=False) == {}


def test_images_can_be_refused_without_a_container_program(
    new_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("bash", "sh"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "")
    home = tmp_path / "home"
    home.mkdir()
    (home / "cluster.yaml").write_text("engine:\n  type: container\n  images: refuse\n")
    cluster = new_cluster(variables={"PATH": f"{tmp_path / 'bin'}"}).start()
    assert cluster.get("/api/v2/info").json()["containers"] is False
    name = cluster.accept(in_image("refused", "true"))
    status = cluster.wait_state(name, "SUCCEEDED", "FAILED")
    assert (status["state"], status["appExitCode"]) == ("FAILED", -200)
    assert "neither podman nor docker" in str(cluster.detail(name))
    plain = cluster.accept(job("plain", "true"))
    assert cluster.wait_state(plain, "SUCCEEDED", "FAILED")["state"] == "SUCCEEDED"
