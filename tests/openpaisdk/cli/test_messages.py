"""Messages of commands: names on stdout, finished jobs, filters without a match."""

import json
import re

import pytest

from openpaisdk.cli.main import run
from openpaisdk.jobs.job_names import generate_name
from support.terminal import Terminal


def test_sub_wait_prints_job_name(user) -> None:
    done = user.pai("sub", "--wait", "--", "true")
    assert done.status == 0 and re.fullmatch(r"true_\w{6}\n", done.out), done


@pytest.mark.parametrize(("command", "state"), [("true", "SUCCEEDED"), ("exit 3", "FAILED")])
def test_final_state_is_printed_once_at_a_terminal(user, command: str, state: str) -> None:
    words = ["pai", "sub", "--no-sources", "--wait", command]
    terminal = Terminal(words, columns=200, cwd=user.project, env=user.env(NO_COLOR="1"))
    terminal.finish()
    assert terminal.text.count(state) == 1, terminal.text
    job = re.search(rf"^(\w+) {state} after ", terminal.text, re.MULTILINE)[1]
    terminal = Terminal(["pai", "wait", job], columns=200, cwd=user.project, env=user.env(NO_COLOR="1"))
    terminal.finish()
    assert terminal.text.count(state) == 1, terminal.text


def test_stop_of_finished_job_is_reported(user) -> None:
    job = user.pai("sub", "--wait", "--", "true").out.strip()
    done = user.pai("stop-job", job)
    assert done.status == 0 and done.out == "" and f"{job} has already finished (SUCCEEDED)." in done.err, (
        done
    )


def test_filter_without_match_and_invalid_filter(user) -> None:
    done = user.pai("list-jobs", "--keyword", "no-such-name-anywhere")
    assert done.status == 0 and "No jobs match." in done.err, done
    done = user.pai("list-jobs", "--state", "runing")
    assert done.status == 2 and "Did you mean RUNNING" in done.err, done


def test_status_table_has_program_exit_code(user) -> None:
    job = user.pai("sub", "--wait", "exit 9").out.strip()
    line = next(x for x in user.pai("job-status", job).out.splitlines() if x.startswith("main[0]"))
    assert line.split()[:3] == ["main[0]", "FAILED", "9"], line
    several = user.pai("sub", "--wait", "--array", "3", "exit $PAI_TASK_INDEX").out.strip()
    lines = user.pai("job-status", several).out.splitlines()
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


def test_failed_task_is_named_if_another_was_followed(user) -> None:
    user.write(job__yaml=FAILS)
    done = user.pai("submit", "--follow", "job.yaml")
    assert done.status == 3 and "see: pai logs" not in done.err, done
    name = json.loads(user.pai("list-jobs", "--limit", "1", "-o", "json").out)[0]["name"]
    again = user.pai("logs", "-f", "--task", "master", name)
    assert again.status == 3, again
    assert f"worker[0] failed with exit code 9; see: pai logs --role worker {name}\n" in again.err, again


def test_check_job_accepts_name_template(user) -> None:
    user.write(job__yaml=FAILS, bad__yaml=FAILS.replace("fails_$", "no name_$"))
    done = user.pai("check-job", "job.yaml")
    assert done.status == 0 and "valid" in done.out, done
    assert user.pai("check-job", "bad.yaml").status == 1


def test_deleted_current_folder_is_reported(user) -> None:
    gone = "mkdir gone && cd gone && rmdir ../gone &&"
    for line in (
        "pai list-jobs",
        "pai list-clusters",
        "pai cluster-resources",
        "pai sub --no-sources -- true",
    ):
        done = user.sh(f"{gone} {line}")
        assert done.status == 0, done
    for line in ("pai set cpu=1", "pai sub -- true", "pai select-cluster local"):
        done = user.sh(f"{gone} {line}")
        assert done.status == 1 and "The folder you are in no longer exists" in done.err, done


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("kill", "stop-job"),
        ("cat", "copy"),
        ("upload", "copy"),
        ("download", "copy"),
        ("login", "add-cluster"),
        ("status", "job-status"),
    ],
)
def test_commands_of_other_programs_get_suggestions(capsys, word: str, meant: str) -> None:
    assert run([word, "x"]) == 2
    assert f"pai {meant}" in capsys.readouterr().err


def test_memory_option_gets_a_hint(user) -> None:
    done = user.pai("sub", "--memory", "4g", "true")
    assert done.status == 2 and "--mem 4g" in done.err and done.out == "", done


def test_unknown_job_has_same_message_in_all_commands(user) -> None:
    says = "There is no job 'nosuchjob' on the cluster local."
    for words in (["job-metrics", "nosuchjob"], ["sub", "--after", "nosuchjob", "true"]):
        done = user.pai(*words)
        assert done.status == 1 and says in done.err and done.out == "", done


def test_option_after_command_is_reported(user) -> None:
    done = user.pai("sub", "--preview", "echo", "--follow")
    assert "--follow after the command is passed to the command" in done.err, done
    assert "belongs" not in user.pai("sub", "--preview", "--", "echo", "--follow").err


def test_notice_after_unterminated_log_line_starts_new_line(user) -> None:
    done = user.sh("pai sub -f -- printf abc 2>&1")
    assert re.search(r"^abc$", done.out, re.M), done
    assert user.pai("sub", "-f", "--", "printf", "abc").out == "abc"


def test_long_array_shows_some_task_folders(user) -> None:
    job = user.pai("sub", "--no-sources", "--array", "7", "--mem", "64m", "--wait", "true").out.strip()
    shown = user.pai("job-status", job).out.splitlines()
    assert sum(line.startswith("  files ") for line in shown) == 4
    assert any(line.strip() == f"and 3 more: pai job-status {job} tasks" for line in shown)
    assert sum(line.startswith("main[") for line in shown) == 7


def test_array_status_counts_failed_tasks(user) -> None:
    line = "exit $((PAI_TASK_INDEX == 1))"
    job = user.pai("sub", "--array", "3", "--mem", "64m", "--wait", line).out.strip()
    assert "SUCCEEDED (1 of 3 tasks failed)" in user.pai("job-status", job).out.splitlines()[0]
    assert user.state(job) == "SUCCEEDED"


def test_folder_that_contains_home_is_not_uploaded(user) -> None:
    done = user.pai("sub", "--preview", "true", cwd=user.home.parent)
    assert "This folder contains your home folder: nothing is uploaded" in done.err, done


def test_name_is_not_made_from_inline_code() -> None:
    assert re.fullmatch(r"python_c_\w{6}", generate_name("python3 -u -c 'import os; print(os.name)'"))
    assert re.fullmatch(r"make_\w{6}", generate_name("bash -c 'make all'"))


def test_failed_job_shows_cause_fix_and_last_line(user) -> None:
    job = user.pai("sub", "--wait", "echo first; surely-no-such-command").out.strip()
    shown = user.pai("job-status", job).out
    cause = "exit code 127, The command surely-no-such-command does not exist where the task runs."
    assert shown.splitlines()[0].endswith(cause) and "  cause " not in shown
    assert "  what to do Check its spelling" in shown
    assert re.search(r"  last line  .*surely-no-such-command", shown), shown


def test_failure_without_known_cause_shows_that_of_its_code(user) -> None:
    job = user.pai("sub", "--wait", "exit 9").out.strip()
    shown = user.pai("job-status", job).out
    assert "  cause      The job's commands failed, and the log matches no known cause\n" in shown
