"""Jobs through a server whose engine is Kubernetes, and what `paicluster init` writes for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import external_services, namespace_kubernetes
from support.container_images import WITH_BASH, WITH_PYTHON
from support.namespace_kubernetes import NamespaceKubernetes
from support.ports import free_ports
from support.server_fixture import Cluster, eventually, job

pytestmark = pytest.mark.slow

FILE = """
listen: {{external-url: "http://127.0.0.1:{port}"}}
engine:
  type: kubernetes
  kubeconfig: {kubeconfig}
  runtime-image: {runtime}
  image: {image}
virtual-clusters:
  lab: {{cpus: 1, memory-mb: 1024}}
"""


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespaceKubernetes]:
    if os.geteuid() != 0:
        external_services.missing("root, to make namespaces")
    with namespace_kubernetes.running(tmp_path_factory.mktemp("pods")) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(kubernetes: NamespaceKubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    home, port = folder / "home", free_ports(1)[0]
    home.mkdir()
    kubeconfig = kubernetes.write_kubeconfig(folder / "kubeconfig")
    text = FILE.format(port=port, kubeconfig=kubeconfig, runtime=WITH_PYTHON, image=WITH_BASH)
    (home / "cluster.yaml").write_text(text)
    running = Cluster(home, ("--embedded", "--port", str(port)))
    try:
        yield running.start()
    finally:
        running.close()


def test_job_runs_with_its_log_and_exit_code(cluster: Cluster, kubernetes: NamespaceKubernetes) -> None:
    cluster.accept(job("trivial", "echo hello from $PAI_TASK_ROLE_NAME", "exit 3"))
    ended = cluster.wait_over("trivial")
    assert ended["state"] == "FAILED"
    assert cluster.log_of("trivial") == b"hello from main\n"
    (task,) = cluster.detail("trivial")["taskRoles"]["main"]["taskStatuses"]
    assert task["containerNodeName"] == namespace_kubernetes.NODE
    assert ended["appExitMessages"]["runtime"]["originUserExitCode"] == 3
    eventually(
        lambda: not kubernetes.names("pods") and not kubernetes.names("secrets"), "the end of all pods"
    )


def test_running_job_is_stopped(cluster: Cluster, kubernetes: NamespaceKubernetes) -> None:
    cluster.accept(job("long", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done"))
    eventually(lambda: b"up" in cluster.log_of("long"), "the output")
    cluster.stop("long")
    assert cluster.wait_over("long")["state"] == "STOPPED"
    assert b"bye" in cluster.log_of("long")
    eventually(lambda: not kubernetes.names("pods"), "the end of all pods")


def test_job_waits_for_the_quota_of_its_virtual_cluster(cluster: Cluster) -> None:
    lab = {"defaults": {"virtualCluster": "lab"}}
    cluster.accept(job("first", "sleep 600", **lab))
    cluster.wait_state("first", "RUNNING")
    cluster.accept(job("second", "echo second", **lab))
    eventually(
        lambda: any("used up its quota" in one["message"] for one in cluster.events("second")), "the reason"
    )
    assert cluster.detail("second")["jobStatus"]["state"] == "WAITING"
    cluster.stop("first")
    assert cluster.wait_over("second")["state"] == "SUCCEEDED"


def test_ports_addresses_and_variables_of_a_task(cluster: Cluster) -> None:
    commands = 'echo "$PAI_HOST_IP_main_0 $MASTER_ADDR"', 'test "$PAI_PORT_LIST_main_0_web" -gt 1024'
    cluster.accept(job("variables", *commands, ports={"web": 1}))
    assert cluster.wait_over("variables")["state"] == "SUCCEEDED"
    assert cluster.log_of("variables") == b"127.0.0.1 127.0.0.1\n"


def init(home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paicluster", "init", "--kubernetes", "--home", str(home)]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_init_writes_what_the_cluster_says(kubernetes: NamespaceKubernetes, tmp_path: Path) -> None:
    kubeconfig = kubernetes.write_kubeconfig(tmp_path / "kubeconfig")
    done = init(tmp_path / "home", KUBECONFIG=str(kubeconfig))
    assert done.returncode == 0, done.stderr
    assert "1 nodes with 2 nvidia.com/gpu" in done.stdout
    text = (tmp_path / "home/cluster.yaml").read_text()
    assert "type: kubernetes" in text and "gpu-resource: nvidia.com/gpu" in text
    check = [sys.executable, "-m", "paicluster", "check-config", str(tmp_path / "home")]
    checked = subprocess.run(check, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr + checked.stdout


def test_init_without_a_kubeconfig_or_without_a_cluster_is_one_sentence(tmp_path: Path) -> None:
    done = init(tmp_path / "home", KUBECONFIG=str(tmp_path / "none"))
    assert done.returncode != 0 and "There is no kubeconfig" in done.stderr and "Traceback" not in done.stderr
    away = NamespaceKubernetes(tmp_path).write_kubeconfig(tmp_path / "kubeconfig")
    done = init(tmp_path / "home", KUBECONFIG=str(away))
    assert done.returncode != 0 and "does not respond" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "home/cluster.yaml").exists()


def test_server_without_an_external_url_says_what_is_missing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "cluster.yaml").write_text("engine: {type: kubernetes}\n")
    command = [sys.executable, "-m", "paicluster", "serve", "--home", str(home), "--port", "0", "--embedded"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    assert "external-url" in done.stderr and "Traceback" not in done.stderr
