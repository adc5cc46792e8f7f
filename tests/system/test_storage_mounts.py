"""Storages of other servers, mounted for the tasks that request them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cli_user import CliUser, until
from support.cloud_servers import ACCESS_KEY, AZURE_ACCOUNT, AZURE_KEY, SECRET_KEY, CloudServer
from support.container_images import PLAIN, WITH_PYTHON, make
from support.external_services import install_podman
from support.fuse import fuse_fixture  # noqa: F401
from support.samba_server import SambaServer
from support.server_fixture import job
from support.team_cluster import MACHINE, USERS, TeamCluster, add_users

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service,
    pytest.mark.xdist_group("cloud"),
    pytest.mark.usefixtures("fuse"),
]

PREFIX = f"mounted-{os.getpid()}"


def credentials_file(path: Path, **values: str) -> Path:
    path.write_text("".join(f"{key.replace('_', '-')}: {value}\n" for key, value in values.items()))
    path.chmod(0o600)
    return path


def named(*storages: str) -> dict[str, object]:
    return {"storages": [{"name": name} for name in storages]}


@pytest.fixture(scope="module", name="team")
def cluster_with_storages(
    tmp_path_factory: pytest.TempPathFactory,
    s3_server: CloudServer,
    azure_server: CloudServer,
    samba_server: SambaServer,
) -> Iterator[TeamCluster]:
    folder = tmp_path_factory.mktemp("storages")
    s3 = credentials_file(folder / "s3.yaml", access_key_id=ACCESS_KEY, secret_access_key=SECRET_KEY)
    wrong = credentials_file(
        folder / "wrong.yaml", access_key_id=ACCESS_KEY, secret_access_key="not-the-secret"
    )
    gone = credentials_file(folder / "gone.yaml", access_key_id=ACCESS_KEY, secret_access_key=SECRET_KEY)
    azure = credentials_file(folder / "azure.yaml", account_key=AZURE_KEY)
    samba = credentials_file(
        folder / "samba.yaml", username=samba_server.username, password=samba_server.password
    )
    bucket = f"type: s3, bucket: team-data, region: us-east-1, endpoint-url: '{s3_server.endpoint}'"
    container = f"type: azureblob, container: team-data, account: {AZURE_ACCOUNT}"
    container += f", endpoint-url: '{azure_server.endpoint}/{AZURE_ACCOUNT}'"
    (folder / "cluster.yaml").write_text(
        "engine: container\n"
        "storages:\n"
        f"  - {{name: sets, {bucket}, prefix: {PREFIX}, credentials: {s3}}}\n"
        f"  - {{name: fixed, {bucket}, prefix: {PREFIX}, credentials: {s3}, read-only: true}}\n"
        f"  - {{name: wrong, {bucket}, prefix: {PREFIX}, credentials: {wrong}}}\n"
        f"  - {{name: blobs, {container}, prefix: {PREFIX}, credentials: {azure}, share: false}}\n"
        f"  - {{name: variables, {bucket}, prefix: {PREFIX}, credentials: {s3}, mount: false}}\n"
        f"  - {{name: lab, type: samba, address: '{samba_server.address}', credentials: {samba},\n"
        "     share: false}\n"
        f"  - {{name: unreadable, {bucket}, credentials: {gone}}}\n"
        f"  - {{name: guests, type: samba, address: '{samba_server.guest_address}'}}\n"
        f"  - {{name: closed, type: samba, address: '{samba_server.address}'}}\n"
        "  - {name: exports, type: nfs, server: 127.0.0.1, path: /nothing-here}\n"
        "  - {name: home, type: own}\n"
    )
    add_users(folder / "home")
    cluster = TeamCluster(folder / "home", ("--config", str(folder / "cluster.yaml"), *MACHINE))
    try:
        cluster.start()
        cluster.tokens = {user: cluster.log_in(user) for user in USERS}
        cluster.user, cluster.token = "alice", cluster.tokens["alice"]
        yield cluster
    finally:
        cluster.close()


def test_task_reads_and_writes_the_storages_that_it_requests(
    team: TeamCluster, tmp_path: Path, s3_server: CloudServer, azure_server: CloudServer
) -> None:
    person = CliUser(tmp_path / "person")
    (person.project / "input").write_text("from outside\n")
    copied = person.pai("copy", "input", f"{s3_server.url}/{PREFIX}/in/input", env=s3_server.env)
    assert copied.status == 0, copied
    script = [
        "cat /mnt/sets/in/input; echo at $PAI_MOUNT_SETS",
        "mkdir -p /mnt/sets/out; { echo one; echo two; } > /mnt/sets/out/file",
        "cp /mnt/sets/out/file /mnt/blobs/copy",
        "cat /mnt/fixed/out/file; if touch /mnt/fixed/new; then exit 9; fi",
    ]
    extras = named("sets", "blobs", "fixed")
    detail = team.run(job("reads-and-writes", *script, extras=extras))
    log = team.log_of("reads-and-writes").decode()
    assert detail["state"] == "SUCCEEDED", log
    assert "from outside\nat /mnt/sets\none\ntwo\n" in log
    last = set(log.splitlines()[-3:])  # the order of standard output and error may differ
    assert last == {"one", "two", "touch: cannot touch '/mnt/fixed/new': Read-only file system"}, log
    assert (
        person.pai("copy", f"{s3_server.url}/{PREFIX}/out/file", "-", env=s3_server.env).out == "one\ntwo\n"
    )
    assert (
        person.pai("copy", f"{azure_server.url}/{PREFIX}/alice/copy", "-", env=azure_server.env).out
        == "one\ntwo\n"
    )
    # Neither this machine nor another task sees the mounts.
    assert "/mnt/sets" not in Path("/proc/mounts").read_text()
    team.run(job("requests-nothing", "ls /mnt/sets | wc -l"))
    assert team.log_of("requests-nothing").decode().strip() == "0"


def test_task_uses_a_share_of_samba(team: TeamCluster, samba_server: SambaServer) -> None:
    script = [
        "cd /mnt/lab; mkdir -p set/deep; head -c 5000000 /dev/urandom > set/deep/random",
        "{ echo one; echo two; } > set/log; echo more >> set/log; mv set/log set/renamed; cat set/renamed",
        "md5sum < set/deep/random; touch gone; rm gone; ls -R; df . | tail -1 | cut -d' ' -f1",
    ]
    detail = team.run(job("share", *script, extras=named("lab")))
    log = team.log_of("share").decode()
    assert detail["state"] == "SUCCEEDED", log
    own = samba_server.folder / "alice"
    checksum = hashlib.md5((own / "set/deep/random").read_bytes(), usedforsecurity=False).hexdigest()
    listing = ".:\nset\n\n./set:\ndeep\nrenamed\n\n./set/deep:\nrandom\n"
    assert log == f"one\ntwo\nmore\n{checksum}  -\n{listing}samba:lab\n"
    assert (own / "set/renamed").read_text() == "one\ntwo\nmore\n"
    assert not list(own.rglob(".*"))


def test_share_without_credentials_is_used_as_a_guest(team: TeamCluster, samba_server: SambaServer) -> None:
    detail = team.run(job("guest", "echo from a guest > /mnt/guests/file", extras=named("guests")))
    assert detail["state"] == "SUCCEEDED", team.log_of("guest")
    assert (samba_server.guest_folder / "file").read_text() == "from a guest\n"
    assert team.run(job("no-guests", "echo started", extras=named("closed")))["state"] == "FAILED"
    assert team.log_of("no-guests").decode() == (
        "The storage closed cannot be mounted: /mnt/closed/: permission denied. "
        "An administrator of the cluster has to check the storage.\n"
    )


def test_empty_list_means_the_defaults_of_the_cluster_and_of_the_groups(team: TeamCluster) -> None:
    admin = team.admin_token()
    acls = {"admin": False, "virtualClusters": ["default"], "storageConfigs": ["fixed", "blobs"]}
    body = {"groupname": "vision", "description": "", "externalName": "", "extension": {"acls": acls}}
    assert team.ask("POST", "/api/v2/groups", body, token=admin).status == 201
    joined = team.ask("PUT", "/api/v2/users/alice/group", {"groupname": "vision"}, token=admin)
    assert joined.status == 201, joined.text
    script = "grep -o ' /mnt/[a-z]* fuse.pai r[wo]' /proc/mounts | sort"
    assert team.run(job("defaults", script, extras={"storages": []}))["state"] == "SUCCEEDED"
    assert team.log_of("defaults") == b" /mnt/fixed fuse.pai ro\n /mnt/sets fuse.pai rw\n"


def mount_pids(cluster: TeamCluster) -> list[int]:
    """The processes that serve mounts of this cluster's tasks."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                command, home = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
                if b"openpaisdk.storage.task_mount" in command and str(cluster.home).encode() in home:
                    found.append(int(entry.name))
    return found


def begin(cluster: TeamCluster, spec: dict[str, Any]) -> None:
    """Submit a job, and wait until it has printed that it is ready."""
    name = cluster.accept(spec)
    cluster.wait_state(name, "RUNNING")
    until(lambda: b"ready" in cluster.log_of(name))


def test_job_fails_with_a_sentence_if_its_storage_cannot_be_mounted(team: TeamCluster) -> None:
    detail = team.run(job("wrong-secret", "echo started", extras=named("wrong")))
    assert detail["state"] == "FAILED"
    log = team.log_of("wrong-secret").decode()
    assert log == (
        "The storage wrong cannot be mounted: The storage /mnt/wrong rejects the credentials "
        "(SignatureDoesNotMatch). An administrator of the cluster has to check the storage.\n"
    )
    # The kernel mounts it, where it can; here there is no server in any case.
    assert team.run(job("no-server", "echo started", extras=named("exports")))["state"] == "FAILED"
    log = team.log_of("no-server").decode()
    assert log.startswith("The storage exports cannot be mounted: ") and log.count("\n") == 1, log
    elsewhere = {"storages": [{"name": "sets", "mountPath": "/etc/sets"}]}
    assert team.run(job("elsewhere", "echo started", extras=elsewhere))["state"] == "FAILED"
    assert team.log_of("elsewhere").decode() == (
        "The storage sets cannot be mounted at /etc/sets: without a container, storages are directly below "
        "/mnt. Change its mountPath.\n"
    )
    assert not Path("/etc/sets").exists()
    through_parent = {"storages": [{"name": "sets", "mountPath": "/mnt/x/../sets"}]}
    assert team.run(job("through-parent", "echo started", extras=through_parent))["state"] == "FAILED"
    assert "storages are directly below /mnt" in team.log_of("through-parent").decode()


def test_job_waits_while_the_credentials_of_its_storage_cannot_be_read(team: TeamCluster) -> None:
    credentials = team.home.parent / "gone.yaml"
    credentials.unlink()
    team.accept(job("unreadable", "ls /mnt/unreadable > /dev/null", extras=named("unreadable")))

    def messages() -> dict[str, str]:
        return {event["reason"]: event["message"] for event in team.events("unreadable")}

    until(lambda: "FailedLaunch" in messages())
    expected = "The credentials of the storage unreadable cannot be read; an administrator has to fix them."
    assert messages()["FailedLaunch"] == messages()["StorageCredentialsMissing"] == expected
    credentials_file(credentials, access_key_id=ACCESS_KEY, secret_access_key=SECRET_KEY)
    assert team.wait_over("unreadable")["state"] == "SUCCEEDED", team.log_of("unreadable")


def test_task_that_succeeded_fails_if_its_files_are_lost(team: TeamCluster) -> None:
    script = "echo ready; while ls /mnt/sets >/dev/null 2>&1; do sleep 0.1; done; exit 0"
    begin(team, job("loses", script, extras=named("sets")))
    (pid,) = mount_pids(team)
    os.kill(pid, signal.SIGKILL)
    detail = team.wait_over("loses")
    assert detail["state"] == "FAILED"
    log = team.log_of("loses").decode()
    assert log.splitlines()[-2:] == [
        "The storage sets is not mounted any more: its process ended. Its files cannot be used.",
        "Not all files of the task are in its storages: the lines above say why.",
    ]


def test_storage_with_variables_only_is_not_mounted(team: TeamCluster) -> None:
    path = {"storages": [{"name": "variables", "mountPath": "/mnt/v"}]}
    detail = team.run(job("variables", "[ ! -e /mnt/v ]; echo $PAI_STORAGE_VARIABLES", extras=path))
    assert detail["state"] == "SUCCEEDED"
    assert team.log_of("variables").decode().strip() == f"s3://team-data/{PREFIX}"
    messages = [event["message"] for event in team.events("variables")]
    expected = (
        "The storage variables is not at /mnt/v: it is not mounted on this cluster. Use its address in "
    )
    assert expected + "PAI_STORAGE_VARIABLES, or pai copy." in messages


def test_commands_beside_the_task_see_its_storages(team: TeamCluster, tmp_path: Path) -> None:
    person = CliUser(tmp_path / "person")
    uri = f"http://127.0.0.1:{team.address[1]}"
    words = ("-a", "team", "--pai-uri", uri, "--user", "alice", "--authen-token", team.token)
    assert person.pai("add-cluster", *words).status == 0
    begin(team, job("beside", "echo inside > /mnt/sets/beside; echo ready; sleep 600", extras=named("sets")))
    seen = person.pai("exec", "-a", "team", "beside", "--", "cat", "/mnt/sets/beside")
    assert seen.out == "inside\n", seen
    team.stop("beside")
    team.wait_over("beside")
    until(lambda: not mount_pids(team))


def test_task_gets_errors_when_the_process_of_a_mount_dies(team: TeamCluster) -> None:
    script = "echo ready; while ls /mnt/sets >/dev/null; do sleep 0.1; done; echo failed"
    begin(team, job("mount-dies", script, "touch /mnt/sets/lost || exit 3", extras=named("sets")))
    (pid,) = mount_pids(team)
    os.kill(pid, signal.SIGKILL)
    detail = team.wait_over("mount-dies")
    log = team.log_of("mount-dies").decode()
    assert detail["state"] == "FAILED"
    assert "The storage sets is not mounted any more: its process ended. Its files cannot be used.\n" in log
    assert "not connected" in log and "failed\n" in log
    assert not list(Path("/mnt/sets").iterdir())  # nothing was written to this machine instead


def in_image(name: str, *commands: str, **top: Any) -> dict[str, Any]:
    install_podman()
    make("podman", PLAIN)
    described = job(name, *commands, **top)
    described["prerequisites"][0]["uri"] = PLAIN
    return described


def test_container_has_its_storages_at_any_path(
    team: TeamCluster, tmp_path: Path, s3_server: CloudServer
) -> None:
    extras = {"storages": [{"name": "sets", "mountPath": "/data/sets"}, {"name": "fixed"}]}
    script = "cat /proc/mounts; { echo one; cat; } < /dev/null > /data/sets/boxed; cat /mnt/fixed/boxed"
    detail = team.run(in_image("boxed", script, "touch /mnt/fixed/new || echo no", extras=extras))
    log = team.log_of("boxed").decode()
    assert detail["state"] == "SUCCEEDED", log
    assert "s3:sets /data/sets fuse.pai rw" in log and "s3:fixed /mnt/fixed fuse.pai ro" in log
    last = set(log.splitlines()[-3:])  # the order of standard output and error may differ
    assert last == {"one", "touch: /mnt/fixed/new: Read-only file system", "no"}, log
    person = CliUser(tmp_path / "person")
    copied = person.pai("copy", f"{s3_server.url}/{PREFIX}/boxed", "-", env=s3_server.env)
    assert copied.out == "one\n", copied
    assert not list((team.home / "mounts").iterdir())
    begin(team, in_image("boxed-killed", "echo ready; sleep 600", extras=named("sets")))
    (pid,) = mount_pids(team)
    supervisor = parent_of(pid)
    # Stopped first: neither may react to the end of the other.
    for end in (signal.SIGSTOP, signal.SIGKILL):
        for each in (supervisor, pid):
            os.kill(each, end)
    until(lambda: not is_mounted_below(team.home) or set(mount_pids(team)) - {pid})
    team.stop("boxed-killed")
    team.wait_over("boxed-killed")
    until(lambda: not is_mounted_below(team.home))


def test_hdfs_mount_in_a_container_says_what_to_do_instead(team: TeamCluster) -> None:
    make("podman", WITH_PYTHON)
    described = in_image(
        "mounts-itself",
        "mkdir folder; hdfs-mount --background pai://here/home/ folder || echo status $?",
        "echo kept > /mnt/home/user/alice/kept; hdfs dfs -cat /user/alice/kept",
        extras=named("home"),
    )
    described["prerequisites"][0]["uri"] = WITH_PYTHON
    assert team.run(described)["state"] == "SUCCEEDED", team.log_of("mounts-itself")
    assert set(team.log_of("mounts-itself").decode().splitlines()) == {
        "hdfs-mount: This machine has no /dev/fuse, so nothing can be mounted here. In a container, name the "
        "storage in extras.storages of the job, and the cluster mounts it; or copy the files: hdfs dfs -get.",
        "status 1",
        "kept",
    }


def is_mounted_below(folder: Path) -> bool:
    return f" {folder}/mounts/" in Path("/proc/self/mountinfo").read_text()


def parent_of(pid: int) -> int:
    return int((Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]).split()[1])


def test_nothing_is_left_when_the_supervisor_is_killed(team: TeamCluster) -> None:
    begin(team, job("supervisor-dies", "echo ready; sleep 600", extras=named("sets", "blobs")))
    pids = mount_pids(team)
    assert len(pids) == 2
    os.kill(parent_of(pids[0]), signal.SIGKILL)
    until(lambda: not set(pids) & set(mount_pids(team)))
    team.stop("supervisor-dies")  # a lost task is started again
    team.wait_over("supervisor-dies")
    until(lambda: not mount_pids(team))
