"""Tasks in containers by SSH: images without sshd, with and without Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.container_images import PLAIN, WITH_PYTHON, make
from support.external_services import install_podman
from support.server_fixture import Cluster, job, new_cluster_fixture, running_cluster  # noqa: F401
from support.ssh_client import SshClient

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("image-jobs")]
# The job runs before its command has written the file.
MARK = "until [ -s mark ]; do sleep 0.1; done; cat mark"


@pytest.fixture(scope="module", autouse=True)
def images() -> None:
    install_podman()
    make("podman", PLAIN)
    make("podman", WITH_PYTHON)


def in_image(name: str, image: str) -> dict[str, Any]:
    described = job(name, "echo inside > mark; sleep 600")
    described["prerequisites"][0]["uri"] = image
    return described


def test_command_runs_in_the_container_and_scp_copies(cluster: Cluster, scratch: Path) -> None:
    cluster.accept(in_image("boxed", WITH_PYTHON))
    client = SshClient.of_job(cluster, f"{cluster.user}~boxed", scratch)
    assert client.out(f"{MARK}; echo $PAI_JOB_NAME") == f"inside\n{cluster.user}~boxed\n"
    assert client.ssh("exit 7").returncode == 7
    data = bytes(range(256)) * 1000
    (scratch / "data").write_bytes(data)
    done = client.run("scp", "data", "task:copy")
    assert done.returncode == 0, done
    assert client.ssh("cat copy").stdout == data
    assert client.run("scp", "task:copy", "back").returncode == 0
    assert (scratch / "back").read_bytes() == data


def test_image_without_python_says_what_scp_needs(cluster: Cluster, scratch: Path) -> None:
    cluster.accept(in_image("plain", PLAIN))
    client = SshClient.of_job(cluster, f"{cluster.user}~plain", scratch)
    assert client.out(MARK) == "inside\n"
    done = client.run("scp", "task:mark", "mark")
    assert done.returncode != 0 and b"need Python 3 or an sftp-server" in done.stderr, done
    # Without either, a file still travels through a command.
    assert client.ssh("cat mark").stdout == b"inside\n"
