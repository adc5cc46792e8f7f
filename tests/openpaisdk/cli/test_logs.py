"""`pai logs`, `pai connect-job` and `pai wait`: follow a job, and stop following it."""

import contextlib
import json
from pathlib import Path

import pytest

from support.cli_user import LIMIT, until


def test_logs_follows_and_ctrl_c_prints_resume_command(user) -> None:
    job = user.pai("sub", "-j", "slow_$", "echo begun; sleep 60").out.strip()
    process = user.begin("logs", "-f", job)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(2)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130 and f"pai logs -f {job}" in err and "Traceback" not in err
    until(lambda: user.state(job) == "RUNNING")
    user.pai("stop-job", job)


@pytest.mark.parametrize("words", [["wait"], ["connect-job"], ["sub", "--wait"]])
def test_ctrl_c_keeps_job_running_and_prints_resume_command(user, words: list[str]) -> None:
    if words[0] == "sub":
        process = user.begin(*words, "-j", "left_$", "sleep 60")
        job = process.stderr.readline().split()[1]
    else:
        job = user.pai("sub", "-j", "left_$", "sleep 60").out.strip()
        process = user.begin(*words, job)
    until(lambda: user.state(job) == "RUNNING")
    until(lambda: is_connected(process.pid))
    process.send_signal(2)
    _, err = process.communicate(timeout=LIMIT)
    back = "pai connect-job" if words[0] == "connect-job" else "pai wait"
    assert process.returncode == 130 and f"{back} {job}" in err and "Traceback" not in err, err
    user.pai("stop-job", job)


def is_connected(pid: int) -> bool:
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed after it was listed
            if "socket:" in str(fd.readlink()):
                return True
    return False


def test_connect_job_prints_states_until_finished(user) -> None:
    job = user.pai("sub", "sleep", "0.3").out.strip()
    done = user.pai("connect-job", job)
    states = [line.split()[-1] for line in done.out.splitlines()]
    assert done.status == 0 and states[-1] == "SUCCEEDED" and len(states) == len(set(states)), done


def test_wait_times_out(user) -> None:
    job = user.pai("sub", "sleep", "60").out.strip()
    done = user.pai("wait", "--timeout", "1", job)
    assert done.status == 5 and job in done.err, done
    user.pai("stop-job", job)


def test_wait_for_two_jobs_fails_if_one_fails(user) -> None:
    good, bad = (user.pai("sub", line).out.strip() for line in ("true", "false"))
    assert user.pai("wait", good, bad).status == 3
    assert json.loads(user.pai("wait", "-o", "json", good, bad).out) == {good: "SUCCEEDED", bad: "FAILED"}
