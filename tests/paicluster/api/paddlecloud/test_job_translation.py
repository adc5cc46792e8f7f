"""PaddleCloud's jobs as version 2 jobs: roles, resources and variables."""

from __future__ import annotations

from typing import Any

import pytest

from paicluster.api.paddlecloud.job_request import read_job
from paicluster.api.paddlecloud.job_translation import namespace_of, translate

PACKAGE = "/pfs/dc1/home/user1/jobs/word-emb"
FIELDS = {"name": "word-emb", "job_package": PACKAGE, "datacenter": "dc1", "entry": "python train.py"}


def translated(user: str = "user1@gmail.com", **fields: Any) -> dict[str, Any]:
    job = read_job({**FIELDS, **fields})
    return translate(job, user, stored_package="/user/user1/jobs/word-emb", virtual_cluster="default")


def commands_of(job: dict[str, Any], role: str) -> list[str]:
    commands: list[str] = job["taskRoles"][role]["commands"]
    return commands


def variables_of(job: dict[str, Any], role: str) -> dict[str, str]:
    exports = [command.removeprefix("export ") for command in commands_of(job, role)[:-1]]
    return {name: value.strip("'\"") for name, _, value in (export.partition("=") for export in exports)}


def test_variables_of_every_role() -> None:
    job = translated(parallelism=3, pservers=2, cpu=4, passes=5, topology="conf.py", faulttolerant=True)
    for role in ("master", "pserver", "trainer"):
        assert variables_of(job, role) == {
            "PADDLE_JOB_NAME": "word-emb",
            "TRAINERS": "3",
            "PSERVERS": "2",
            "TOPOLOGY": "conf.py",
            "ENTRY": "python train.py",
            "TRAINER_PACKAGE": PACKAGE,
            "PADDLE_INIT_PORT": "7164",
            "PADDLE_INIT_TRAINER_COUNT": "4",
            "PADDLE_INIT_PORTS_NUM": "1",
            "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
            "PADDLE_INIT_NUM_GRADIENT_SERVERS": "3",
            "PADDLE_INIT_NUM_PASSES": "5",
            "PADDLE_INIT_USE_GPU": "0",
            "NAMESPACE": "user1-gmail-com",
            "PADDLE_CLOUD_CURRENT_DATACENTER": "dc1",
            "PADDLE_CLOUD_USERNAME": "user1@gmail.com",
            "PAI_PADDLE_PACKAGE": "/user/user1/jobs/word-emb",
        }


def test_gpus_count_the_trainer_and_bring_their_libraries() -> None:
    variables = variables_of(translated(gpu=2, cpu=8), "trainer")
    assert (variables["PADDLE_INIT_TRAINER_COUNT"], variables["PADDLE_INIT_USE_GPU"]) == ("2", "1")
    assert variables["LD_LIBRARY_PATH"].startswith("/usr/local/nvidia/lib64$")
    assert "LD_LIBRARY_PATH" not in variables_of(translated(), "trainer")


def test_roles_in_order_with_their_resources_and_ports() -> None:
    job = translated(
        parallelism=3, cpu=2, gpu=1, memory="10Gi", pservers=2, pscpu=4, psmemory="512Mi", faulttolerant=True
    )
    ports = {"ports": {"paddle": 2}}
    assert [
        (name, role["instances"], role["resourcePerInstance"]) for name, role in job["taskRoles"].items()
    ] == [
        ("master", 1, {"cpu": 1, "memoryMB": 300, "gpu": 0, **ports}),
        ("pserver", 2, {"cpu": 4, "memoryMB": 512, "gpu": 0, **ports}),
        ("trainer", 3, {"cpu": 2, "memoryMB": 10240, "gpu": 1, **ports}),
    ]


@pytest.mark.parametrize(
    ("fields", "commands"),
    [
        ({}, ["start_pserver", "start_trainer v2"]),
        ({"entry": "", "topology": "conf.py"}, ["start_pserver", "start_trainer v1"]),
        ({"entry": "paddle train", "topology": "conf.py"}, ["start_pserver", "start_trainer v1"]),
        ({"entry": "paddle train"}, ["start_pserver", "start_trainer v2"]),
        ({"pservers": 0}, ["start_trainer v2"]),
        ({"faulttolerant": True}, ["start_master", "start_new_pserver", "start_new_trainer"]),
    ],
)
def test_launchers_of_the_roles(fields: dict[str, Any], commands: list[str]) -> None:
    job = translated(**fields)
    assert [commands_of(job, role)[-1] for role in job["taskRoles"]] == [
        f"exec pai-runtime paddle {command}" for command in commands
    ]


def test_pservers_are_as_many_as_trainers_by_default() -> None:
    assert translated(parallelism=4)["taskRoles"]["pserver"]["instances"] == 4


@pytest.mark.parametrize(
    ("user", "namespace"), [("user1@gmail.com", "user1-gmail-com"), ("a_b.c-d", "a-b-c-d"), ("root", "root")]
)
def test_namespace_of_a_user(user: str, namespace: str) -> None:
    assert namespace_of(user) == namespace
