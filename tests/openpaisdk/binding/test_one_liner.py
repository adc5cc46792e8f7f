"""``Job.one_liner`` takes what ``pai sub`` takes, for the cluster that the job is submitted to."""

import inspect
import os
from datetime import timedelta
from pathlib import Path

import pytest

from openpaisdk import Cluster, Job
from openpaisdk.config.defaults import Change, change_defaults
from openpaisdk.jobs.job_options import KEYWORDS
from paiprotocol.errors import UsageError
from support.cli_user import LIMIT
from support.process_template import run_command


def role_of(job: Job) -> dict:
    return job.get_config()["taskRoles"]["main"]


def pre_commands(job: Job) -> str:
    deployments = job.get_config().get("deployments") or [{"taskRoles": {"main": {"preCommands": []}}}]
    return "\n".join(deployments[0]["taskRoles"]["main"]["preCommands"])


# --- the target cluster ---


def test_defaults_of_the_target_are_filled_in_at_submit(two_clusters) -> None:
    job = Job("target_$").one_liner("true", image="host", sources=[])
    job.submit("team")
    config = job.get_config()
    assert config["parameters"]["work_directory"] == f"/alice/team/jobs/{job.name}"
    assert role_of(job)["resourcePerInstance"] == {"cpu": 2, "gpu": 0, "memoryMB": 4096}
    job.name = "second_$"
    job.submit("other")
    assert job.get_config()["parameters"]["work_directory"] == f"/alice/other/jobs/{job.name}"
    assert Cluster("other").rest_api_job_info(job.name, "config")["parameters"] == {
        "work_directory": f"/alice/other/jobs/{job.name}"
    }


def test_embedded_cluster_selected_and_job_sent_elsewhere(two_clusters) -> None:
    change_defaults([Change("cluster-alias", "=", "local")], [], is_global=False)
    job = Job("elsewhere_$").one_liner("true", image="host", sources=[])
    assert role_of(job)["resourcePerInstance"]["memoryMB"] == 512
    assert role_of(job.submit("team"))["resourcePerInstance"]["memoryMB"] == 4096
    assert job.wait(timeout=60) == "SUCCEEDED"


def test_changes_made_before_submit_are_kept(two_clusters) -> None:
    job = Job("changed_$").one_liner("false", image="host", sources=[])
    job.set_param("lr", 0.1).add_tag("kept")
    job.protocol["taskRoles"]["main"]["commands"] = ["true"]
    job.protocol["taskRoles"]["main"]["resourcePerInstance"]["cpu"] = 1
    job.submit("team")
    sent = Cluster("team").rest_api_job_info(job.name, "config")
    assert sent["parameters"] == {"work_directory": f"/alice/team/jobs/{job.name}", "lr": 0.1}
    assert sent["extras"]["tags"] == ["kept"] and sent["taskRoles"]["main"]["commands"] == ["true"]
    assert sent["taskRoles"]["main"]["resourcePerInstance"] == {"cpu": 1, "gpu": 0, "memoryMB": 4096}


def test_cluster_alias_is_the_target_of_submit(two_clusters) -> None:
    job = Job("aliased_$").one_liner("true", image="host", sources=[], cluster_alias="other").submit()
    assert job.cluster.alias == "other"
    with pytest.raises(UsageError, match="no cluster called 'none'"):
        Job("x").one_liner("true", cluster_alias="none")


def test_job_without_selected_cluster_can_be_built_and_is_rejected_at_submit(two_clusters) -> None:
    job = Job("where").one_liner("true", image="host", sources=[])
    assert "name: where" in str(job) and "where" in repr(job)
    with pytest.raises(UsageError, match="none is selected"):
        job.submit()


def test_cluster_in_no_file_is_a_target(two_clusters, team, team_uri) -> None:
    cluster = Cluster("new", team_uri, "alice", token=team.token)
    job = Job("unlisted_$").one_liner("true", image="host", sources=[]).submit(cluster)
    assert job.wait(timeout=60) == "SUCCEEDED"


# --- files ---


def test_current_folder_travels_as_with_pai_sub(here) -> None:
    (here / "step.py").write_text("print('from a file')")
    job = Job("travels_$").one_liner("python step.py", mem="64m").submit()
    assert job.wait() == "SUCCEEDED" and job.logs() == "from a file\n"


def test_empty_list_of_sources_sends_nothing(here) -> None:
    (here / "step.py").write_text("")
    job = Job("nothing_$").one_liner("ls", sources=[], mem="64m").submit()
    assert job.wait() == "SUCCEEDED" and job.logs() == ""


def test_files_are_those_of_submit_in_the_folder_of_one_liner(here, tmp_path, monkeypatch) -> None:
    (here / "a").write_text("old")
    job = Job("later_$").one_liner("cat a", mem="64m")
    (here / "a").write_text("new")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert job.submit().wait() == "SUCCEEDED" and job.logs() == "new"


def test_home_folder_does_not_travel_and_a_warning_says_so(here, monkeypatch) -> None:
    home = Path.home()
    (home / "named.py").write_text("print('named')")
    monkeypatch.chdir(home)
    with pytest.warns(UserWarning, match="This is your home folder: only named.py is uploaded"):
        job = Job("home_$").one_liner("python named.py", mem="64m").submit()
    assert job.wait() == "SUCCEEDED" and job.logs() == "named\n"


def test_missing_source_is_rejected(here) -> None:
    with pytest.raises(UsageError, match=r"none\.py"):
        Job("x_$").one_liner("true", sources="none.py", mem="64m").submit()


# --- values ---


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: (x,)])
def test_text_is_one_item_of_every_list(here, wrap) -> None:
    (here / "data").write_text("content")
    job = Job("items_$").one_liner(
        "cat data",
        mem="64m",
        pip_installs=wrap("numpy"),
        sources=wrap("data"),
        after=wrap("first:end"),
        outputs=wrap("model"),
        ports=wrap("http=2"),
        tags=wrap("baseline"),
        env=wrap("COLOUR=blue"),
        secrets=wrap("KEY=hush"),
    )
    config = job.get_config()
    ours = config["extras"]["openpaisdk"]
    assert "install numpy" in pre_commands(job) and "n u m p y" not in pre_commands(job)
    assert ours["after"] == [{"job": "first", "on": "end"}] and ours["outputs"] == ["model"]
    assert role_of(job)["resourcePerInstance"]["ports"] == {"http": 2}
    assert config["extras"]["tags"] == ["baseline"] and config["secrets"] == {"KEY": "hush"}
    assert "export COLOUR=blue" in pre_commands(job)


def test_text_of_sources_is_one_path(here) -> None:
    for name in ("data", "d", "a", "t"):
        (here / name).write_text(name)
    job = Job("one_path_$").one_liner("ls", sources="data", mem="64m").submit()
    assert job.wait() == "SUCCEEDED" and job.logs() == "data\n"
    job = Job("one_path_$").one_liner("ls", sources=here / "data", mem="64m").submit()
    assert job.wait() == "SUCCEEDED" and job.logs() == "data\n"


def test_a_job_object_may_be_waited_for(here) -> None:
    first = Job("first_$").one_liner("true", mem="64m", sources=[]).submit()
    second = Job("second_$").one_liner("true", mem="64m", sources=[], after=first).submit()
    assert second.get_config()["extras"]["openpaisdk"]["after"] == [{"job": first.name}]
    assert second.wait() == "SUCCEEDED" and first.state == "SUCCEEDED"


@pytest.mark.parametrize("timeout", ["2h", 7200, timedelta(hours=2)])
def test_sizes_and_times_as_in_the_command(here, timeout: object) -> None:
    job = Job("sizes").one_liner("true", mem="4g", timeout=timeout, array="10%2", retries="2", cpu="3")
    assert role_of(job)["resourcePerInstance"]["memoryMB"] == 4096
    assert role_of(job)["instances"] == 10 and role_of(job)["resourcePerInstance"]["cpu"] == 3
    config = job.get_config()
    assert config["extras"]["openpaisdk"] == {"arrayLimit": 2, "timeLimit": 7200}
    assert config["jobRetryCount"] == 2


def test_memory_in_megabytes(here) -> None:
    assert role_of(Job("mb").one_liner("true", memoryMB=4))["resourcePerInstance"]["memoryMB"] == 4


def test_variables_may_be_numbers_or_come_from_here(here, monkeypatch) -> None:
    monkeypatch.setenv("FROM_HERE", "yes")
    lines = pre_commands(Job("env").one_liner("true", env={"N": 4, "FROM_HERE": None, "P": Path("/x")}))
    assert lines == "export N=4\nexport FROM_HERE=yes\nexport P=/x"


def test_debug_hold_and_capture_of_logging(here) -> None:
    job = Job("held").one_liner("true", debug_hold="5m", capture_logging=True)
    assert "held for 300 seconds" in pre_commands(job) and "PAI_CAPTURE_LOGGING" in pre_commands(job)


def test_help_and_editors_show_every_option() -> None:
    shown = inspect.signature(Job.one_liner).parameters
    assert {*KEYWORDS, "commands", "cluster_alias"} <= shown.keys() and "options" not in shown
    assert shown["timeout"].annotation == "str | float | timedelta" and shown["instances"].default == 1


def test_unknown_option_is_no_keyword() -> None:
    with pytest.raises(TypeError, match=r"one_liner\(\) got an unexpected keyword argument 'gpus'"):
        Job("x").one_liner("true", gpus=1)  # type: ignore[call-arg]


WRONG = {
    "mem": (4, ["--mem", "4"]),
    "memoryMB": ("0", ["--memoryMB", "0"]),
    "cpu": ("0", ["--cpu", "0"]),
    "gpu": ("-1", ["--gpu", "-1"]),
    "instances": ("0", ["--instances", "0"]),
    "retries": ("many", ["--retry", "many"]),
    "timeout": ("soon", ["--timeout", "soon"]),
    "ports": ({"http": 8080}, ["--ports", "http=8080"]),
    "env": ({"1X": "a"}, ["--env", "1X=a"]),
    "secrets": ("1X=a", ["--secret", "1X=a"]),
    "after": ("a:never", ["--after", "a:never"]),
    "array": ("x", ["--array", "x"]),
    "debug_hold": ("x", ["--debug-hold=x"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_are_rejected_with_the_sentence_of_the_command(here, name: str) -> None:
    value, words = WRONG[name]
    with pytest.raises(UsageError) as caught:
        Job("x").one_liner("true", **{name: value})
    sentence = caught.value.message.partition(": ")[2] if name in NAMED else caught.value.message
    command = ["pai", "sub", "--preview", *words, "true"]
    done = run_command(command, os.environ, here, "", LIMIT)
    assert done.returncode == 2 and sentence.rstrip(".") in done.stderr, (caught.value.message, done.stderr)


NAMED = ("memoryMB", "cpu", "gpu", "instances", "retries")
"""Options whose sentence begins with the name, which differs between the command and Python."""


def test_other_wrong_values_are_rejected(here) -> None:
    for wrong, sentence in (
        ({"priority": "high"}, "'high' is not a priority class"),
        ({"env": {"A": "1"}, "secrets": {"A": "2"}}, "A is given with --env and with --secret"),
        ({"env": {"A": "x\0y"}}, "NUL"),
        ({"env": "NOT_SET_ANYWHERE"}, "no such variable here"),
        ({"instances": 2, "array": 3}, "contradict each other"),
        ({"pip_installs": 5}, "pip_installs takes text, or a list of texts, not int"),
        ({"sources": {"a": 1}}, "sources takes text"),
        ({"after": 5}, "after takes text"),
    ):
        with pytest.raises(UsageError, match=sentence):
            Job("x").one_liner("true", **wrong)


def test_function_instead_of_a_command_is_refused_with_the_way_to_run_it() -> None:
    with pytest.raises(UsageError, match="one_liner takes commands, not a Python function") as raised:
        Job("add").one_liner(print)  # type: ignore[arg-type]
    assert "openpaisdk.submit(function" in raised.value.hint
