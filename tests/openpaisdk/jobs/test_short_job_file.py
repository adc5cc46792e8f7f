"""Short job files: which files are one, what they mean, and what is wrong with others."""

import json

import pytest

from openpaisdk.config.clusters import ClusterEntry
from openpaisdk.config.defaults import Defaults
from openpaisdk.jobs.command_job import command_job
from openpaisdk.jobs.short_job_file import is_short_job, is_short_text, read_short_job, short_job_schema
from paiprotocol.errors import PaiError, ProtocolError, UsageError
from paiprotocol.jobs import read_job

SIX_LINES = """\
name: train
command: python train.py
image: pytorch/pytorch
resources: {gpu: 1, cpu: 4, mem: 16g}
sources: [.]
outputs: model
"""
EVERYTHING = """\
name: all_$
command:
- make data
- python train.py --lr {lr}
image: img
resources: {cpu: 2, gpu: 1, memoryMB: 512, ports: {http: 1}}
array: {lr: [0.1, 0.01]}
sources: []
outputs: [model, logs]
env: {A: 1, B: text}
secrets: {TOKEN: hush}
pip: [numpy, torch]
pip-path: pip3
python: /opt/python
capture-logging: true
workspace: /me
vc: prod
priority: prod
timeout: 2h
retry: 3
after: [first, "second:end"]
tags: baseline
debug-hold: 10m
"""


def protocol_job(text: str, **more: object) -> dict:
    options = read_short_job(text, **more).options
    return command_job(options, ClusterEntry({"cluster_alias": "team"}), Defaults([]))


def test_six_lines_are_a_version_2_job() -> None:
    short = read_short_job(SIX_LINES, folder="/project")
    assert (short.options.sources, short.folder, short.has_name) == (["."], "/project", True)
    job = protocol_job(SIX_LINES)
    read_job(job)
    assert job["protocolVersion"] == 2 and job["name"] == "train"
    role = job["taskRoles"]["main"]
    assert role["commands"] == ["python train.py"]
    assert role["resourcePerInstance"] == {"cpu": 4, "gpu": 1, "memoryMB": 16384}
    assert job["prerequisites"][0]["uri"] == "pytorch/pytorch"
    assert job["extras"]["openpaisdk"]["outputs"] == ["model"]


def test_every_key_has_the_meaning_of_its_option() -> None:
    short = read_short_job(EVERYTHING)
    assert short.options.sources == []
    job = protocol_job(EVERYTHING)
    read_job(job)
    role = job["taskRoles"]["main"]
    assert role["commands"] == ["make data", 'python train.py --lr "$lr"'] and role["instances"] == 2
    assert role["resourcePerInstance"] == {"cpu": 2, "gpu": 1, "memoryMB": 512, "ports": {"http": 1}}
    assert job["secrets"] == {"TOKEN": "hush"} and job["jobRetryCount"] == 3
    assert job["defaults"]["virtualCluster"] == "prod"
    extras = job["extras"]
    assert extras["tags"] == ["baseline"] and extras["hivedScheduler"] == {"jobPriorityClass": "prod"}
    ours = extras["openpaisdk"]
    assert ours["after"] == [{"job": "first"}, {"job": "second", "on": "end"}]
    assert ours["timeLimit"] == 7200 and ours["outputs"] == ["model", "logs"]
    before = "\n".join(job["deployments"][0]["taskRoles"]["main"]["preCommands"])
    for part in (
        "export A=1",
        "export B=text",
        "pip3 install numpy torch",
        "held for 600 seconds",
        "PAI_CAPTURE_LOGGING",
    ):
        assert part in before


def test_json_and_names_of_long_options_are_accepted() -> None:
    data = {"command": "true", "virtual-cluster": "v", "pip-installs": "numpy", "src": "a", "job-name": "n"}
    short = read_short_job(json.dumps(data))
    assert (short.options.sources, short.options.name, short.options.virtual_cluster) == (["a"], "n", "v")
    assert short.options.pip_installs == ["numpy"]


def test_without_sources_the_folder_travels_and_the_name_is_generated() -> None:
    short = read_short_job("command: python train.py\n", folder="/project")
    assert short.options.sources is None and not short.has_name and short.options.name.startswith("train_")


@pytest.mark.parametrize(
    ("data", "is_short"),
    [
        ({"command": "x"}, True),
        ({"comand": "x"}, True),
        ({"commands": ["x"]}, True),
        ({"resources": {}, "name": "x"}, True),
        ({"name": "x"}, False),
        ({}, False),
        ([], False),
        (None, False),
        ({"protocolVersion": 2, "command": "x"}, False),
        ({"jobName": "x", "image": "y"}, False),
        ({"jobName": "x", "image": "y", "taskRoles": []}, False),
        ({"name": "x", "taskRoles": {}}, False),
    ],
)
def test_no_other_version_is_taken_for_a_short_job(data: object, is_short: bool) -> None:
    assert is_short_job(data) is is_short


@pytest.mark.parametrize(
    ("text", "is_short"),
    [
        ("command: |\n  cat <<END\n  protocolVersion: 2\n  END\n", True),
        ("name: x\nprotocolVersion : 2\ncommand: y\n", False),
        ('{"protocolVersion": 2, "command": "x"}', False),
        ('{"command": "x"}', True),
        ('{"jobName": "x", /* old */ "image": "y", "taskRoles": []}', False),
        ("command: [", False),
        ("", False),
    ],
)
def test_text_of_a_short_job_is_recognized(text: str, is_short: bool) -> None:
    assert is_short_text(text.encode(), "job.yaml") is is_short


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("command: x\ncomand: y\n", "job.yaml:2:1: comand: unknown key"),
        ("image: x\ncomand: y\n", 'job.yaml:2:1: comand: unknown key; did you mean "command"?'),
        ("command: x\ngpu: 1\n", 'job.yaml:2:1: gpu: unknown key; put it under "resources"'),
        ("command: x\nmem: 4g\n", 'put it under "resources"'),
        ("command: x\nresources: {gpus: 1}\n", 'resources.gpus: unknown key; did you mean "gpu"?'),
        ("command: x\nresources:\n  cpu: two\n", "job.yaml:3:8: resources.cpu: expected a whole number"),
        ("command: x\nresources: {mem: 4}\n", "has no unit"),
        ("command: x\nresources: {mem: much}\n", "'much' is not an amount of memory"),
        ("command: x\nresources: {ports: {http: 8080}}\n", "how many ports"),
        ("command: x\ntimeout: soon\n", "job.yaml:2:10: timeout: 'soon' is not a duration"),
        ("command: x\narray: {l-r: [1]}\n", "cannot be the name of an environment variable"),
        ("command: x\nenv: {1x: a}\n", "expected the name of a variable"),
        ("command: x\nenv: [A=1, 2x=1]\n", "env[1]"),
        ("command: x\nenv: 5\n", "expected variables by name"),
        ("command: x\npriority: high\n", "priority"),
        ("command: x\nretry: -1\n", "retry"),
        ("command: x\nname: a b\n", "name: expected letters"),
        ("command: x\nafter: [1]\n", "after"),
        ("command: 5\n", "command: expected text"),
        ("command: echo a: b\n", "job.yaml"),
        ("command: [1]\n", "command[0]"),
        ("command:\n", "command"),
        ("image: x\n", 'the key "command" is missing'),
        ("command: x\nvc: a\nvirtual-cluster: b\n", 'job.yaml:3:1: virtual-cluster: the same as "vc"'),
        ("command: x\ncommand: y\n", "job.yaml:2"),
    ],
)
def test_problem_is_named_with_its_line(text: str, says: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_short_job(text, file="job.yaml")
    assert says in caught.value.message, caught.value.message


def test_all_problems_come_at_once_and_secrets_are_not_shown() -> None:
    with pytest.raises(ProtocolError) as caught:
        read_short_job("command: x\ntimeout: soon\nretry: x\nsecrets: {A: [hush]}\n", file="job.yaml")
    assert "3 problems" in caught.value.message and "hush" not in caught.value.message


def test_contradicting_keys_are_rejected() -> None:
    with pytest.raises(UsageError, match="contradict"):
        read_short_job("command: x\ninstances: 2\narray: 3\n")
    with pytest.raises(UsageError, match="There is no command"):
        read_short_job("command: ' '\n")


def test_variable_without_value_has_the_one_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "from here")
    for text in ("command: x\nsecrets: [TOKEN]\n", "command: x\nsecrets: {TOKEN: }\n"):
        assert read_short_job(text).options.secrets == {"TOKEN": "from here"}
    monkeypatch.delenv("TOKEN")
    with pytest.raises(PaiError, match="there is no such variable here"):
        read_short_job("command: x\nsecrets: [TOKEN]\n")


def test_updates_change_keys_of_the_short_file() -> None:
    changes = ["name=again", "resources:gpu=2", "command=true", "timeout=1h", "env:A=1"]
    short = read_short_job(SIX_LINES, updates=changes, virtual_cluster="prod")
    options = short.options
    assert (options.name, options.gpu, options.commands) == ("again", 2, ["true"])
    assert (options.time_limit_s, options.virtual_cluster, options.env) == (3600, "prod", {"A": "1"})
    with pytest.raises(ProtocolError, match="taskRoles: unknown key"):
        read_short_job(SIX_LINES, updates=["taskRoles:main:instances=2"])


def test_schema_for_editors_has_every_key() -> None:
    schema = short_job_schema()
    assert (
        schema["required"] == ["command"] and {"command", "vc", "pip-installs"} <= schema["properties"].keys()
    )
    assert all(part.get("description") for part in schema["properties"].values())
    json.dumps(schema)
