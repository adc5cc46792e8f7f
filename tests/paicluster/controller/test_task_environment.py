"""Environment of a task: required and forbidden variables."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

import pytest

from paicluster.engines.process.local_node import is_ephemeral, non_ephemeral_ports
from support.server_fixture import Cluster, eventually, job

PLANTED = "PLANTED_IN_THE_SERVERS_ENVIRONMENT"
# Variables of the account, of launchers, and those that a shell adds.
KNOWN = {
    "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "PATH", "PWD", "OLDPWD",
    "SHLVL", "_", "PYTHONPATH",
    "PYTHONUNBUFFERED", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "NODE_RANK",
    "LOCAL_RANK", "TF_CONFIG", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "APP_ID", "FRAMEWORK_NAME",
    "HADOOP_USER_NAME",
}  # fmt: skip


def environment_of(cluster: Cluster, name: str, folder: Path, **more: object) -> dict[str, str]:
    path = folder / "environment"
    status = cluster.run(job(name, f"env -0 > {path}", **more))  # type: ignore[arg-type]
    assert status["state"] == "SUCCEEDED", status
    pairs = (pair.partition("=") for pair in path.read_text().split("\0") if pair)
    return {key: value for key, _, value in pairs}


def test_variables_of_both_api_generations(cluster: Cluster, name: str, tmp_path: Path) -> None:
    seen = environment_of(cluster, name, tmp_path, ports={"web": 2})
    task = cluster.detail(name)["taskRoles"]["main"]["taskStatuses"][0]
    full = f"{cluster.user}~{name}"
    assert seen["PAI_JOB_NAME"] == seen["PAI_FRAMEWORK_NAME"] == full
    assert seen["PAI_USER_NAME"] == cluster.user
    assert seen["PAI_TASK_ROLE_LIST"] == seen["PAI_CURRENT_TASK_ROLE_NAME"] == "main"
    assert seen["PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"] == seen["PAI_TASK_INDEX"] == "0"
    assert seen["PAI_RESOURCE_main"] == "0,1,16,0"
    assert seen["PAI_CONTAINER_ID"] == seen["FC_POD_UID"] == task["containerId"]
    assert seen["PAI_HOST_IP_main_0"] == seen["MASTER_ADDR"] == task["containerIp"] == "127.0.0.1"
    assert seen["PAI_PORT_LIST_main_0_web"] == task["containerPorts"]["web"]
    assert len(seen["PAI_CONTAINER_HOST_web_PORT_LIST"].split(",")) == 2
    assert seen["PAI_CONTAINER_SSH_PORT"] == task["containerPorts"]["ssh"]
    assert seen["PYTHONUNBUFFERED"] == "1"
    assert seen["PAI_REST_SERVER_URI"] == "http://{}:{}".format(*cluster.address)
    assert Path(seen["PAI_WORK_DIR"]).name == "work"
    assert seen["WORLD_SIZE"] == "1"


def test_task_without_a_gang_gets_the_addresses_of_live_tasks(
    cluster: Cluster, name: str, tmp_path: Path
) -> None:
    one_at_a_time = {"gangAllocation": False, "openpaisdk": {"arrayLimit": 1}}
    command = f"env > {tmp_path}/$PAI_TASK_INDEX"
    status = cluster.run(job(name, command, instances=3, ports={"web": 1}, extras=one_at_a_time))
    assert status["state"] == "SUCCEEDED", status
    for index in range(3):
        lines = (tmp_path / str(index)).read_text().splitlines()
        seen = {key: value for key, _, value in (line.partition("=") for line in lines)}
        # Independent of the others: a library that reads these must not wait for tasks that never start.
        assert (seen["RANK"], seen["WORLD_SIZE"]) == ("0", "1")
        assert [key for key in seen if key.startswith("PAI_HOST_IP_")] == [f"PAI_HOST_IP_main_{index}"]
        assert seen["PAI_TASK_ROLE_INSTANCES"] == f"main:{index}"
        assert seen["PAI_TASK_ROLE_main_HOST_LIST"] == f"127.0.0.1:{seen['PAI_CONTAINER_HOST_PORT']}"


def test_environment_is_an_allow_list(cluster: Cluster, name: str, tmp_path: Path) -> None:
    seen = environment_of(cluster, name, tmp_path)
    assert PLANTED not in seen
    assert "leaked" not in seen.values()
    assert {key for key in seen if not key.startswith(("PAI_", "FC_"))} <= KNOWN


def test_embedded_cluster_applies_the_submitting_shells_environment(
    cluster: Cluster, name: str, tmp_path: Path
) -> None:
    kept = {"PATH": "/my/own/bin:/usr/bin:/bin", "VIRTUAL_ENV": "/my/own"}
    seen = environment_of(cluster, name, tmp_path, extras={"openpaisdk": {"environment": kept}})
    # The commands of the runtime come last in PATH.
    assert seen["PATH"].startswith(f"{kept['PATH']}:") and seen["PATH"].endswith("/bin")
    assert {key: seen[key] for key in kept if key != "PATH"} == {k: v for k, v in kept.items() if k != "PATH"}


def test_ports_are_unique_and_free(cluster: Cluster, name: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    what = job(name, f"until [ -e {go} ]; do sleep 0.02; done", instances=8, ports={"a": 3, "b": 2})
    cluster.accept(what)
    cluster.wait_state(name, "RUNNING")
    tasks = cluster.detail(name)["taskRoles"]["main"]["taskStatuses"]
    ports = [
        int(port) for task in tasks for each in task["containerPorts"].values() for port in each.split(",")
    ]
    assert len(ports) == len(set(ports)) == 8 * 7
    assert all(15000 <= port < 40000 for port in ports)
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    go.touch()
    cluster.wait_over(name)


def test_ports_avoid_the_ephemeral_range(cluster: Cluster, name: str) -> None:
    status = cluster.run(job(name, "true", ports={"a": 40, "b": 20}))
    assert status["state"] == "SUCCEEDED", status
    task = cluster.detail(name)["taskRoles"]["main"]["taskStatuses"][0]
    ports = [int(port) for each in task["containerPorts"].values() for port in each.split(",")]
    assert len(ports) == len(set(ports)) == 62
    assert not [port for port in ports if is_ephemeral(port)]


def test_secrets_reach_the_task_and_not_its_log(cluster: Cluster, name: str, tmp_path: Path) -> None:
    secret = "correct horse 'battery' staple"
    out = tmp_path / "digest"
    secrets = {"password": "correct-horse-battery", "list": ["another-secret-value"]}
    script = [
        f"printf %s '<% $secrets.password %>' | sha256sum > {out}",
        "echo the password is '<% $secrets.password %>'",
        "printf correct-; sleep 0.1; echo horse-battery",
        "echo '<% $secrets.password %>' >&2",
        "echo another-secret-value",
    ]
    assert cluster.run(job(name, *script, secrets=secrets))["state"] == "SUCCEEDED"
    assert out.read_text().split()[0] == hashlib.sha256(b"correct-horse-battery").hexdigest()
    assert cluster.log_of(name, "stdout") == b"the password is ******\n******\n******\n"
    assert cluster.log_of(name, "stderr") == b"******\n"
    assert b"correct-horse-battery" not in cluster.log_of(name, "all")
    assert secret not in cluster.log.read_text()


def test_job_token_expires_with_the_job(cluster: Cluster, name: str, tmp_path: Path) -> None:
    token_file, go = tmp_path / "token", tmp_path / "go"
    script = [
        "echo $PAI_USER_TOKEN",
        f"printf %s $PAI_USER_TOKEN > {token_file}.partial && mv {token_file}.partial {token_file}",
        f"until [ -e {go} ]; do sleep 0.02; done",
    ]
    cluster.accept(job(name, *script))
    eventually(token_file.exists, "the token")
    token = token_file.read_text()
    assert cluster.get(cluster.path(name), token=token).status == 200
    assert cluster.submit(job(name + "-child", "true"), token=token).status == 202
    # It acts for the job's user, whose job this is.
    assert cluster.get(cluster.path(name + "-child"), token=token).status == 200
    for method, path in (
        ("GET", "/api/v2/tokens"),
        ("GET", "/api/v2/tokens/check"),
        ("POST", "/api/v2/tokens/application"),
    ):
        assert cluster.ask(method, path, token=token).status == 403
    assert token not in cluster.get("/api/v2/tokens").text
    go.touch()
    assert cluster.wait_over(name)["state"] == "SUCCEEDED"
    assert cluster.get(cluster.path(name), token=token).status == 401
    assert cluster.log_of(name) == b"******\n"


def test_python_output_is_unbuffered(cluster: Cluster, name: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    program = (
        f"import os, time; print('early'); exec('while not os.path.exists(\\\"{go}\\\"): time.sleep(0.02)')"
    )
    cluster.accept(job(name, f'python3 -c "{program}"'))
    stream = iter(cluster.follow(name))
    first = next(frame for frame in stream if frame["kind"] == "log")
    assert first["data"] == b"early\n"
    go.touch()
    assert [frame["state"] for frame in stream if frame["kind"] == "end"] == ["SUCCEEDED"]


@pytest.mark.parametrize(
    ("first", "last", "lasting"),
    [
        (32768, 60999, range(15000, 32768)),
        (49152, 65535, range(15000, 40000)),
        (16000, 65000, range(1024, 16000)),
        (1024, 60999, range(61000, 65536)),
        (1024, 65535, range(0)),
    ],
)
def test_non_ephemeral_ports_follow_the_kernel_settings(first: int, last: int, lasting: range) -> None:
    assert non_ephemeral_ports(first, last) == lasting
