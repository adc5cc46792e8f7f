"""Every field and rule of a version 2 job."""

from __future__ import annotations

import copy
import json

import pytest

from paiprotocol.errors import ProtocolError
from paiprotocol.jobs import mask_secrets, read_job, render_secrets, secret_texts, task_script

EVERYTHING = """\
protocolVersion: 2
name: every_field-1
type: job
version: 1.0
contributor: Ada
description: |
  Everything a job can say.
prerequisites:
  - protocolVersion: 2
    name: image
    type: dockerimage
    version: 1.0-r1.4
    contributor: Ada
    description: an image
    uri: registry.example.org/image:1
    auth:
      username: ada
      password: <% $secrets.registry %>
      registryuri: registry.example.org
  - name: cifar
    type: data
    uri: [https://example.org/a.tar, https://example.org/b.tar]
  - name: model
    type: output
    uri: hdfs://x/model
  - name: code
    type: script
    version: abc123
    contributor: grace
    uri: github.com/x/y
  - name: prepare
    type: script
    plugin: com.microsoft.pai.runtimeplugin.cmd
    failurePolicy: ignore
    require: [code]
    callbacks:
      - event: taskStarts
        commands: [echo begin]
parameters:
  lr: 0.001
  epochs: 10
  layers: [64, 32]
  net: {kind: resnet, depth: 50}
  debug: false
secrets:
  registry: hunter2
  github: {token: s3cret}
jobRetryCount: 3
taskRoles:
  worker:
    instances: 4
    completion:
      minFailedInstances: 2
      minSucceededInstances: -1
    taskRetryCount: 1
    prerequisites: [prepare]
    dockerImage: image
    data: cifar
    output: model
    script: code
    extraContainerOptions:
      shmMB: 64
      infiniband: true
    resourcePerInstance:
      cpu: 2
      memoryMB: 4096
      gpu: 1
      ports:
        ssh: 2
        tensorboard: 1
    commands:
      - train --lr <% $parameters.lr %> --epochs <%$parameters.epochs%> --layers <% $parameters.layers %>
      - fetch <% $data.uri[0] %> <% $data.uri.1 %> <% $data.name %> to <% $output.uri %>
      - net <% $parameters.net.kind %>-<% $parameters.net.depth %> <% $parameters.layers[0] %>
      - "  git clone https://<% $script.contributor %>:<% $secrets.github.token %>@<% $script.uri %>  "
  ps_server:
    dockerImage: image
    resourcePerInstance: {cpu: 1, memoryMB: 100, gpu: 0}
    commands: [sleep infinity]
deployments:
  - name: prod
    taskRoles:
      worker:
        preCommands: [echo before <% $data.name %>]
        postCommands: [echo after]
  - name: test
defaults:
  virtualCluster: vc1
  deployment: prod
  somethingElse: kept
extras:
  submitFrom: a test
  gangAllocation: false
  tags: [one]
  storages:
    - name: nfs
      mountPath: /data
  com.microsoft.pai.runtimeplugin:
    - plugin: ssh
      parameters: {jobssh: true}
      failurePolicy: fail
      taskroles: [worker]
  hivedScheduler:
    jobPriorityClass: prod
    taskRoles:
      worker: {skuType: K80, skuNum: 1, affinityGroupName: null}
  jobStatusChangeNotification: {running: true, failed: false}
  tensorBoard: {randomStr: abc, logDirectories: {default: /logs}}
  unknown: {kept: [1, 2]}
  openpaisdk:
    environment: {PATH: /usr/bin}
    sources: {sha256: 0000000000000000000000000000000000000000000000000000000000000abc, size: 12}
"""

SMALL = {
    "protocolVersion": 2,
    "name": "small",
    "type": "job",
    "prerequisites": [{"name": "image", "type": "dockerimage", "uri": "ubuntu"}],
    "taskRoles": {
        "main": {
            "dockerImage": "image",
            "resourcePerInstance": {"cpu": 1, "memoryMB": 100, "gpu": 0},
            "commands": ["true"],
        }
    },
}


def small(**changes):
    data = copy.deepcopy(SMALL)
    for path, value in changes.items():
        *way, last = path.split("__")
        target = data
        for part in way:
            target = target[int(part) if part.isdecimal() else part]
        if value is ...:
            del target[last]
        else:
            target[last] = value
    return data


def problems(source, **options):
    with pytest.raises(ProtocolError) as caught:
        read_job(source, **options)
    return caught.value.problems


def test_every_field_is_read():
    job = read_job(EVERYTHING, strict=True)
    assert (job.name, job.virtual_cluster, job.job_retry_count, job.gang) == (
        "every_field-1",
        "vc1",
        3,
        False,
    )
    assert (job.priority, job.total_tasks, job.total_gpus) == ("prod", 5, 4)
    worker, ps = job.task_roles
    assert (worker.instances, worker.min_failed, worker.min_succeeded, worker.task_retry_count) == (
        4,
        2,
        -1,
        1,
    )
    assert (worker.docker_image, worker.image_uri) == ("image", "registry.example.org/image:1")
    assert (worker.data, worker.output, worker.script, worker.prerequisites) == (
        "cifar",
        "model",
        "code",
        ("prepare",),
    )
    assert (worker.shm_mb, worker.infiniband) == (64, True)
    assert dict(worker.resources.ports) == {"ssh": 2, "http": 1, "tensorboard": 1}
    assert (ps.instances, ps.min_failed, ps.min_succeeded, ps.shm_mb) == (1, 1, 1, None)
    assert dict(ps.resources.ports) == {"ssh": 1, "http": 1}
    assert job.prerequisite("dockerimage", "image").auth["username"] == "ada"
    prepare = job.prerequisite("script", "prepare")
    assert prepare.fields["callbacks"][0]["event"] == "taskStarts"
    assert prepare.require == ("code",)
    assert job.extras["unknown"] == {"kept": [1, 2]}
    assert job.defaults["somethingElse"] == "kept"
    assert job.additions.environment["PATH"] == "/usr/bin"
    assert job.additions.sources.size == 12
    assert job.warnings == ()
    assert job.task_retry_policy("worker").max_retries == 1


def test_commands_are_rendered_except_for_secrets():
    job = read_job(EVERYTHING)
    script = task_script("worker", job)
    lines = script.splitlines()
    # The plugins of the role come before; they have their own tests.
    assert lines[lines.index("echo before cifar") :] == [
        "echo before cifar",
        "train --lr 0.001 --epochs 10 --layers 64,32",
        "fetch https://example.org/a.tar https://example.org/b.tar cifar to hdfs://x/model",
        "net resnet-50 64",
        "git clone https://grace:<% $secrets.github.token %>@github.com/x/y",
        "echo after",
    ]
    assert "grace:s3cret@" in render_secrets(script, job.secrets)


def test_json_and_yaml_and_data_are_the_same_job():
    job = read_job(EVERYTHING)
    assert read_job(json.dumps(job.raw)) == job
    assert read_job(json.dumps(job.raw, indent=2).encode()) == job
    assert read_job(job.raw) == job
    assert read_job(EVERYTHING.replace("\n", "\r\n").encode()) == job
    assert read_job("\ufeff" + EVERYTHING) == job
    assert read_job(EVERYTHING.encode("utf-16")) == job


def test_job_does_not_share_the_callers_data():
    data = small()
    job = read_job(data)
    data["taskRoles"]["main"]["commands"].append("rm -rf /")
    assert job.task_roles[0].commands == ("true",)
    assert job.raw["taskRoles"]["main"]["commands"] == ["true"]


@pytest.mark.parametrize(
    ("value", "rendered"),
    [
        (1.0, "1"),
        (1e-05, "0.00001"),
        (1.5e-07, "1.5e-7"),
        (1e21, "1e+21"),
        (-2.5, "-2.5"),
        (True, "true"),
        ("<% $parameters.x %>", "<% $parameters.x %>"),
        ([1, None, "a"], "1,,a"),
        ({"a": [1]}, '{"a":[1]}'),
        ("$(rm -rf /)", "$(rm -rf /)"),
        (None, "<% $parameters.x %>"),
    ],
)
def test_values_are_inserted_as_in_javascript(value, rendered):
    data = small(taskRoles__main__commands=["echo <%  $parameters.x %>"], parameters={"x": value})
    assert task_script("main", read_job(data)) == f"echo {rendered}"


@pytest.mark.parametrize(
    "command",
    [
        "echo <% $parameters.missing %>",
        "echo <% $nothing.x %>",
        "echo <% $data.uri %>",
        "echo <% $secrets.none %>",
        "echo <% $parameters.a.b %>",
        "echo <% $parameters.list[7] %>",
        "echo <% $parameters.__class__ %>",
    ],
)
def test_undefined_reference_stays_and_is_reported(command):
    data = small(taskRoles__main__commands=[command], parameters={"a": 1, "list": [1]})
    job = read_job(data)
    assert task_script("main", job) == command
    assert [warning.level for warning in job.warnings] == ["soft"]
    assert job.warnings[0].key == "taskRoles.main.commands[0]"
    assert problems(data, strict=True) == job.warnings


def test_text_that_is_not_a_reference_is_unchanged():
    text = "<%= 1 + 1 %> <% import os %> <% %> 100<% <%$parameters.a"
    job = read_job(small(taskRoles__main__commands=[text]), strict=True)
    assert task_script("main", job) == text


@pytest.mark.parametrize(
    ("changes", "key", "says"),
    [
        ({"protocolVersion": 1}, "protocolVersion", "expected one of 2"),
        ({"protocolVersion": ...}, "", '"protocolVersion" is missing'),
        ({"name": "a b"}, "name", "letters, digits"),
        ({"name": "a" * 256}, "name", "at most 255"),
        ({"name": 7}, "name", "put it in quotes"),
        ({"name": ""}, "name", "letters"),
        ({"type": "jb"}, "type", 'did you mean "job"'),
        ({"typ": "job", "type": ...}, "typ", 'did you mean "type"'),
        ({"prerequisites": []}, "prerequisites", "not empty"),
        ({"prerequisites__0__type": ...}, "prerequisites[0]", '"type" is missing'),
        ({"prerequisites__0__uri": ["a"]}, "prerequisites[0].uri", "found a list"),
        ({"prerequisites__0__uri": ...}, "prerequisites[0]", '"uri" is missing'),
        ({"prerequisites__0__plugin": "x"}, "prerequisites[0].plugin", "unknown key"),
        ({"prerequisites": [{"name": "d", "type": "data", "uri": "x"}]}, "prerequisites[0].uri", "as a list"),
        ({"parameters": None}, "parameters", "found nothing"),
        ({"parameters": []}, "parameters", "found an empty list"),
        ({"secrets": "hunter2"}, "secrets", "expected a mapping, found text"),
        ({"jobRetryCount": -1}, "jobRetryCount", "at least 0"),
        ({"jobRetryCount": "1"}, "jobRetryCount", "write 1 without quotes"),
        ({"jobRetryCount": 1.5}, "jobRetryCount", "whole number"),
        ({"jobRetryCount": True}, "jobRetryCount", "found true"),
        ({"taskRoles": {}}, "taskRoles", "not empty"),
        ({"taskRoles": []}, "taskRoles", "mapping"),
        ({"taskRoles__1st": {}}, "taskRoles.1st", "does not begin with a digit"),
        ({"taskRoles__main__instances": 0}, "taskRoles.main.instances", "at least 1"),
        ({"taskRoles__main__instances": 2**40}, "taskRoles.main.instances", "the largest is"),
        (
            {"taskRoles__main__completion": {"minFailedInstances": -2}},
            "taskRoles.main.completion.minFailedInstances",
            "-1",
        ),
        (
            {"taskRoles__main__completion": {"minFailed": 1}},
            "taskRoles.main.completion.minFailed",
            "minFailedInstances",
        ),
        ({"taskRoles__main__dockerImage": ...}, "taskRoles.main", '"dockerImage" is missing'),
        ({"taskRoles__main__dockerImage": "imge"}, "taskRoles.main.dockerImage", 'did you mean "image"'),
        ({"taskRoles__main__data": "image"}, "taskRoles.main.data", "no prerequisite of type data"),
        ({"taskRoles__main__prerequisites": ["x"]}, "taskRoles.main.prerequisites[0]", 'there is "image"'),
        ({"taskRoles__main__commands": []}, "taskRoles.main.commands", "not empty"),
        ({"taskRoles__main__commands": ["a", 1]}, "taskRoles.main.commands[1]", "put it in quotes"),
        (
            {"taskRoles__main__resourcePerInstance__cpus": 1},
            "taskRoles.main.resourcePerInstance.cpus",
            '"ports"',
        ),
        (
            {"taskRoles__main__resourcePerInstance__cpu": -1},
            "taskRoles.main.resourcePerInstance.cpu",
            "at least 0",
        ),
        (
            {"taskRoles__main__resourcePerInstance__ports": {}},
            "taskRoles.main.resourcePerInstance.ports",
            "not empty",
        ),
        (
            {"taskRoles__main__resourcePerInstance__ports": {"a-b": 1}},
            "taskRoles.main.resourcePerInstance.ports.a-b",
            "letters, digits and _",
        ),
        ({"taskRoles__main__extraContainerOptions": {"infiniband": "yes"}}, "", "write true"),
        (
            {"taskRoles__main__commands": [{"echo a": "b"}]},
            "taskRoles.main.commands[0]",
            "quote the whole text",
        ),
        ({"deployments": [{"name": "a"}, {"name": "a"}]}, "deployments[1].name", "already a deployment"),
        (
            {"deployments": [{"name": "a", "taskRoles": {"mein": {}}}]},
            "deployments[0].taskRoles.mein",
            '"main"',
        ),
        ({"deployments": [{"name": "a", "taskRoles": {"main": {"preCommands": []}}}]}, "", "not empty"),
        ({"deployments": [{"name": "a", "taskRoles": {"main": {"pre": ["x"]}}}]}, "", "preCommands"),
        ({"defaults": {"deployment": "prod"}}, "defaults.deployment", "the job has no deployment"),
        ({"defaults": {"virtualCluster": 1}}, "defaults.virtualCluster", "expected text"),
        ({"extras": {"gangAllocation": "no"}}, "extras.gangAllocation", "write false"),
        (
            {"extras": {"hivedScheduler": {"jobPriorityClass": "low"}}},
            "",
            'one of "crit", "prod", "test", "oppo"',
        ),
        (
            {"extras": {"hivedScheduler": {"taskRoles": {"main": {"skuType": "a", "pinnedCellId": "b"}}}}},
            "extras.hivedScheduler.taskRoles.main",
            "exclude each other",
        ),
        ({"extras": {"hivedScheduler": {"taskRoles": {"x": {}}}}}, "", 'there is no task role "x"'),
        ({"extras": {"openpaisdk": {"other": 1}}}, "extras.openpaisdk.other", "unknown key"),
        ({"extras": {"openpaisdk": {"sources": {"sha256": "x", "size": 1}}}}, "", "sha256 in hexadecimal"),
        ({"extras": {"storages": [{}]}}, "extras.storages[0]", '"name" is missing'),
    ],
)
def test_each_rule_reports_problem_and_position(changes, key, says):
    found = [problem for problem in problems(small(**changes)) if says in str(problem)]
    assert len(found) == 1
    if key:
        assert found[0].key == key


def test_names_are_unique_per_prerequisite_type():
    image = {"name": "image", "type": "dockerimage", "uri": "x"}
    (problem,) = problems(small(prerequisites=[image, image]))
    assert problem.key == "prerequisites[1].name"
    read_job(small(prerequisites=[image, {"name": "image", "type": "script"}]))


def test_number_and_text_forms_of_openpai_are_accepted():
    read_job(small(protocolVersion="2", version=1.0))
    job = read_job(small(taskRoles__main__instances=2.0))
    assert job.task_roles[0].instances == 2
    null = {"minFailedInstances": None, "minSucceededInstances": 0}
    role = read_job(small(taskRoles__main__completion=null, taskRoles__main__instances=3)).task_roles[0]
    assert (role.min_failed, role.min_succeeded) == (1, 3)


def test_note_does_not_reject_a_job_in_strict_mode():
    data = small(taskRoles__main__completion={"minFailedInstances": 5}, taskRoles__main__taskRetryCount=2)
    job = read_job(data, strict=True)
    assert [warning.level for warning in job.warnings] == ["note", "note"]
    assert "never reached" in str(job.warnings[0])
    assert "gangAllocation" in str(job.warnings[1])


def test_version_1_job_is_recognised():
    (problem,) = problems({"jobName": "x", "image": "y", "taskRoles": []})
    assert "version 1" in problem.message


def test_stored_job_may_have_masked_secrets_and_unlimited_retries():
    data = small(secrets="******", jobRetryCount=-2)
    assert len(problems(data)) == 2
    job = read_job(data, stored=True)
    assert len(job.secrets) == 0
    assert job.retry_policy().fancy is False


# --- secrets ---


@pytest.mark.parametrize(
    "text", [EVERYTHING, EVERYTHING.replace("\n", "\r\n"), json.dumps(read_job(EVERYTHING).raw)]
)
def test_masked_text_is_the_same_job_without_secrets(text):
    masked = mask_secrets(text)
    assert "hunter2" not in masked
    assert "s3cret" not in masked
    before, after = read_job(text), read_job(masked, stored=True)
    assert after.task_roles == before.task_roles
    assert after.raw == {**before.raw, "secrets": "******"}


@pytest.mark.parametrize(
    "secrets",
    [
        "secrets: {a: hunter2}",
        "secrets:\n  a: |\n    hunter2\n    hunter2\n",
        "secrets:\n  a: &x hunter2\nparameters:\n  b: *x",
        "parameters: &x {b: hunter2}\nsecrets: *x",
        "secrets: &x\n  a: [hunter2, {b: hunter2}]\nextras:\n  copied: *x",
        "extras:\n  pin: &x 'hunter2'\nsecrets: {a: *x}",
        '"secrets": {"a": "hunter2"}',
        "? secrets\n: a: hunter2",
        "secrets: hunter2",
        "secrets:\n  a: hunter2 # hunter2",
    ],
)
def test_secrets_are_masked_in_every_notation(secrets):
    masked = mask_secrets(f"name: x # kept\n{secrets}\ntype: job\n")
    text = read_text(masked)
    assert text["secrets"] == "******"
    assert text["type"] == "job"
    assert "hunter2" not in masked


@pytest.mark.parametrize(
    "text",
    [
        "# hunter2\nname: x\nsecrets: {a: hunter2}\n",
        "name: x # once: hunter2!\nsecrets:\n  a: |\n    hunter2\n    another line\n",
        "secrets: {a: {b: [hunter2]}} # not hunter3, hunter2\nname: x\n",
        "secrets:\n  a: hunter2\n\n# was: hunter2",
    ],
)
def test_secret_that_a_comment_repeats_is_masked(text):
    masked = mask_secrets(text)
    assert "hunter2" not in masked
    assert read_text(masked)["secrets"] == "******"


def read_text(text):
    from paiprotocol.jobs.document import read

    return read(text).data


def test_number_behind_an_alias_is_masked():
    masked = mask_secrets("name: x\nextras: {pin: &x 271828, on: true}\nsecrets: {a: *x, b: true}\n")
    assert json.loads(masked)["extras"] == {"pin": "******", "on": True}


def test_texts_of_secrets_are_values_and_their_lines():
    key = "-----BEGIN KEY-----\n  abcdefgh  \nxy\n"
    values = {
        "key": key,
        "pin": 271828,
        "list": [3.25, {"deep": "inner"}],
        "on": True,
        "short": "abc",
        "none": None,
    }
    found = secret_texts(values)
    assert set(found) == {key, "-----BEGIN KEY-----", "abcdefgh", "271828", "3.25", "inner"}


def test_masked_yaml_keeps_its_comments():
    assert mask_secrets("a: 1 # why\nsecrets:\n  x: y\nb: 2\n") == 'a: 1 # why\nsecrets: "******"\nb: 2\n'
    assert mask_secrets("a: 1 # no secrets\n") == "a: 1 # no secrets\n"
    assert json.loads(mask_secrets({"a": 1, "secrets": {"x": "y"}})) == {"a": 1, "secrets": "******"}


def test_repr_and_errors_show_no_secret():
    job = read_job(EVERYTHING)
    assert "hunter2" not in repr(job)
    assert "s3cret" not in repr(job)
    assert "registry" in repr(job.secrets)
    wrong = EVERYTHING.replace("registry: hunter2", "registry: hunter2\n  registry: hunter2").replace(
        "name: e", "nme: e"
    )
    for text in (
        wrong,
        EVERYTHING.replace("secrets:", "secret:"),
        EVERYTHING.replace("  registry: h", "\tregistry: h"),
    ):
        with pytest.raises(ProtocolError) as caught:
            read_job(text)
        assert "hunter2" not in str(caught.value) + repr(caught.value.problems)
    auth = small(prerequisites__0__auth={"password": ["hunter2"]})
    assert "hunter2" not in repr(problems(auth))
