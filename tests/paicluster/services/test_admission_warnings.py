"""Warnings at submission: requests that can never fit, images that the cluster does not use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.server_fixture import Cluster, job

V1 = "/api/v1/jobs"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four cores, of which the virtual cluster lab has two."""
    machine = ("--embedded", "--cpus", "4", "--memory-mb", "1000", "--gpus", "2")
    cluster = Cluster(tmp_path_factory.mktemp("small"), (*machine, "--virtual-cluster", "lab=1,2,500"))
    try:
        yield cluster.start()
    finally:
        cluster.close()


def in_lab(name: str, **resources: Any) -> dict[str, Any]:
    return job(name, "true", defaults={"virtualCluster": "lab"}, **resources)


def v1_job(name: str, **role: Any) -> dict[str, Any]:
    main = {"name": "main", "command": "true", "memoryMB": 16, "shmMB": 8, **role}
    return {"jobName": name, "image": "host", "virtualCluster": "lab", "taskRoles": [main]}


def warning(cluster: Cluster, path: str, spec: dict[str, Any]) -> str:
    reply = cluster.ask("POST", path, spec)
    assert reply.status == 202, reply.text
    return str(reply.headers.get("x-warning", ""))


def test_request_that_never_fits_is_accepted_with_both_numbers(small: Cluster) -> None:
    """Numbers are those of the virtual cluster, not of the whole one; of a job of either version."""
    until = "The job stays pending until the cluster changes: "
    has = "the virtual cluster lab has at most"
    said = warning(small, "/api/v2/jobs", in_lab("cores", cpu=3))
    assert said == f"{until}the job asks for 3 cores; {has} 2 cores."
    said = warning(small, "/api/v2/jobs", in_lab("several", cpu=3, gpu=2, memory_mb=600))
    amounts = "3 cores and 600 MB of memory and 2 GPUs"
    assert said == f"{until}the job asks for {amounts}; {has} 2 cores and 500 MB of memory and 1 GPU."
    said = warning(small, "/api/v2/jobs", in_lab("gang", instances=3))
    assert said == f"{until}the job asks for 3 cores; {has} 2 cores."
    said = warning(small, V1, v1_job("old", gpuNumber=2))
    assert said == f"{until}the job asks for 2 GPUs; {has} 1 GPU."
    assert small.status("cores")["state"] == small.status("old")["state"] == "WAITING"


def test_request_that_fits_has_no_warning(small: Cluster) -> None:
    assert warning(small, "/api/v2/jobs", in_lab("fits", cpu=2, gpu=1)) == ""
    extras = {"gangAllocation": False}
    assert warning(small, "/api/v2/jobs", in_lab("array", instances=100, extras=extras)) == ""
    # Opportunistic jobs use what others leave idle.
    extras = {"hivedScheduler": {"jobPriorityClass": "oppo"}}
    assert warning(small, "/api/v2/jobs", in_lab("oppo", cpu=4, extras=extras)) == ""


@pytest.mark.parametrize(
    ("path", "spec"), [("/api/v2/jobs", in_lab("refused", cpu=3)), (V1, v1_job("refused", cpuNumber=3))]
)
def test_strict_refuses_what_never_fits(small: Cluster, path: str, spec: dict[str, Any]) -> None:
    reply = small.ask("POST", f"{path}?strict=true", spec)
    assert (reply.status, reply.json()["code"]) == (400, "UnschedulableJobError")
    assert "The job asks for 3 cores; the virtual cluster lab has at most 2 cores." in reply.json()["message"]
    assert small.get(small.path("refused")).status == 404


def test_strict_accepts_what_fits(small: Cluster) -> None:
    assert small.ask("POST", "/api/v2/jobs?strict=true", in_lab("accepted")).status == 202


def test_unused_image_is_named(small: Cluster) -> None:
    spec = in_lab("image")
    spec["prerequisites"] = [{"name": "img", "type": "dockerimage", "uri": "ubuntu:24.04"}]
    spec["taskRoles"]["main"]["dockerImage"] = "img"
    said = warning(small, "/api/v2/jobs", spec)
    runs_images = small.get("/api/v2/info").json()["containers"]
    unused = "This cluster runs tasks without containers: ubuntu:24.04 is not used."
    assert said == ("" if runs_images else unused)
