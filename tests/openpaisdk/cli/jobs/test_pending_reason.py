"""Pending reasons in job-status, list-jobs, wait and cluster-resources."""

import json
import re
import time

import pytest

from openpaisdk.cli.jobs import list_jobs
from openpaisdk.client.models import Event, JobSummary
from support.cli_user import LIMIT, CliUser, until

HUGE = "100000"


def events_of(user: CliUser, job: str) -> list[dict[str, str]]:
    return json.loads(user.pai("job-status", job, "events", "-o", "json").out)


def test_job_status_and_cluster_resources_show_pending_reason(user) -> None:
    calm = json.loads(user.pai("cluster-resources", "-o", "json").out)
    assert calm[0]["waitingJobs"] == 0 and "reason" not in calm[0]
    assert "pending" not in user.pai("cluster-resources").out
    assert "PENDING REASON" not in user.pai("list-jobs").out
    first, second = (user.pai("sub", "--cpu", HUGE, "true").out.strip() for _ in range(2))
    try:
        until(lambda: events_of(user, first))
        shown = user.pai("job-status", first).out.splitlines()[0]
        assert "WAITING" in shown and "Insufficient cpu" in shown
        detail = json.loads(user.pai("job-status", first, "-o", "json").out)
        assert re.fullmatch(
            r"0/1 nodes are available: 1 Insufficient cpu\. "
            r"The job asks for 100000 cores; the virtual cluster default has at most \d+ cores?\.",
            detail["reason"],
        )
        rows = json.loads(user.pai("cluster-resources", "-o", "json").out)
        assert rows[0]["waitingJobs"] == 2 and rows[0]["reason"] == detail["reason"]
        table = user.pai("list-jobs").out.splitlines()
        assert table[0].endswith("PENDING REASON")
        line = next(x for x in table if x.startswith(first))
        assert "1 Insufficient cpu. The job asks" in line
        listed = json.loads(user.pai("list-jobs", "--all", "--state", "WAITING", "-o", "json").out)
        assert detail["reason"] in [one["reason"] for one in listed]
        last = user.pai("cluster-resources").out.splitlines()[-1]
        assert "default: 2 pending jobs; the first is " in last
        assert first in last and last.endswith(detail["reason"])
    finally:
        user.pai("stop-job", first, second)


@pytest.mark.slow
def test_job_queued_behind_others_has_pending_reason(new_user) -> None:
    new_user.start_cluster()
    holder = new_user.pai("sub", "--cpu", str(_cores(new_user)), "sleep", "600").out.strip()
    until(lambda: new_user.state(holder) == "RUNNING")
    names = [new_user.pai("sub", "true").out.strip() for _ in range(2)]
    until(lambda: events_of(new_user, names[0]))
    for name in names:
        detail = json.loads(new_user.pai("job-status", name, "-o", "json").out)
        assert detail["jobStatus"]["state"] == "WAITING" and detail["reason"].endswith(".")
    assert "reason" not in json.loads(new_user.pai("job-status", holder, "-o", "json").out)


def test_recent_job_has_its_own_pending_reason() -> None:
    now = int(time.time() * 1000)
    said = []
    for submitted in (now, now - 60_000):
        job = JobSummary({"state": "WAITING", "submissionTime": submitted, "reason": None})
        said.append(list_jobs._pending_reason(job))
    assert said == ["just submitted", "queued behind earlier jobs"]


def test_wait_prints_no_outdated_pending_reasons(user) -> None:
    first = user.pai("sub", "--no-sources", "sleep", "1.5").out.strip()
    second = user.pai("sub", "--no-sources", "--after", first, "true").out.strip()
    both = ["--after", first, "--after", second]
    third = user.pai("sub", "--no-sources", *both, "sleep", "0.2").out.strip()
    until(lambda: events_of(user, second))
    done = user.pai("wait", first, second, third)
    assert done.status == 0 and "waits for" not in done.err, done
    for name in (first, second, third):
        assert f"{name} SUCCEEDED" in done.err


def test_wait_prints_each_pending_reason_once(new_user) -> None:
    """The second job is pending for the first one, then for resources: each reason is printed in turn."""
    new_user.start_cluster()
    gate = new_user.project / "gate"
    cores = str(_cores(new_user))
    first = new_user.pai("sub", "--no-sources", "--", f"until [ -e {gate} ]; do sleep 0.05; done").out.strip()
    second = new_user.pai("sub", "--no-sources", "--cpu", cores, "--after", first, "true").out.strip()
    until(lambda: events_of(new_user, second))
    waiter = new_user.begin("wait", second)
    assert waiter.stderr is not None
    assert f"waits for {new_user.handshake()['user']}~{first}" in waiter.stderr.readline()
    holder = new_user.pai("sub", "--no-sources", "sleep", "3").out.strip()
    if cores != "1":
        until(lambda: new_user.state(holder) == "RUNNING")
    gate.touch()
    _, err = waiter.communicate(timeout=90)
    assert err.splitlines()[0].startswith(f"{second}: ") and "waits for" not in err, err
    assert f"{second} SUCCEEDED" in err


def _cores(user: CliUser) -> int:
    return json.loads(user.pai("cluster-resources", "-o", "json").out)[0]["totalVCores"]


def test_kubernetes_event_without_a_flag_is_pending_by_its_reason() -> None:
    """OpenPAI's own server has Kubernetes' events."""
    assert Event({"reason": "FailedScheduling", "message": "0/1 nodes are available"}).is_pending
    assert not Event({"reason": "Started"}).is_pending
    assert Event({"reason": "Anything", "pending": True}).is_pending
    assert not Event({"reason": "FailedScheduling", "pending": False}).is_pending


def test_follow_prints_pending_reason(user) -> None:
    process = user.begin("sub", "-f", "-j", "greedy_$", "--gpu", "999", "true")
    line = ""
    while "GPU" not in line.upper().replace("--GPU", ""):
        line = process.stderr.readline()
        assert line, "it exited without a message"
    process.send_signal(2)
    process.communicate(timeout=LIMIT)
    job = next(
        j for j in json.loads(user.pai("list-jobs", "-o", "json").out) if j["name"].startswith("greedy_")
    )
    assert job["state"] == "WAITING"
    user.pai("stop-job", job["name"])
