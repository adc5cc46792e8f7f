"""`pai logs -f` of a job with several tasks: every line has the task's name before it; `--task` selects."""

import json
import os
import pty
import re
import subprocess
import threading

import pytest

from support.cli_user import LIMIT, until

TWO_ROLES = """\
protocolVersion: 2
name: roles_$
type: job
prerequisites: [{name: img, type: dockerimage, uri: host}]
taskRoles:
  ps:
    dockerImage: img
    completion: {minSucceededInstances: -1}
    resourcePerInstance: {cpu: 1, memoryMB: 32, gpu: 0}
    commands: [echo serving]
  worker:
    instances: 2
    dockerImage: img
    completion: {minSucceededInstances: -1}
    resourcePerInstance: {cpu: 1, memoryMB: 32, gpu: 0}
    commands: ['echo step $PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX']
extras: {gangAllocation: false}  # the tasks need not fit at the same time
"""
ARRAY = ["sub", "--no-sources", "--mem", "16m", "-j", "many_$"]


def array(user, command: str, count: int = 3, *more: str) -> str:
    """An array: its tasks start as resources become free, also on a machine with one core."""
    done = user.pai(*ARRAY, "--array", str(count), *more, command)
    assert done.status == 0, done
    return done.out.strip()


@pytest.fixture(name="roles", scope="module")
def roles_fixture(shared_user, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("roles")
    (folder / "job.yaml").write_text(TWO_ROLES)
    done = shared_user.pai("submit", "--wait", "job.yaml", cwd=folder)
    assert done.status == 0, done
    return done.out.strip()


def test_follow_shows_all_tasks_with_their_names(user) -> None:
    job = array(user, "echo begun $PAI_TASK_INDEX; sleep 0.2; echo done $PAI_TASK_INDEX", 4)
    done = user.pai("logs", "-f", job)
    assert done.status == 0 and f"{job} SUCCEEDED" in done.err, done
    lines = done.out.splitlines()
    assert sorted(lines) == sorted(f"main[{i}] | {word} {i}" for i in range(4) for word in ("begun", "done"))
    for i in range(4):
        own = [line for line in lines if line.startswith(f"main[{i}]")]
        assert own == [f"main[{i}] | begun {i}", f"main[{i}] | done {i}"], "in the task's own order"
    assert "\x1b" not in done.out, "no colours in a pipe"


def test_sub_follow_shows_all_tasks_and_exit_status(user) -> None:
    done = user.pai(*ARRAY, "--array", "3", "--follow", "echo $PAI_TASK_INDEX; exit $((PAI_TASK_INDEX == 1))")
    assert done.status == 3, done
    assert sorted(done.out.splitlines()) == [f"main[{i}] | {i}" for i in range(3)]
    assert "1 of its 3 tasks failed: main[1] (exit code 1)" in done.err, done


def test_follow_of_a_finished_job_prints_task_after_task(user, roles: str) -> None:
    expected = ["ps[0]     | serving", "worker[0] | step 0", "worker[1] | step 1"]
    for words in (["-f"], ["--task", "all"]):
        done = user.pai("logs", *words, roles)
        assert done.status == 0 and done.out.splitlines() == expected, done


def test_task_selects_roles_and_tasks(user, roles: str) -> None:
    def out(*words: str) -> str:
        done = user.pai("logs", *words, roles)
        assert done.status == 0, done
        return done.out

    assert out("--task", "worker") == "worker[0] | step 0\nworker[1] | step 1\n"
    assert out("--task", "worker[1]") == out("--task", "worker:1") == "step 1\n", "one task: unchanged"
    assert out("-f", "--task", "worker:1") == "step 1\n"
    assert out("--task", "worker:0", "--task", "ps") == "worker[0] | step 0\nps[0]     | serving\n"
    assert out("--role", "worker", "--index", "1") == "step 1\n"


def test_log_of_the_first_of_several_tasks_says_so(user, roles: str) -> None:
    done = user.pai("logs", roles)
    assert done.out == "serving\n"
    assert done.err == "showing ps[0], the first of 3 tasks; --task all shows all\n"


def test_unknown_task_is_named(user, roles: str) -> None:
    done = user.pai("logs", "--task", "worker:7", roles)
    assert done.status == 2 and done.out == "", done
    assert done.err == (
        f"pai: The job {roles} has no task 'worker:7'.\n     Its tasks: ps[0], worker[0], worker[1].\n"
    )
    done = user.pai("logs", "--task", "worker", "--index", "1", roles)
    assert done.status == 2 and "do not add --role or --index" in done.err, done


def test_partial_lines_of_tasks_do_not_mix(user) -> None:
    job = array(user, "printf a; sleep 0.3; printf b; sleep 0.3; printf 'c\\nlast'", 2)
    done = user.pai("logs", "-f", job)
    assert sorted(done.out.splitlines()) == [
        "main[0] | abc",
        "main[0] | last",
        "main[1] | abc",
        "main[1] | last",
    ], done


def test_progress_bar_shows_its_last_state(user) -> None:
    job = array(user, r"printf '\r 10%%\r 50%%\r100%%\n'", 2)
    done = user.pai("logs", "-f", job)
    assert sorted(done.out.splitlines()) == ["main[0] | 100%", "main[1] | 100%"], done


def test_retried_task_is_shown_with_all_attempts(user) -> None:
    flag, followed = user.project / "failed-once", user.project / "followed"
    fails_once = (
        f"['echo serving; printf try; test -e {flag} || "
        f"{{ touch {flag}; until test -e {followed}; do sleep 0.05; done; exit 1; }}']"
    )
    user.write(
        job__yaml=TWO_ROLES.replace("[echo serving]", fails_once).replace(
            "  ps:\n", "  ps:\n    taskRetryCount: 1\n"
        )
    )
    process = user.begin("submit", "-f", "job.yaml")
    lines = []
    while "ps[0]     | serving\n" not in lines:
        lines.append(process.stdout.readline())
        assert lines[-1], "the command ended without the first attempt"
    followed.touch()
    lines += process.stdout.read().splitlines(keepends=True)
    assert process.wait(LIMIT) == 0, lines
    assert lines.count("ps[0]     | try\n") == 2, "each attempt starts on a new line"


def test_level_filters_each_task(user) -> None:
    line = "print('2026-01-01T00:00:00.000Z ERROR x bad'); print('2026-01-01T00:00:00.000Z INFO x good')"
    job = array(user, f'python3 -c "{line}"', 2)
    user.pai("wait", job)
    done = user.pai("logs", "-f", "--level", "ERROR", job)
    assert done.out.splitlines() == [f"main[{i}] | 2026-01-01T00:00:00.000Z ERROR x bad" for i in range(2)], (
        done
    )


def test_silent_tasks_are_reported_once(user) -> None:
    job = array(user, "true", 2)
    done = user.pai("logs", "-f", job)
    assert done.status == 0 and done.out == "" and done.err.count("has written no output.") == 1, done


def test_ctrl_c_ends_following_of_all_tasks(user) -> None:
    job = array(user, "echo begun; sleep 60", 2)
    process = user.begin("logs", "-f", job)
    assert re.fullmatch(r"main\[\d\] \| begun\n", process.stdout.readline())
    process.send_signal(2)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 130 and f"pai logs -f {job}" in err and "Traceback" not in err, err
    user.pai("stop-job", job)


@pytest.mark.slow
def test_following_of_all_tasks_survives_a_server_restart(new_user) -> None:
    new_user.start_cluster()
    gate = new_user.project / "gate"
    wait = f"until test -e {gate}; do sleep 0.05; done"
    job = array(new_user, f"echo begun $PAI_TASK_INDEX; {wait}; echo done $PAI_TASK_INDEX", 2)
    process = new_user.begin("logs", "-f", job)
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(process.stdout))
    reader.start()
    until(lambda: any("begun" in line for line in lines))
    assert new_user.pai("stop-cluster").status == 0
    assert new_user.pai("start-cluster").status == 0
    gate.touch()
    assert process.wait(60) == 0
    reader.join(90)
    process.stderr.close()
    assert sorted(lines) == [f"main[{i}] | {word} {i}\n" for i in range(2) for word in ("begun", "done")]


def test_waiting_job_is_followed_with_the_tasks_of_its_configuration(user) -> None:
    job = user.pai("sub", "--no-sources", "--cpu", "100000", "--instances", "2", "true").out.strip()
    process = user.begin("logs", "-f", job)
    user.pai("stop-job", job)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 4 and out == "" and f"{job} STOPPED before it started" in err, err


@pytest.mark.slow
def test_only_the_first_hundred_tasks_are_followed(user) -> None:
    job = array(user, "echo x", 101)
    done = user.pai("logs", "-f", job)
    followed = "showing the first 100 of 101 tasks; --task ROLE:INDEX shows others" in done.err
    # A job that has finished meanwhile is printed task after task, which has no limit.
    assert done.status == 0 and len(done.out.splitlines()) == (100 if followed else 101), done


def test_prefixes_have_colours_on_a_terminal(user, roles: str) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["pai", "logs", "-f", roles],
        cwd=user.project,
        env=user.env(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    out = b""
    try:
        while data := os.read(ours, 65536):
            out += data
    except OSError:
        pass  # the terminal's other end is closed
    os.close(ours)
    assert process.wait(90) == 0
    assert b"\x1b[36mps[0]     |\x1b[0m serving" in out and b"\x1b[33mworker[0] |\x1b[0m step 0" in out, out


def test_structured_output_keeps_stdout_exact(user) -> None:
    done = user.pai(*ARRAY, "--array", "2", "-f", "-o", "json", "echo $PAI_TASK_INDEX")
    assert json.loads(done.out)["state"] == "SUCCEEDED", done
    assert "main[0] | 0\n" in done.err and "main[1] | 1\n" in done.err, done
