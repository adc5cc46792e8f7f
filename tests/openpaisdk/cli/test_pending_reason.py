"""Why is it waiting: one sentence, from job-status and cluster-resources."""

import json
import time

from openpaisdk.cli import list_jobs, pending_reason
from openpaisdk.client.models import JobSummary
from openpaisdk.protocol.states import KEEP_WAITING
from support.cli_user import Person, until

HUGE = "100000"


def events_of(person: Person, job: str) -> list[dict[str, str]]:
    return json.loads(person.pai("job-status", job, "events", "-o", "json").out)


def test_job_status_and_cluster_resources_show_pending_reason(person) -> None:
    calm = json.loads(person.pai("cluster-resources", "-o", "json").out)
    assert calm[0]["waitingJobs"] == 0 and "reason" not in calm[0]
    assert "pending" not in person.pai("cluster-resources").out
    assert "PENDING REASON" not in person.pai("list-jobs").out
    first, second = (person.pai("sub", "--cpu", HUGE, "true").out.strip() for _ in range(2))
    try:
        until(lambda: events_of(person, first))
        shown = person.pai("job-status", first).out.splitlines()[0]
        assert "WAITING" in shown and "Insufficient cpu" in shown
        told = json.loads(person.pai("job-status", first, "-o", "json").out)
        assert told["reason"] == "0/1 nodes are available: 1 Insufficient cpu."
        rows = json.loads(person.pai("cluster-resources", "-o", "json").out)
        assert rows[0]["waitingJobs"] == 2 and rows[0]["reason"] == told["reason"]
        table = person.pai("list-jobs").out.splitlines()
        assert table[0].endswith("PENDING REASON")
        assert next(x for x in table if x.startswith(first)).endswith("1 Insufficient cpu.")
        listed = json.loads(person.pai("list-jobs", "--all", "--state", "WAITING", "-o", "json").out)
        assert told["reason"] in [one["reason"] for one in listed]
        last = person.pai("cluster-resources").out.splitlines()[-1]
        assert "default: 2 pending jobs; the first is " in last
        assert first in last and last.endswith("1 Insufficient cpu.")
    finally:
        person.pai("stop-job", first, second)


def test_job_queued_behind_others_has_pending_reason(newcomer) -> None:
    holder = newcomer.pai("sub", "--cpu", str(_cores(newcomer)), "sleep", "600").out.strip()
    until(lambda: newcomer.state(holder) == "RUNNING")
    names = [newcomer.pai("sub", "true").out.strip() for _ in range(2)]
    until(lambda: events_of(newcomer, names[0]))
    for name in names:
        told = json.loads(newcomer.pai("job-status", name, "-o", "json").out)
        assert told["jobStatus"]["state"] == "WAITING" and told["reason"].endswith(".")
    assert "reason" not in json.loads(newcomer.pai("job-status", holder, "-o", "json").out)


def test_recent_job_has_its_own_pending_reason() -> None:
    now = int(time.time() * 1000)
    said = []
    for submitted in (now, now - 60_000):
        job = JobSummary({"state": "WAITING", "submissionTime": submitted, "reason": None})
        said.append(list_jobs._short_reason(job))
    assert said == ["just submitted", "queued behind earlier jobs"]


def test_wait_prints_no_outdated_pending_reasons(person) -> None:
    first = person.pai("sub", "--no-sources", "sleep", "1.5").out.strip()
    second = person.pai("sub", "--no-sources", "--after", first, "true").out.strip()
    both = ["--after", first, "--after", second]
    third = person.pai("sub", "--no-sources", *both, "sleep", "0.2").out.strip()
    until(lambda: events_of(person, second))
    done = person.pai("wait", first, second, third)
    assert done.status == 0 and "waits for" not in done.err, done
    for name in (first, second, third):
        assert f"{name} SUCCEEDED" in done.err


def test_wait_prints_each_pending_reason_once(newcomer) -> None:
    """The second waits for the first, and then for room: both are said, when they are so."""
    gate = newcomer.project / "gate"
    cores = str(_cores(newcomer))
    first = newcomer.pai("sub", "--no-sources", "--", f"until [ -e {gate} ]; do sleep 0.05; done").out.strip()
    second = newcomer.pai("sub", "--no-sources", "--cpu", cores, "--after", first, "true").out.strip()
    until(lambda: events_of(newcomer, second))
    waiter = newcomer.begin("wait", second)
    assert waiter.stderr is not None
    assert f"waits for {newcomer.handshake()['user']}~{first}" in waiter.stderr.readline()
    holder = newcomer.pai("sub", "--no-sources", "sleep", "3").out.strip()
    if cores != "1":
        until(lambda: newcomer.state(holder) == "RUNNING")
    gate.touch()
    _, err = waiter.communicate(timeout=30)
    assert err.splitlines()[0].startswith(f"{second}: ") and "waits for" not in err, err
    assert f"{second} SUCCEEDED" in err


def _cores(person: Person) -> int:
    return json.loads(person.pai("cluster-resources", "-o", "json").out)[0]["totalVCores"]


def test_pending_reasons_match_the_protocol() -> None:
    assert frozenset(KEEP_WAITING) == pending_reason.PENDING_REASONS


def test_follow_prints_pending_reason(person) -> None:
    process = person.begin("sub", "-f", "-j", "greedy_$", "--gpu", "999", "true")
    line = ""
    while "GPU" not in line.upper().replace("--GPU", ""):
        line = process.stderr.readline()
        assert line, "it ended without a word"
    process.send_signal(2)
    process.communicate(timeout=20)
    job = next(
        j for j in json.loads(person.pai("list-jobs", "-o", "json").out) if j["name"].startswith("greedy_")
    )
    assert job["state"] == "WAITING"
    person.pai("stop-job", job["name"])
