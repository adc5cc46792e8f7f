"""An option that could have no effect is refused, with a sentence; none is accepted and ignored."""

import pytest
import yaml

from support.cli_user import done_job
from support.notebooks import write_notebook


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("sub", "--mem", "1g", "--memoryMB", "5", "true"), "--mem and --memoryMB contradict each other"),
        (("sub", "--pip-path", "pip3", "true"), "there are none to install"),
        (
            ("sub", "--instances", "2", "--array", "3", "true"),
            "--array and --instances contradict each other",
        ),
        (("sub", "--tag", "a,b", "true"), "'a,b' cannot be a tag: a tag has no comma."),
        (("sub", "--tag", "", "true"), "a tag is text, and not empty"),
        (("resubmit", "--pip-path", "pip3", "held"), "there are none to install"),
        (
            ("resubmit", "--mem", "1g", "--memoryMB", "5", "held"),
            "--mem and --memoryMB contradict each other",
        ),
        (("resubmit", "--role", "main", "held"), "no option changes one"),
        (("notebook-job", "--no-wait", "--wait", "a.ipynb"), "--no-wait and --wait contradict each other"),
        (("notebook-job", "--no-wait", "-f", "a.ipynb"), "--no-wait and --follow contradict each other"),
        (
            ("notebook-job", "--no-wait", "--fetch=x", "a.ipynb"),
            "--no-wait and --fetch contradict each other",
        ),
        (("notebook-job", "--interactive", "--wait", "a.ipynb"), "--wait does not go together with --inter"),
    ],
)
def test_option_that_could_have_no_effect_is_refused(user, words: tuple[str, ...], sentence: str) -> None:
    write_notebook(user.project / "a.ipynb", "1")
    done = user.pai(*words)
    assert done.status == 2 and sentence in done.err, done


def test_pip_path_is_for_packages_of_the_defaults_too(user) -> None:
    assert user.pai("set", "pip-installs=six").status == 0
    done = user.pai("sub", "--no-sources", "--preview", "--pip-path", "pip3", "true")
    assert done.status == 0 and "pip3 install six" in done.out, done


def test_new_hold_of_a_copy_replaces_that_of_its_job(user) -> None:
    name = done_job(user, "held_$", "--debug-hold=5s", "--env", "A=1", "true")
    copy = yaml.safe_load(user.pai("resubmit", "--preview", "--debug-hold=9s", name).out)
    lines = copy["deployments"][0]["taskRoles"]["main"]["preCommands"]
    assert [line.count("--debug-hold") for line in lines] == [1, 0] and "held for 9 seconds" in lines[0]
    kept = yaml.safe_load(user.pai("resubmit", "--preview", "--env", "A=2", name).out)
    assert "held for 5 seconds" in kept["deployments"][0]["taskRoles"]["main"]["preCommands"][0]


def test_virtual_cluster_of_the_command_line_replaces_that_of_a_short_file_under_either_name(user) -> None:
    for key in ("vc", "virtual-cluster"):
        user.write(job__yaml=f"command: 'true'\n{key}: one\nsources: []\n")
        done = user.pai("submit", "--preview", "--vc", "two", "job.yaml")
        assert done.status == 0 and "virtualCluster: two" in done.out, done


def test_job_of_another_user_that_does_not_exist_is_named_with_its_user(user) -> None:
    done = user.pai("resubmit", "--user", "nobody", "none")
    assert done.status == 1 and "There is no job 'nobody~none'" in done.err, done
