"""The plugin `ssh` of jobs, and the SSH information of the API in OpenPAI's form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.server_fixture import eventually, job, role
from support.ssh_client import SshClient, download_key, new_key, ssh_info
from support.team_cluster import NewTeam, TeamCluster


def with_plugin(name: str, **parameters: Any) -> dict[str, Any]:
    plugin = {"plugin": "ssh", "parameters": parameters}
    return job(name, "echo started; sleep 600", extras={"com.microsoft.pai.runtimeplugin": [plugin]})


@pytest.mark.parametrize("dialect", ["v1", "v2"])
def test_reply_has_the_form_of_openpai(cluster: TeamCluster, name: str, scratch: Path, dialect: str) -> None:
    cluster.accept(with_plugin(name, jobssh=True))
    framework = f"alice~{name}"
    first = ssh_info(cluster, framework)
    path = {"v1": f"/api/v1/user/alice/jobs/{name}/ssh", "v2": cluster.path(name, "/ssh")}[dialect]
    info = cluster.get(path).json()
    task = cluster.detail(name)["taskRoles"]["main"]["taskStatuses"][0]
    (container,) = info["containers"]
    assert container == {**first["containers"][0], "id": task["containerId"]}
    assert container["sshIp"] == cluster.address[0] and container["sshPort"].isdigit()
    pair = info["keyPair"]
    assert pair["folderPath"] == f"/ssh-keys/{framework}"
    assert (pair["privateKeyFileName"], pair["publicKeyFileName"]) == (framework, f"{framework}.pub")
    assert "op=OPEN" in pair["privateKeyDirectDownloadLink"]
    assert pair["privateKeyDirectDownloadLink"].partition("?")[0].endswith(f"/{framework}")
    key = download_key(cluster, info)
    assert key.startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    # As OpenPAI's command line does it: `ssh -i KEY -p PORT root@IP`.
    assert SshClient(scratch, info, key, user="root").out("echo $PAI_JOB_NAME") == f"{framework}\n"
    assert not [event for event in cluster.events(name) if "Ssh" in event["reason"]]
    assert cluster.log_of(name) == b"started\n"
    cluster.stop(name)


def test_job_itself_gets_its_key_and_other_jobs_do_not(
    cluster: TeamCluster, name: str, scratch: Path
) -> None:
    cluster.accept(job(name, "sleep 600"))
    cluster.accept(job(f"{name}-other", "sleep 600"))
    token = SshClient.of_job(cluster, f"alice~{name}", scratch).out("echo $PAI_USER_TOKEN").strip()
    own = ssh_info(cluster, f"alice~{name}", token=token)
    other = ssh_info(cluster, f"alice~{name}-other", token=token)
    assert own["keyPair"]["privateKeyDirectDownloadLink"] != ""
    assert other["keyPair"]["privateKeyDirectDownloadLink"] == ""
    cluster.stop(name)
    cluster.stop(f"{name}-other")


def test_keys_of_the_user_open_the_job_that_lists_them(
    cluster: TeamCluster, name: str, tmp_path: Path
) -> None:
    key = new_key(tmp_path / "own")
    public = (tmp_path / "own.pub").read_text()
    cluster.accept(with_plugin(name, userssh={"type": "custom", "value": f"# laptop\n{public}"}))
    cluster.accept(with_plugin(f"{name}-closed"))
    info = ssh_info(cluster, f"alice~{name}")
    client = SshClient(tmp_path / "client", info, key)
    assert client.out("echo $PAI_JOB_NAME") == f"alice~{name}\n"
    ssh_info(cluster, f"alice~{name}-closed")
    # It opens several jobs: the user name has to say which.
    for user in (f"alice~{name}-closed", "root"):
        done = client.run("ssh", "-l", user, "task", "true")
        assert done.returncode == 255 and b"Permission denied" in done.stderr, done
    cluster.stop(name)
    cluster.stop(f"{name}-closed")


def test_keys_of_the_profile_open_jobs_that_ask_for_them(
    cluster: TeamCluster, name: str, tmp_path: Path
) -> None:
    key = new_key(tmp_path / "profile")
    entry = {"title": "laptop", "value": (tmp_path / "profile.pub").read_text(), "time": 1}
    body = {"data": {"username": "alice", "extension": {"sshKeys": [entry]}}, "patch": True}
    assert cluster.ask("PUT", "/api/v2/users/me", body).status == 201
    cluster.accept(with_plugin(name, userssh={"type": "system"}))
    client = SshClient(tmp_path / "client", ssh_info(cluster, f"alice~{name}"), key)
    assert client.out("echo in") == "in\n"
    cluster.stop(name)


def test_tasks_reach_each_other_by_their_names(cluster: TeamCluster, name: str, tmp_path: Path) -> None:
    """By `ssh`, `scp` and as root; the account's own configuration is neither changed nor lost."""
    spec = with_plugin(name, jobssh=True, sshbarrier=True, sshbarrierTimeout=5)
    echo = "echo $PAI_CURRENT_TASK_ROLE_NAME $PAI_TASK_INDEX"
    line = (
        f"for peer in main-0 main-1 ps-0 root@main-1; do ssh $peer '{echo}'; done; "
        "echo sent >file; scp -q file ps-0:copied; ssh ps-0 'cat copied; ssh main-1 echo back'; "
        "ssh -T -G elsewhere | grep ^hostname"
    )
    first = f'if [ "$PAI_TASK_INDEX" = 0 ]; then {line}; fi; sleep 600'
    spec["taskRoles"] = {"main": role(first, instances=2), "ps": role("sleep 600")}
    cluster.accept(spec)
    expected = b"main 0\nmain 1\nps 0\nmain 1\nsent\nback\nhostname elsewhere\n"
    log = eventually(lambda: text if b"hostname" in (text := cluster.log_of(name)) else None, "its log")
    assert log == expected
    assert not [event for event in cluster.events(name) if "Ssh" in event["reason"]]
    # Sessions from outside have the same programs.
    client = SshClient.of_job(cluster, f"alice~{name}", tmp_path)
    assert client.out("ssh ps-0 'echo $PAI_CURRENT_TASK_ROLE_NAME'") == "ps\n"
    cluster.stop(name)


def test_tasks_that_start_one_by_one_have_no_ssh_between_them(cluster: TeamCluster, name: str) -> None:
    spec = with_plugin(name, jobssh=True, sshbarrier=True)
    spec["taskRoles"]["main"] = role("sleep 600", instances=2)
    spec["extras"]["gangAllocation"] = False
    cluster.accept(spec)
    cluster.wait_state(name, "RUNNING")
    (event,) = [event for event in cluster.events(name) if event["reason"] == "JobSshNotServed"]
    assert "gangAllocation" in event["message"]
    cluster.stop(name)


def test_cluster_without_an_endpoint_says_so(new_team: NewTeam, name: str) -> None:
    cluster = new_team("listen: {ssh-port: null}\n")
    cluster.accept(with_plugin(name, jobssh=True))
    eventually(lambda: b"started" in cluster.log_of(name))
    assert b"The plugin ssh has no effect: The cluster has no SSH endpoint" in cluster.log_of(name)
    cluster.wait_state(name, "RUNNING")
    reply = cluster.get(cluster.path(name, "/ssh"))
    assert (reply.status, reply.json()["code"]) == (404, "NoJobSshInfoError")
    assert "no SSH endpoint" in reply.json()["hint"]
    (event,) = [event for event in cluster.events(name) if event["reason"] == "SshNotServed"]
    assert event["type"] == "Warning" and "$PAI_CONTAINER_SSH_PORT" in event["message"]
