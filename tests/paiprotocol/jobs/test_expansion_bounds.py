"""Jobs that expand: parameters, secrets, plugins and aliases may repeat text only up to a bound."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from paiprotocol.errors import ProtocolError
from paiprotocol.jobs import convert_v1, read_job, task_script, task_scripts
from paiprotocol.jobs.limits import MAX_EXPANDED_CHARS, ExpansionBudget

HALF = "x" * 500_000
ROLE = {"dockerImage": "i", "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0}}


def job(**parts):
    return {
        "protocolVersion": 2,
        "name": "j",
        "type": "job",
        "prerequisites": [{"name": "i", "type": "dockerimage", "uri": "host"}],
        "taskRoles": {"main": {**ROLE, "commands": ["true"]}},
        **parts,
    }


def roles(count, command):
    return {f"r{index}": {**ROLE, "commands": [command]} for index in range(count)}


def one_plugin(times):
    plugin = {
        "name": "p",
        "type": "script",
        "plugin": "com.microsoft.pai.runtimeplugin.cmd",
        "preCommands": [HALF],
    }
    base = job()
    base["prerequisites"].append(plugin)
    base["taskRoles"]["main"]["prerequisites"] = ["p"] * times
    return base


EXPLODING = {
    "one value, many references": job(
        parameters={"x": HALF}, taskRoles={"main": {**ROLE, "commands": ["<% $parameters.x %>" * 3000]}}
    ),
    "one value, many commands": job(
        parameters={"x": HALF}, taskRoles={"main": {**ROLE, "commands": ["<% $parameters.x %>"] * 3000}}
    ),
    "one value, many roles": job(parameters={"x": HALF}, taskRoles=roles(500, "<% $parameters.x %>")),
    "a mapping": job(
        parameters={"x": {"a": HALF}},
        taskRoles={"main": {**ROLE, "commands": ["<% $parameters.x %>" * 3000]}},
    ),
    "a secret": job(
        secrets={"x": HALF}, taskRoles={"main": {**ROLE, "commands": ["<% $secrets.x %>" * 3000]}}
    ),
    "one plugin, named many times": one_plugin(3000),
}


def limited_memory(read, source):
    """The error of reading ``source``, which must not need much more memory than the bound."""
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError) as caught:
            read(source)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 48 << 20
    return caught.value


@pytest.mark.parametrize("source", EXPLODING.values(), ids=EXPLODING)
def test_job_that_expands_beyond_the_bound_is_rejected_with_little_memory(source):
    text = json.dumps(source)
    assert len(text) < 1 << 20
    error = limited_memory(read_job, text)
    assert str(error).startswith("The commands of a job may have at most 4 MiB of text")
    assert "file" in error.hint


@pytest.mark.parametrize("source", EXPLODING.values(), ids=EXPLODING)
def test_stored_job_beyond_the_bound_is_read_but_not_rendered(source):
    """An older server accepted it: it can be listed and deleted, and its launch fails with the reason."""
    accepted = read_job(json.dumps(source), stored=True)
    error = limited_memory(lambda stored: task_scripts(stored, stored.secrets), accepted)
    assert "may have at most 4 MiB of text" in str(error)


def test_bound_is_exact():
    command = "<% $parameters.x %>" * 8
    size = len(command) + 8 * len(HALF)
    spec = read_job(job(parameters={"x": HALF}, taskRoles={"main": {**ROLE, "commands": [command]}}))
    assert size <= MAX_EXPANDED_CHARS
    assert len(task_script("main", spec, ExpansionBudget(size))) == 8 * len(HALF)
    with pytest.raises(ProtocolError):
        task_script("main", spec, ExpansionBudget(size - 1))


def test_aliases_may_not_repeat_text_beyond_the_bound():
    for big in (HALF, "9" * 300):
        text = f"parameters:\n  x: &x {big}\n  y:\n" + "    - *x\n" * 50_000
        error = limited_memory(read_job, text)
        assert "a job may have at most 4 MiB of text with its aliases, this has more" in str(error)


def test_variables_of_a_version_1_job_are_repeated_only_up_to_the_bound():
    role = {"cpuNumber": 1, "memoryMB": 64, "gpuNumber": 0, "taskNumber": 1, "command": "true"}
    source = {
        "jobName": "j",
        "image": "host",
        "jobEnvs": {"X": HALF},
        "taskRoles": [{"name": f"r{index}", **role} for index in range(500)],
    }
    error = limited_memory(convert_v1, json.dumps(source))
    assert str(error).startswith("The commands of a job may have at most 4 MiB of text")


@pytest.mark.parametrize("options", ["--depth '1", 7])
def test_options_of_the_git_plugin_that_cannot_be_read_fail_in_the_task(options):
    plugin = {
        "plugin": "com.microsoft.pai.runtimeplugin.git",
        "parameters": {"repo_uri": "https://example.com/x.git", "options": options},
    }
    script = task_script("main", read_job(job(extras={"com.microsoft.pai.runtimeplugin": [plugin]})))
    assert "The options of the plugin git are not a list or a shell command line." in script
    assert "exit 1" in script


@pytest.mark.parametrize("callbacks", [7, ["x"], [{"event": "taskStarts", "commands": 7}]])
def test_callbacks_of_the_cmd_plugin_that_cannot_be_read_are_ignored(callbacks):
    plugin = {"plugin": "com.microsoft.pai.runtimeplugin.cmd", "parameters": {"callbacks": callbacks}}
    spec = read_job(job(extras={"com.microsoft.pai.runtimeplugin": [plugin]}))
    assert task_script("main", spec) == "true"
