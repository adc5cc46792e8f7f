"""What a person notices in passing: names on stdout, jobs that are over, filters that match nothing."""

import json
import re

import pytest

from openpaisdk.cli.main import run
from openpaisdk.jobs.job_names import generate_name


def test_a_job_that_is_waited_for_still_gives_its_name(person) -> None:
    done = person.pai("sub", "--wait", "--", "true")
    assert done.status == 0 and re.fullmatch(r"true_\w{6}\n", done.out), done


def test_stopping_a_job_that_is_over_says_so(person) -> None:
    job = person.pai("sub", "--wait", "--", "true").out.strip()
    done = person.pai("stop-job", job)
    assert done.status == 0 and done.out == "" and f"{job} is over already (SUCCEEDED)." in done.err, done


def test_a_filter_that_matches_nothing_and_one_that_cannot(person) -> None:
    done = person.pai("list-jobs", "--keyword", "no-such-name-anywhere")
    assert done.status == 0 and "No jobs match." in done.err, done
    done = person.pai("list-jobs", "--state", "runing")
    assert done.status == 2 and "Did you mean RUNNING" in done.err, done


def test_the_programs_own_exit_code_is_in_the_table(person) -> None:
    job = person.pai("sub", "--wait", "exit 9").out.strip()
    line = next(x for x in person.pai("job-status", job).out.splitlines() if x.startswith("main[0]"))
    assert line.split()[:3] == ["main[0]", "FAILED", "9"], line
    several = person.pai("sub", "--wait", "--array", "3", "exit $PAI_TASK_INDEX").out.strip()
    lines = person.pai("job-status", several).out.splitlines()
    assert [x.split()[2] for x in lines if x.startswith("main[")] == ["0", "1", "2"], lines


FAILS = """\
protocolVersion: 2
name: fails_$
type: job
prerequisites: [{name: img, type: dockerimage, uri: host}]
taskRoles:
  master:
    dockerImage: img
    resourcePerInstance: {cpu: 1, memoryMB: 64, gpu: 0}
    commands: [sleep 60]
  worker:
    dockerImage: img
    resourcePerInstance: {cpu: 1, memoryMB: 64, gpu: 0}
    commands: [exit 9]
"""


def test_the_task_that_failed_is_named_when_another_one_was_followed(person) -> None:
    person.write(job__yaml=FAILS)
    done = person.pai("submit", "--follow", "job.yaml")
    assert done.status == 3 and "showing master[0]" in done.err, done
    name = json.loads(person.pai("list-jobs", "--limit", "1", "-o", "json").out)[0]["name"]
    again = person.pai("logs", "-f", name)
    assert "showing master[0], the first of 2 tasks; --role and --index show others" in again.err, again
    assert re.search(
        r"worker\[0\] failed with exit code 9; see: pai logs --role worker fails_\w+", done.err
    ), done


def test_a_check_takes_a_name_that_is_to_be_filled_in(person) -> None:
    person.write(job__yaml=FAILS, bad__yaml=FAILS.replace("fails_$", "no name_$"))
    done = person.pai("check-job", "job.yaml")
    assert done.status == 0 and "good" in done.out, done
    assert person.pai("check-job", "bad.yaml").status == 1


def test_a_folder_that_is_gone_is_told_where_it_is_needed(person) -> None:
    gone = "mkdir gone && cd gone && rmdir ../gone &&"
    for line in (
        "pai list-jobs",
        "pai list-clusters",
        "pai cluster-resources",
        "pai sub --no-sources -- true",
    ):
        done = person.sh(f"{gone} {line}")
        assert done.status == 0, done
    for line in ("pai set cpu=1", "pai sub -- true", "pai select-cluster local"):
        done = person.sh(f"{gone} {line}")
        assert done.status == 1 and "The folder you are in no longer exists" in done.err, done


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("rm", "remove"),
        ("run", "sub"),
        ("ps", "list-jobs"),
        ("kill", "stop-job"),
        ("cat", "copy"),
        ("upload", "copy"),
        ("download", "copy"),
        ("ls", "listdir"),
        ("login", "add-cluster"),
        ("status", "job-status"),
    ],
)
def test_words_of_other_programs_are_understood(capsys, word: str, meant: str) -> None:
    assert run([word, "x"]) == 2
    assert f"pai {meant}" in capsys.readouterr().err


def test_memory_is_not_taken_for_another_option(person) -> None:
    done = person.pai("sub", "--memory", "4g", "true")
    assert done.status == 2 and "--mem 4g" in done.err and done.out == "", done


def test_a_job_nobody_knows_is_told_in_the_same_words_everywhere(person) -> None:
    says = "There is no job 'nosuchjob' on the cluster local."
    for words in (["job-metrics", "nosuchjob"], ["sub", "--after", "nosuchjob", "true"]):
        done = person.pai(*words)
        assert done.status == 1 and says in done.err and done.out == "", done


def test_an_option_behind_the_command_is_told(person) -> None:
    done = person.pai("sub", "--preview", "echo", "--follow")
    assert "--follow after the command belongs to it" in done.err, done
    assert "belongs" not in person.pai("sub", "--preview", "--", "echo", "--follow").err


def test_a_log_without_an_end_of_line_is_not_glued_to_what_is_said(person) -> None:
    done = person.sh("pai sub -f -- printf abc 2>&1")
    assert re.search(r"^abc$", done.out, re.M), done
    assert person.pai("sub", "-f", "--", "printf", "abc").out == "abc"


def test_a_long_array_shows_the_folders_of_a_few_tasks(person) -> None:
    job = person.pai("sub", "--no-sources", "--array", "7", "--mem", "64m", "--wait", "true").out.strip()
    shown = person.pai("job-status", job).out.splitlines()
    assert sum(line.startswith("  files ") for line in shown) == 4
    assert any(line.strip() == "and 3 more folders beside these" for line in shown)
    assert sum(line.startswith("main[") for line in shown) == 7


def test_an_array_with_failures_shows_them_at_its_head(person) -> None:
    line = "exit $((PAI_TASK_INDEX == 1))"
    job = person.pai("sub", "--array", "3", "--mem", "64m", "--wait", line).out.strip()
    assert "SUCCEEDED (1 of 3 failed)" in person.pai("job-status", job).out.splitlines()[0]
    assert person.state(job) == "SUCCEEDED"


def test_a_folder_that_holds_the_home_is_called_that(person) -> None:
    done = person.pai("sub", "--preview", "true", cwd=person.home.parent)
    assert "Your home folder lies in this one: none of it travels" in done.err, done


def test_code_gives_no_name() -> None:
    assert re.fullmatch(r"python_c_\w{6}", generate_name("python3 -u -c 'import os; print(os.name)'"))
    assert re.fullmatch(r"make_\w{6}", generate_name("bash -c 'make all'"))


def test_a_failed_job_tells_its_cause_and_what_to_do_and_its_last_line(person) -> None:
    job = person.pai("sub", "--wait", "echo first; surely-no-such-command").out.strip()
    shown = person.pai("job-status", job).out
    assert "  cause      A command of the job does not exist where the task runs\n" in shown
    assert "  what to do Check the spelling" in shown
    assert re.search(r"  last line  .*surely-no-such-command", shown), shown
