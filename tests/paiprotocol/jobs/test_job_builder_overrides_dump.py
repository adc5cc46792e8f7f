from __future__ import annotations

import json

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from paiprotocol.errors import ProtocolError, UsageError
from paiprotocol.jobs import JobBuilder, apply_overrides, dump_yaml, job_schema, read_job, read_job_v1
from paiprotocol.jobs.document import read
from paiprotocol.jobs.yaml_dump import dump_plain

V1 = {"jobName": "small", "image": "ubuntu", "taskRoles": [{"name": "main", "command": "true"}]}


def full():
    return (
        JobBuilder("train")
        .describe("A job", contributor="ada", version="1")
        .retries(2)
        .image("pytorch/pytorch", username="u", password="<% $secrets.pw %>", registry="r")
        .image("mpi", name="mpi")
        .data("cifar", "https://example.org/a", version="2")
        .script("code", "git://x")
        .output("model", plugin="p", require=["code"])
        .parameters({"lr": 0.1}, epochs=3)
        .parameter("x", [1])
        .secret("pw", "hunter2")
        .role(
            "worker",
            ["train --lr <% $parameters.lr %>", "echo <% $data.uri[0] %>"],
            instances=2,
            cpu=4,
            memory_mb=2048,
            gpu=1,
            ports={"tb": 1},
            image="mpi",
            data="cifar",
            output="model",
            script="code",
            prerequisites=["code"],
            min_failed=1,
            min_succeeded=-1,
            task_retries=1,
            shm_mb=64,
            infiniband=True,
        )
        .role("ps", "sleep 1")
        .deployment("prod", before={"worker": ["echo a"]}, after={"ps": ["echo b"]})
        .deployment("other", active=False)
        .virtual_cluster("vc")
        .gang(False)
        .priority("prod")
        .sku("worker", sku_type="K80", sku_num=1)
        .storage("nfs", "/data")
        .storage("blob")
        .plugin("ssh", {"jobssh": True}, failure_policy="ignore", roles=["worker"])
        .tags("a", "b", "a")
        .notify(failed=True)
        .extra("mine", 1)
        .environment({"PATH": "/bin"})
        .sources("0" * 64, 5)
    )


def test_builder_sets_every_field():
    job = full().build()
    assert (job.name, job.virtual_cluster, job.priority, job.gang, job.job_retry_count) == (
        "train",
        "vc",
        "prod",
        False,
        2,
    )
    worker, ps = job.task_roles
    assert (worker.image_uri, ps.image_uri) == ("mpi", "pytorch/pytorch")
    assert worker.pre_commands == ("echo a",)
    assert ps.post_commands == ("echo b",)
    assert job.extras["tags"] == ["a", "b"]
    assert job.warnings == ()
    assert "hunter2" not in repr(full())


def test_built_job_survives_dump_and_read():
    text = full().to_yaml()
    assert read_job(text) == full().build()
    assert full().to_yaml() == text
    assert JobBuilder.of(read_job(text)).to_yaml() == text
    assert yaml.safe_load(text) == full().to_dict()


def test_builder_takes_text_as_a_list_of_one():
    builder = JobBuilder("one").image("i").script("code", "x").role("main", "true", prerequisites="code")
    job = builder.deployment("d", before={"main": "first"}).plugin("ssh", roles="main").to_dict()
    role = job["taskRoles"]["main"]
    assert role["prerequisites"] == ["code"] and role["commands"] == ["true"]
    assert job["deployments"][0]["taskRoles"] == {"main": {"preCommands": ["first"]}}
    assert job["extras"]["com.microsoft.pai.runtimeplugin"][0]["taskroles"] == ["main"]


def test_builder_copy_is_independent():
    first = JobBuilder("a").image("i").role("r", "true")
    second = first.copy().name("b").parameter("x", 1)
    assert first.build().name == "a"
    assert second.build().parameters == {"x": 1}
    assert "parameters" not in first.to_dict()


def test_builder_reports_all_problems():
    with pytest.raises(ProtocolError) as caught:
        JobBuilder("a b").role("1", [], gpu=-1).build()
    assert len(caught.value.problems) == 5
    with pytest.raises(ProtocolError, match="no task role"):
        JobBuilder("x").build()


def test_yaml_is_readable():
    builder = JobBuilder("hello").image("ubuntu").role("main", ["echo hi", "cat <<END\nx\nEND\n"], gpu=1)
    assert builder.to_yaml() == (
        "protocolVersion: 2\n"
        "name: hello\n"
        "type: job\n"
        "prerequisites:\n"
        "  - name: docker_image_0\n"
        "    type: dockerimage\n"
        "    uri: ubuntu\n"
        "taskRoles:\n"
        "  main:\n"
        "    instances: 1\n"
        "    dockerImage: docker_image_0\n"
        "    resourcePerInstance:\n"
        "      cpu: 1\n"
        "      memoryMB: 1024\n"
        "      gpu: 1\n"
        "    commands:\n"
        "      - echo hi\n"
        "      - |\n"
        "        cat <<END\n"
        "        x\n"
        "        END\n"
    )


def test_dump_orders_keys_by_protocol():
    data = full().to_dict()
    shuffled = dict(reversed(data.items()))
    shuffled["taskRoles"] = {name: dict(reversed(role.items())) for name, role in data["taskRoles"].items()}
    assert dump_yaml(shuffled) == dump_yaml(data)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    st.sampled_from(
        [
            "yes",
            "~",
            "1e5",
            "007",
            "0x1",
            "<<",
            "=",
            "- a",
            "a: b",
            "# c",
            "2019-01-01",
            " x ",
            "1:30",
            "a\r\nb",
        ]
    ),
)
plain_data = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["a", "yes", "1", "<<", "null", "a b", ""]), plain_data, max_size=4))
def test_dump_round_trips_any_plain_data(data):
    text = dump_plain(data)
    assert read(text).data == data
    if "<<" not in text:
        again = yaml.safe_load(text)
        assert again == data or "\u2028" in text or "=" in text


# --- overrides ---


def v2():
    return JobBuilder("a").image("ubuntu").role("main", ["one"]).to_dict()


@pytest.mark.parametrize(
    ("update", "path", "value"),
    [
        ("name=007", ["name"], "007"),
        ("description=a=b", ["description"], "a=b"),
        ("description=true", ["description"], "true"),
        ("version=1.10", ["version"], "1.10"),
        ("defaults:virtualCluster=test", ["defaults", "virtualCluster"], "test"),
        ("jobRetryCount=3", ["jobRetryCount"], 3),
        ("taskRoles:main:instances=4", ["taskRoles", "main", "instances"], 4),
        ("taskRoles:main:commands:0=12", ["taskRoles", "main", "commands", 0], "12"),
        ("taskRoles:main:commands:1=two", ["taskRoles", "main", "commands", 1], "two"),
        ('taskRoles:main:commands=["a", "b"]', ["taskRoles", "main", "commands"], ["a", "b"]),
        (
            "taskRoles:main:completion:minSucceededInstances=null",
            ["taskRoles", "main", "completion"],
            {"minSucceededInstances": None},
        ),
        (
            "taskRoles:main:resourcePerInstance:ports:tb=2",
            ["taskRoles", "main", "resourcePerInstance", "ports", "tb"],
            2,
        ),
        ("prerequisites:0:uri=12", ["prerequisites", 0, "uri"], "12"),
        ("prerequisites:1:type=data", ["prerequisites", 1, "type"], "data"),
        ("parameters:lr=1e-3", ["parameters", "lr"], 0.001),
        ("parameters:name=007", ["parameters", "name"], "007"),
        ("parameters:deep:er={a: [1, x]}", ["parameters", "deep", "er"], {"a": [1, "x"]}),
        ("parameters:text=a: b", ["parameters", "text"], "a: b"),
        ("parameters:empty=", ["parameters", "empty"], ""),
        ('parameters:n="5"', ["parameters", "n"], "5"),
        ("extras:gangAllocation=false", ["extras", "gangAllocation"], False),
        (
            "extras:hivedScheduler:jobPriorityClass=oppo",
            ["extras", "hivedScheduler", "jobPriorityClass"],
            "oppo",
        ),
        (
            "extras:com.microsoft.pai.runtimeplugin:0:plugin=ssh",
            ["extras", "com.microsoft.pai.runtimeplugin", 0, "plugin"],
            "ssh",
        ),
        ("extras:other:key=5", ["extras", "other", "key"], 5),
        ("protocolVersion=2", ["protocolVersion"], 2),
    ],
)
def test_override_value_is_typed_by_the_schema(update, path, value):
    before = v2()
    changed = apply_overrides(before, [update])
    for part in path:
        changed = changed[part]
    assert changed == value
    assert type(changed) is type(value)
    assert before == v2()


def test_overrides_of_version_1():
    changed = apply_overrides(
        V1, ["jobName=007", "virtualCluster=test", "taskRoles:0:gpuNumber=2", "retryCount=-1"]
    )
    job = read_job_v1(changed)
    assert (job.job_name, job.virtual_cluster, job.retry_count, job.task_roles[0].gpu_number) == (
        "007",
        "test",
        -1,
        2,
    )


@pytest.mark.parametrize(
    ("update", "says"),
    [
        ("name", "is not an update"),
        ("=x", "is not an update"),
        ("nam=x", 'did you mean "name"'),
        ("jobName=x", 'did you mean "name"'),
        ("jobRetryCount=many", "whole number"),
        ("taskRoles:main:comands:0=x", 'did you mean "commands"'),
        ("taskRoles:main:commands=x", "as a list"),
        ("taskRoles:main:commands:5=x", "an index from 0 to 1"),
        ("taskRoles:main:commands:x=x", "an index"),
        ("taskRoles:1st:instances=1", "does not begin with a digit"),
        ("name:x=1", "is a single value"),
        ("extras:gangAllocation=maybe", "true or false"),
        ("taskRoles[0].command=x", "write taskRoles:0:command=VALUE, with : before keys and indexes"),
        ("taskRoles.main.commands[0]=x", "write taskRoles:main:commands:0=VALUE"),
        ("taskRoles:main:commands[0]=x", "write taskRoles:main:commands:0=VALUE"),
        ("parameters.lr=0.1", "write parameters:lr=VALUE"),
    ],
)
def test_invalid_override_error_says_why(update, says):
    with pytest.raises(ProtocolError) as caught:
        apply_overrides(v2(), [update])
    assert says in str(caught.value)


def test_all_invalid_overrides_are_reported_without_secrets():
    with pytest.raises(ProtocolError) as caught:
        apply_overrides(v2(), ["nam=x", "secrets:pw:hunter2", "secrets:a:b=hunter2", "secrets:a:b:c=hunter2"])
    assert len(caught.value.problems) == 3
    assert "hunter2" not in str(caught.value)


@given(st.text(max_size=30), st.sampled_from([V1, v2()]))
def test_any_text_is_applied_or_rejected_as_override(update, data):
    try:
        apply_overrides(data, [update])
    except ProtocolError:
        pass


# --- JSON Schema ---


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_json_schema_is_valid_and_describes_every_key(version):
    schema = job_schema(version)
    jsonschema.Draft7Validator.check_schema(schema)
    json.dumps(schema)
    assert all("description" in field for field in schema["properties"].values())


def test_unknown_schema_version_is_rejected():
    with pytest.raises(UsageError):
        job_schema("v3")


def test_json_schema_accepts_what_the_reader_accepts():
    jsonschema.validate(full().to_dict(), job_schema("v2"))
    jsonschema.validate(V1, job_schema("v1"))
    for version, data in (("v2", {**v2(), "nam": 1}), ("v1", {**V1, "imag": 1})):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(data, job_schema(version))
