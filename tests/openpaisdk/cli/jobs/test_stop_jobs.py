"""`pai stop-job` and `pai delete-job`."""

import json
import os
import pty
import subprocess

import pytest

from support.cli_user import done_job, until


@pytest.fixture
def sleeping_jobs(user):
    made = [
        user.pai("sub", "--no-sources", "--mem", "16m", "-j", f"nap{i}_$", "sleep 60").out.strip()
        for i in (1, 2)
    ]
    yield made
    user.pai("stop-jobs", *made)


def test_stop_job_accepts_patterns(user, sleeping_jobs) -> None:
    done = user.pai("stop-jobs", "nap*_*")
    assert done.status == 0 and sorted(done.out.split()[1::2]) == sorted(sleeping_jobs), done
    for name in sleeping_jobs:
        until(lambda name=name: user.state(name) == "STOPPED")
    done = user.pai("stop-job", "nap*_*")
    assert done.status == 2 and "No job matches" in done.err, done


def test_stop_all_asks_for_confirmation(user, sleeping_jobs) -> None:
    done = user.pai("stop-job", "--all")
    assert done.status == 2 and "--yes" in done.err and user.state(sleeping_jobs[0]) != "STOPPED", done
    assert at_a_terminal(user, "n\n", "stop-job", "--all") == 1
    assert at_a_terminal(user, "y\n", "stop-job", "--all") == 0
    for name in sleeping_jobs:
        until(lambda name=name: user.state(name) == "STOPPED")
    done = user.pai("stop-job", "--all", "-y")
    assert done.status == 0 and "There are no jobs" in done.err, done
    assert user.pai("stop-job").status == 2 and user.pai("stop-job", "--all", "x").status == 2


def at_a_terminal(user, typed: str, *words: str) -> int:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["pai", *words], cwd=user.project, env=user.env(), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    status = process.wait(90)
    os.close(ours)
    return status


def test_finished_job_can_be_deleted(user) -> None:
    one = done_job(user, "gone_$")
    done = user.pai("delete-job", one)
    assert done.status == 0 and done.out == f"Deleted {one}\n", done
    assert user.pai("job-status", one).status == 1
    two = [done_job(user, "goner1_$"), done_job(user, "goner2_$")]
    assert user.pai("delete-job", "goner*").status == 2
    done = user.pai("delete-job", "-y", "goner*", "-o", "json")
    assert sorted(json.loads(done.out)["deleted"]) == sorted(two), done


def test_running_job_cannot_be_deleted(user, sleeping_jobs) -> None:
    name = sleeping_jobs[0]
    done = user.pai("delete-job", name)
    assert done.status == 1 and done.out == "", done
    assert done.err == (
        f"pai: {name} has not finished, so it cannot be deleted.\n"
        f"     Stop it first: pai stop-job {name} && pai wait {name}\n"
    )
    assert user.state(name) in ("WAITING", "RUNNING")


def test_unknown_job_does_not_keep_others_from_stopping(user) -> None:
    jobs = [user.pai("sub", "sleep", "60").out.strip() for _ in range(2)]
    done = user.pai("stop-jobs", jobs[0], "nonexistent", jobs[1])
    assert done.status == 1 and "nonexistent" in done.err, done
    until(lambda: all(user.state(job) == "STOPPED" for job in jobs))
