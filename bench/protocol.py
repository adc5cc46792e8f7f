"""Job protocol: parsing and validation, task environments of a large gang, import time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jsonschema
import yaml

from bench.table import Row, alternate, limit_row, ms, ratio_row, sized
from paiprotocol.jobs import (
    GangEnvironment,
    JobBuilder,
    JobSpec,
    TaskPlacement,
    draw_ports,
    dump_yaml,
    read_job,
    task_script,
)

RUNS = 9
GANG_TASKS, SMALL_GANG_TASKS = sized(2000, 50), sized(500, 20)


def rows() -> list[Row]:
    return [long_job(), typical_jobs(), gang(), gang_scaling(), import_time()]


def long_job() -> Row:
    """Parse, validate and render a job of 200 lines, against loading its YAML with the C parser alone."""
    text = dump_yaml(_long())
    lines = text.count("\n")
    assert 190 <= lines <= 210, lines

    def ours() -> None:
        job = read_job(text)
        for role in job.task_roles:
            task_script(role, job)

    def reference() -> None:
        yaml.load(text, yaml.CSafeLoader)

    measured = alternate(lambda: _each(ours, 40), lambda: _each(reference, 40), RUNS)
    what = f"parse, validate and render a job of {lines} lines / YAML load by the C parser"
    return ratio_row(what, *measured, at_most=3, show=ms)


def typical_jobs() -> Row:
    """Parse and validate a typical job, against jsonschema validation alone of the same job."""
    data = _typical()
    text = dump_yaml(data)
    validator = jsonschema.Draft7Validator(PUBLISHED)
    validator.validate(data)

    def ours() -> None:
        read_job(text)

    def reference() -> None:
        validator.validate(data)

    mine, theirs = alternate(lambda: _each(ours, 100), lambda: _each(reference, 100), RUNS)
    rates = [[1 / seconds for seconds in times] for times in (mine, theirs)]
    what = "typical jobs, parsed and validated / jsonschema validation alone"
    return ratio_row(what, *rates, at_least=1, show=lambda rate: f"{rate:.0f}/s")


def gang() -> Row:
    measured = [_environments(GANG_TASKS) for _ in range(sized(RUNS, 1))]
    return limit_row(f"all task environments of a gang of {GANG_TASKS}", measured, at_most=1, show=ms)


def gang_scaling() -> Row:
    large, small = alternate(
        lambda: _environments(GANG_TASKS) / GANG_TASKS,
        lambda: _environments(SMALL_GANG_TASKS) / SMALL_GANG_TASKS,
        RUNS,
    )
    what = f"one task's environment in a gang of {GANG_TASKS} / in a gang of {SMALL_GANG_TASKS}"
    return ratio_row(what, large, small, at_most=1.5, show=lambda seconds: f"{seconds * 1e6:.1f} us")


def import_time() -> Row:
    measured = alternate(lambda: _start("import paiprotocol.jobs"), lambda: _start("pass"), 15)
    return ratio_row("import paiprotocol.jobs / python -c pass", *measured, at_most=5, show=ms)


def _each(call: Callable[[], None], times: int) -> float:
    times = sized(times, 1)
    begun = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begun) / times


def _start(statement: str) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - begun


def _environments(tasks: int) -> float:
    job, places = _gang(tasks)
    begun = time.perf_counter()
    environment = GangEnvironment(job, user="ada", placements=places)
    for place in places:
        environment.for_task(place.role, place.index)
    return time.perf_counter() - begun


_GANGS: dict[int, tuple[JobSpec, list[TaskPlacement]]] = {}


def _gang(tasks: int) -> tuple[JobSpec, list[TaskPlacement]]:
    if tasks not in _GANGS:
        job = JobBuilder("gang").image("i").role("worker", "x", instances=tasks, ports={"tb": 1}).build()
        ports = job.task_roles[0].resources.ports
        places = [
            TaskPlacement("worker", n, f"10.0.{n // 250}.{n % 250}", draw_ports(f"{n}", ports), f"{n}")
            for n in range(tasks)
        ]
        _GANGS[tasks] = job, places
    return _GANGS[tasks]


def _typical() -> dict[str, Any]:
    """A job as the web portal submits it: one role, an image, ports, parameters, ssh."""
    return (
        JobBuilder("train_resnet50_imagenet")
        .image("openpai/standard:python_3.6-pytorch_1.2.0-gpu")
        .parameters(model="resnet50", batchsize=64, lr=0.1)
        .retries(1)
        .role(
            "worker",
            [
                "git clone https://github.com/pytorch/examples",
                "cd examples/imagenet",
                "pip install -r requirements.txt",
                "python main.py -a <% $parameters.model %> -b <% $parameters.batchsize %> --lr 0.1",
            ],
            cpu=16,
            memory_mb=65536,
            gpu=4,
            ports={"tensorboard": 1},
            min_failed=1,
            min_succeeded=-1,
            task_retries=0,
        )
        .virtual_cluster("default")
        .plugin("ssh", {"jobssh": True, "userssh": {"type": "custom", "value": ""}})
        .to_dict()
    )


def _long() -> dict[str, Any]:
    """Several roles, with data, scripts, deployments and many short commands."""
    builder = JobBuilder("distributed").describe(
        "A parameter server, workers and an evaluator.", contributor="ada"
    )
    builder.image("openpai/pai.example.tensorflow", name="tf").data(
        "cifar10", "https://example.org/cifar-10.tar.gz"
    )
    builder.script("benchmarks", "https://github.com/tensorflow/benchmarks", version="84820935")
    builder.output("model", "hdfs://10.0.0.1:9000/model").parameters(
        model="resnet20", batchsize=32, epochs=90
    )
    for role in ("ps_server", "worker", "chief", "evaluator"):
        commands = [f"export STEP_{n}=<% $parameters.epochs %>" for n in range(11)]
        commands += [
            f"python train.py --job_name={role} --data_dir=<% $data.name %> --model=<% $parameters.model %>"
            " --ps_hosts=$PAI_TASK_ROLE_ps_server_HOST_LIST --worker_hosts=$PAI_TASK_ROLE_worker_HOST_LIST",
            "cp -r out <% $output.uri %>",
        ]
        builder.role(
            role,
            commands,
            instances=2,
            cpu=2,
            memory_mb=16384,
            gpu=1,
            ports={"ssh": 1, "http": 1, "grpc": 2},
            data="cifar10",
            script="benchmarks",
            output="model",
            min_failed=1,
            min_succeeded=-1,
            shm_mb=64,
        )
    before = ["wget <% $data.uri[0] %>", "git clone <% $script.uri %> code", "cd code"]
    roles = ("ps_server", "worker", "chief", "evaluator")
    builder.deployment(
        "prod", before=dict.fromkeys(roles, before), after={role: ["echo done"] for role in roles}
    )
    builder.virtual_cluster("default").plugin("ssh", {"jobssh": True, "sshbarrier": True}).tags("a", "b")
    return builder.to_dict()


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


_TEXT, _INT = {"type": "string"}, {"type": "integer"}
_TEXTS = {"type": "array", "items": _TEXT}
_INFO = {"$ref": "#/definitions/PrerequisiteInfo"}
_PLUGIN = {"plugin": _TEXT, "require": _TEXTS}

# The structure of the schema published with the protocol (v2.0.0-alpha), without its prose.
PUBLISHED: dict[str, Any] = {
    "definitions": {
        "PrerequisiteInfo": _object(
            {
                "protocolVersion": {
                    "oneOf": [{"type": "number", "enum": [2]}, {"type": "string", "enum": ["2"]}],
                },
                "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]+$", "minLength": 1, "maxLength": 255},
                "version": _TEXT,
                "contributor": _TEXT,
                "description": _TEXT,
            }
        ),
        "DockerImage": {
            "allOf": [
                _INFO,
                _object(
                    {
                        "type": {"type": "string", "enum": ["dockerimage"]},
                        "auth": _object({"username": _TEXT, "password": _TEXT, "registryuri": _TEXT}),
                        "uri": _TEXT,
                    },
                    *("name", "type", "uri"),
                ),
            ]
        },
        "ScriptOrOutput": {
            "allOf": [
                _INFO,
                _object(
                    {"type": {"type": "string", "enum": ["script", "output"]}, **_PLUGIN, "uri": _TEXT},
                    *("name", "type"),
                ),
            ]
        },
        "Data": {
            "allOf": [
                _INFO,
                _object(
                    {
                        "type": {"type": "string", "enum": ["data"]},
                        **_PLUGIN,
                        "uri": {**_TEXTS, "minItems": 1},
                    },
                    "type",
                ),
            ]
        },
    },
    "allOf": [
        _INFO,
        _object(
            {
                "type": {"type": "string", "enum": ["job"]},
                "prerequisites": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "oneOf": [
                            {"$ref": f"#/definitions/{name}"}
                            for name in ("DockerImage", "ScriptOrOutput", "Data")
                        ]
                    },
                },
                "parameters": {"type": "object", "additionalProperties": True},
                "secrets": {"type": "object", "additionalProperties": True},
                "jobRetryCount": {"type": "integer", "minimum": 0},
                "taskRoles": {
                    "type": "object",
                    "additionalProperties": _object(
                        {
                            "instances": {"type": "integer", "minimum": 1},
                            "completion": _object(
                                {"minFailedInstances": _INT, "minSucceededInstances": _INT}
                            ),
                            "taskRetryCount": {"type": "integer", "minimum": 0},
                            "prerequisites": _TEXTS,
                            "dockerImage": _TEXT,
                            "data": _TEXT,
                            "output": _TEXT,
                            "script": _TEXT,
                            "extraContainerOptions": _object(
                                {"shmMB": _INT, "infiniband": {"type": "boolean"}}
                            ),
                            "resourcePerInstance": _object(
                                {
                                    "cpu": _INT,
                                    "memoryMB": _INT,
                                    "gpu": _INT,
                                    "ports": {"type": "object", "additionalProperties": _INT},
                                }
                            ),
                            "commands": _TEXTS,
                        },
                        *("dockerImage", "resourcePerInstance", "commands"),
                    ),
                },
                "deployments": {
                    "type": "array",
                    "items": _object(
                        {
                            "name": _TEXT,
                            "taskRoles": {
                                "type": "object",
                                "additionalProperties": _object(
                                    {
                                        "preCommands": {**_TEXTS, "minItems": 1},
                                        "postCommands": {**_TEXTS, "minItems": 1},
                                    }
                                ),
                            },
                        },
                        "name",
                    ),
                },
                "defaults": _object({"virtualCluster": _TEXT, "deployment": _TEXT}),
                "extras": _object(
                    {
                        "submitFrom": _TEXT,
                        "gangAllocation": {"type": "boolean"},
                        "hivedScheduler": _object(
                            {
                                "jobPriorityClass": {
                                    "type": "string",
                                    "enum": ["crit", "prod", "test", "oppo"],
                                },
                                "taskRoles": {
                                    "type": "object",
                                    "additionalProperties": _object(
                                        {"skuType": _TEXT, "affinityGroupName": _TEXT}
                                    ),
                                },
                            }
                        ),
                    }
                ),
            },
            *("protocolVersion", "name", "type", "prerequisites", "taskRoles"),
        ),
    ],
}
