"""`pai stop-job` and `pai delete-job`."""

import json
import os
import pty
import subprocess

import pytest

from support.cli_user import done_job, until


@pytest.fixture
def sleepers(person):
    made = [
        person.pai("sub", "--no-sources", "--mem", "16m", "-j", f"nap{i}_$", "sleep 60").out.strip()
        for i in (1, 2)
    ]
    yield made
    person.pai("stop-jobs", *made)


def test_stop_job_accepts_patterns(person, sleepers) -> None:
    done = person.pai("stop-jobs", "nap*_*")
    assert done.status == 0 and sorted(done.out.split()[1::2]) == sorted(sleepers), done
    for name in sleepers:
        until(lambda name=name: person.state(name) == "STOPPED")
    done = person.pai("stop-job", "nap*_*")
    assert done.status == 2 and "No job matches" in done.err, done


def test_stop_all_asks_for_confirmation(person, sleepers) -> None:
    done = person.pai("stop-job", "--all")
    assert done.status == 2 and "--yes" in done.err and person.state(sleepers[0]) != "STOPPED", done
    assert at_a_terminal(person, "n\n", "stop-job", "--all") == 1
    assert at_a_terminal(person, "y\n", "stop-job", "--all") == 0
    for name in sleepers:
        until(lambda name=name: person.state(name) == "STOPPED")
    done = person.pai("stop-job", "--all", "-y")
    assert done.status == 0 and "There are no jobs" in done.err, done
    assert person.pai("stop-job").status == 2 and person.pai("stop-job", "--all", "x").status == 2


def at_a_terminal(person, typed: str, *words: str) -> int:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["pai", *words], cwd=person.project, env=person.env(), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    status = process.wait(30)
    os.close(ours)
    return status


def test_finished_job_can_be_deleted(person) -> None:
    one = done_job(person, "gone_$")
    done = person.pai("delete-job", one)
    assert done.status == 0 and done.out == f"Deleted {one}\n", done
    assert person.pai("job-status", one).status == 1
    two = [done_job(person, "goner1_$"), done_job(person, "goner2_$")]
    assert person.pai("delete-job", "goner*").status == 2
    done = person.pai("delete-job", "-y", "goner*", "-o", "json")
    assert sorted(json.loads(done.out)["deleted"]) == sorted(two), done


def test_running_job_cannot_be_deleted(person, sleepers) -> None:
    done = person.pai("delete-job", sleepers[0])
    assert done.status == 1 and "has not finished" in done.err, done


def test_unknown_job_does_not_keep_others_from_stopping(person) -> None:
    jobs = [person.pai("sub", "sleep", "60").out.strip() for _ in range(2)]
    done = person.pai("stop-jobs", jobs[0], "nonexistent", jobs[1])
    assert done.status == 1 and "nonexistent" in done.err, done
    until(lambda: all(person.state(job) == "STOPPED" for job in jobs))
