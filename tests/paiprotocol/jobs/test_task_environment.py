from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from paiprotocol.jobs import GangEnvironment, JobBuilder, TaskPlacement, build_task_environment, draw_ports
from support.work_counter import work_of


def job(instances=2, **role):
    return (
        JobBuilder("train")
        .image("i")
        .data("d", "hdfs://x/d")
        .output("o", "hdfs://x/o")
        .virtual_cluster("vc")
        .role("ps_server", "x", cpu=2, memory_mb=100)
        .role(
            "worker",
            "x",
            instances=instances,
            cpu=4,
            memory_mb=2048,
            gpu=2,
            shm_mb=64,
            ports={"tb": 2},
            min_succeeded=-1,
            data="d",
            output="o",
            **role,
        )
        .build()
    )


def make_placements(job, ip="10.0.0.{}"):
    return [
        TaskPlacement(
            role.name,
            index,
            ip.format(index),
            draw_ports(f"{role.name}-{index}", role.resources.ports),
            f"{role.name}-{index}",
            gpus=(0, 3),
        )
        for role in job.task_roles
        for index in range(role.instances)
    ]


def port(role, index, label, number=0):
    return str(draw_ports(f"{role}-{index}", {label: number + 1})[label][number])


@pytest.fixture(scope="module")
def env():
    gang_job = job()
    return build_task_environment(
        gang_job,
        user="ada",
        placements=make_placements(gang_job),
        role="worker",
        index=1,
        attempt=3,
        extra={"PAI_USER_TOKEN": "t"},
    )


EXPECTED = {
    "PAI_FRAMEWORK_NAME": "ada~train",
    "PAI_JOB_NAME": "ada~train",
    "FRAMEWORK_NAME": "ada~train",
    "PAI_USER_NAME": "ada",
    "PAI_USERNAME": "ada",
    "HADOOP_USER_NAME": "ada",
    "PAI_DEFAULT_FS_URI": "",
    "PAI_VIRTUAL_CLUSTER": "vc",
    "PAI_TASK_ROLE_COUNT": "2",
    "PAI_TASK_ROLES_NUM": "2",
    "PAI_JOB_TASK_ROLE_COUNT": "2",
    "PAI_TASK_ROLE_LIST": "ps_server,worker",
    "PAI_JOB_TASK_ROLE_LIST": "ps_server,worker",
    "PAI_TASKS_NUM": "3",
    "PAI_JOB_TASK_COUNT": "3",
    "PAI_TASK_ROLE_TASK_COUNT_worker": "2",
    "PAI_TASK_ROLE_TASK_COUNT_ps_server": "1",
    "PAI_TASK_ROLE_TASK_COUNT_psserver": "1",
    "PAI_RESOURCE_worker": "2,4,2048,64",
    "PAI_RESOURCE_ps_server": "0,2,100,0",
    "PAI_RESOURCE": "2,4,2048,64",
    "PAI_MIN_FAILED_TASK_COUNT_worker": "1",
    "PAI_MIN_SUCCEEDED_TASK_COUNT_worker": "-1",
    "PAI_MIN_SUCCEEDED_TASK_COUNT_ps_server": "1",
    "PAI_CURRENT_TASK_ROLE_NAME": "worker",
    "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "1",
    "PAI_TASK_INDEX": "1",
    "PAI_TASK_ROLE_INDEX": "1",
    "PAI_TASK_ROLE_NAME": "worker",
    "PAI_TASK_ROLE_NUM": "2",
    "PAI_CURRENT_TASK_ROLE_TASK_COUNT": "2",
    "PAI_TASK_CPU_NUM": "4",
    "PAI_CURRENT_TASK_ROLE_CPU_COUNT": "4",
    "PAI_TASK_MEM_MB": "2048",
    "PAI_CURRENT_TASK_ROLE_MEM_MB": "2048",
    "PAI_TASK_GPU_NUM": "2",
    "PAI_CURRENT_TASK_ROLE_GPU_COUNT": "2",
    "PAI_CURRENT_TASK_ROLE_SHM_MB": "64",
    "PAI_CURRENT_TASK_ROLE_MIN_FAILED_TASK_COUNT": "1",
    "PAI_CURRENT_TASK_ROLE_MIN_SUCCEEDED_TASK_COUNT": "-1",
    "PAI_DATA_DIR": "hdfs://x/d",
    "PAI_OUTPUT_DIR": "hdfs://x/o",
    "PAI_CODE_DIR": "",
    "PAI_CONTAINER_ID": "worker-1",
    "PAI_HOST_IP_worker_0": "10.0.0.0",
    "PAI_HOST_IP_worker_1": "10.0.0.1",
    "PAI_HOST_IP_ps_server_0": "10.0.0.0",
    "PAI_HOST_IP_psserver_0": "10.0.0.0",
    "PAI_PORT_LIST_worker_0_http": port("worker", 0, "http"),
    "PAI_PORT_LIST_worker_1_tb": f"{port('worker', 1, 'tb')},{port('worker', 1, 'tb', 1)}",
    "PAI_worker_0_http_PORT": port("worker", 0, "http"),
    "PAI_psserver_0_http_PORT": port("ps_server", 0, "http"),
    "PAI_CURRENT_CONTAINER_IP": "10.0.0.1",
    "PAI_CONTAINER_HOST_IP": "10.0.0.1",
    "PAI_CURRENT_CONTAINER_PORT": port("worker", 1, "http"),
    "PAI_CONTAINER_HOST_PORT": port("worker", 1, "http"),
    "PAI_CONTAINER_SSH_PORT": port("worker", 1, "ssh"),
    "PAI_CONTAINER_HOST_tb_PORT_LIST": f"{port('worker', 1, 'tb')},{port('worker', 1, 'tb', 1)}",
    "PAI_CONTAINER_HOST_PORT_LIST": (
        f"ssh:{port('worker', 1, 'ssh')};http:{port('worker', 1, 'http')};"
        f"tb:{port('worker', 1, 'tb')},{port('worker', 1, 'tb', 1)};"
    ),
    "PAI_TASK_ROLE_worker_HOST_LIST": (
        f"10.0.0.0:{port('worker', 0, 'http')},10.0.0.1:{port('worker', 1, 'http')}"
    ),
    "PAI_TASK_ROLE_psserver_HOST_LIST": f"10.0.0.0:{port('ps_server', 0, 'http')}",
    "PAI_TASK_ROLE_INSTANCES": "ps_server:0,worker:0,worker:1",
    "FC_FRAMEWORK_NAMESPACE": "default",
    "FC_TASKROLE_NAME": "worker",
    "FC_TASK_INDEX": "1",
    "FC_FRAMEWORK_ATTEMPT_ID": "3",
    "FC_TASK_ATTEMPT_ID": "0",
    "FC_POD_UID": "worker-1",
    "FC_TASK_ATTEMPT_INSTANCE_UID": "0_worker-1",
    "NVIDIA_VISIBLE_DEVICES": "0,3",
    "CUDA_VISIBLE_DEVICES": "0,3",
    "MASTER_ADDR": "10.0.0.0",
    "MASTER_PORT": port("ps_server", 0, "http"),
    "WORLD_SIZE": "3",
    "RANK": "2",
    "NODE_RANK": "2",
    "LOCAL_RANK": "0",
    "PAI_USER_TOKEN": "t",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_task_environment_has(env, name):
    assert env[name] == EXPECTED[name]


@pytest.mark.parametrize(
    "name",
    [
        "APP_ID",
        "FC_FRAMEWORK_NAME",
        "FC_FRAMEWORK_UID",
        "FC_CONFIGMAP_NAME",
        "FC_CONFIGMAP_UID",
        "FC_POD_NAME",
        "FC_TASKROLE_UID",
        "FC_TASK_UID",
        "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID",
    ],
)
def test_task_identity_variables(env, name):
    assert env[name]


def test_tf_config_names_the_cluster_and_the_task(env):
    config = json.loads(env["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["cluster"]["worker"] == env["PAI_TASK_ROLE_worker_HOST_LIST"].split(",")


def test_each_task_of_an_array_is_a_distributed_program_of_its_own():
    array = JobBuilder("sweep").image("i").role("main", "x", instances=3).build()
    array = replace(array, gang=False)
    gang = GangEnvironment(array, user="a", placements=make_placements(array))
    for index in range(3):
        env = gang.full("main", index)
        assert (env["PAI_TASK_INDEX"], env["RANK"], env["NODE_RANK"], env["WORLD_SIZE"]) == (
            str(index),
            "0",
            "0",
            "1",
        )
        own = f"10.0.0.{index}", port("main", index, "http")
        assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == own
        assert json.loads(env["TF_CONFIG"]) == {
            "cluster": {"main": [":".join(own)]},
            "task": {"type": "main", "index": 0},
        }


def test_roles_that_start_one_by_one_keep_their_ranks():
    roles = replace(job(), gang=False)
    env = GangEnvironment(roles, user="a", placements=make_placements(roles)).full("worker", 1)
    assert (env["RANK"], env["WORLD_SIZE"]) == ("2", "3")


def test_task_without_gpus_sees_no_device():
    gang_job = job()
    env = GangEnvironment(gang_job, user="a", placements=make_placements(gang_job)).for_task("ps_server", 0)
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["CUDA_VISIBLE_DEVICES"]) == ("none", "none")


def test_hostfile_has_one_slot_per_gpu():
    gang_job = job()
    gang = GangEnvironment(gang_job, user="a", placements=make_placements(gang_job))
    assert gang.hostfile == "10.0.0.0 slots=3\n10.0.0.1 slots=2\n"
    one = GangEnvironment(gang_job, user="a", placements=make_placements(gang_job, ip="127.0.0.1"))
    assert one.hostfile == "127.0.0.1 slots=5\n"


def test_unknown_hosts_are_omitted():
    gang_job = job()
    gang = GangEnvironment(gang_job, user="a", placements=make_placements(gang_job, ip=""))
    env = gang.full("worker", 0)
    assert "PAI_HOST_IP_worker_0" not in env
    assert "MASTER_ADDR" not in env
    assert gang.hostfile == ""


def test_alias_never_hides_a_real_role():
    twins = JobBuilder("x").image("i").role("worker_1", "a", cpu=1).role("worker1", "b", cpu=2).build()
    env = GangEnvironment(twins, user="a", placements=make_placements(twins)).common
    assert env["PAI_RESOURCE_worker1"] == "0,2,1024,0"
    assert env["PAI_RESOURCE_worker_1"] == "0,1,1024,0"


def test_task_without_placement_is_an_error():
    gang_job = job()
    with pytest.raises(KeyError):
        GangEnvironment(gang_job, user="a", placements=make_placements(gang_job)).for_task("worker", 9)


def test_environment_cost_is_linear_in_tasks():
    def work(instances):
        gang_job = job(instances)
        where = make_placements(gang_job, ip="10.0.0.1")

        def make():
            gang = GangEnvironment(gang_job, user="a", placements=where)
            for place in where:
                gang.for_task(place.role, place.index)

        return work_of(make)

    assert work(2000) < 4.1 * work(500)


def test_program_starts_in_a_gang_of_ten_thousand():
    gang_job = job(10_000)
    where = make_placements(gang_job, ip="10.100.100.100")
    gang = GangEnvironment(gang_job, user="a", placements=where)
    assert gang.omitted
    env = gang.full("worker", 9999)
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(len(os.environ))"], env=env, capture_output=True, check=True
    )
    assert int(done.stdout) >= len(env)
