"""While the cluster cannot write, every command reports that, and no wrong pending reason."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli_user import CliUser, until
from support.small_disk import fill, mounted

FULL = "The disk that holds the cluster's database is full"
WHAT_TO_DO = "Free some space on it. The cluster resumes once it can write again."


class SmallDisk:
    """A home on a disk that can be filled and emptied; ``go`` is on another disk."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.go = folder.with_name("go")

    def fill(self) -> None:
        fill(self.folder)

    def empty(self) -> None:
        (self.folder / "filler").unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "disk") as folder:
        yield SmallDisk(folder)


@pytest.fixture
def disk_user(disk: SmallDisk) -> Iterator[CliUser]:
    user = CliUser(disk.folder / "disk_user")
    yield user
    disk.empty()
    user.stop_cluster()


def health(user: CliUser) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{user.handshake()['url']}/healthz") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def first_lines(process: "subprocess.Popen[str]", until_it_has: str) -> str:
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if until_it_has in line:
            return seen
    raise AssertionError(f"it ended without {until_it_has!r}: {seen}")


@pytest.mark.slow
def test_full_disk_is_reported_by_every_command_until_resolved(disk_user: CliUser, disk: SmallDisk) -> None:
    hold = f"until [ -e {disk.go} ]; do sleep 0.05; done"
    assert disk_user.pai("sub", "-j", "holder", "--no-sources", "--", hold).status == 0
    until(lambda: disk_user.state("holder") == "RUNNING")
    cores = json.loads(disk_user.pai("cluster-resources", "-o", "json").out)[0]["totalVCores"]
    follower = disk_user.begin(
        "sub", "-f", "-j", "next", "--cpu", str(cores), "--no-sources", "--", "echo ran"
    )
    # It is pending for the other job's cores, and that has been reported.
    first_lines(follower, "Insufficient cpu")
    waiter = disk_user.begin("wait", "holder")
    disk.fill()
    disk.go.touch()

    printed = first_lines(follower, "is full")
    assert f"next: {FULL}" in printed and printed.rstrip().endswith(WHAT_TO_DO)
    assert FULL in first_lines(waiter, "is full"), "also for a client that waits for a running job"
    status, said = health(disk_user)
    assert status == 503 and said.startswith(FULL)

    rows = disk_user.pai("list-jobs").out.splitlines()
    assert FULL in next(row for row in rows if row.startswith("next"))
    listed = json.loads(disk_user.pai("list-jobs", "-o", "json").out)
    reasons = {job["name"]: job.get("reason") for job in listed}
    assert reasons["next"].startswith(FULL) and reasons["next"].endswith(WHAT_TO_DO)
    for name in ("next", "holder"):  # one cannot start; the other has exited but is still shown as running
        assert FULL in disk_user.pai("job-status", name).out.splitlines()[0]
        shown = json.loads(disk_user.pai("job-status", name, "-o", "json").out)
        assert shown["reason"] == reasons["next"]
        events = json.loads(disk_user.pai("job-status", name, "events", "-o", "json").out)
        assert events[0]["reason"] == "Degraded" and events[0]["message"] == reasons["next"]
        assert [e["reason"] for e in events].count("Degraded") == 1
    for words in (["logs", "-f", "next"], ["wait", "next"]):
        late = disk_user.begin(*words)
        assert "Insufficient" not in first_lines(late, "is full")
        late.terminate()
        _, more = late.communicate(timeout=90)
        assert "Insufficient" not in more
    assert FULL in disk_user.pai("cluster-resources").out
    refused = disk_user.pai("sub", "true")
    assert refused.status == 1 and FULL in refused.err and "Free some space on it." in refused.err

    disk.empty()
    assert "The cluster processes this job again" in first_lines(follower, "again")
    out, _ = follower.communicate(timeout=90)
    assert (follower.returncode, out) == (0, "ran\n")
    assert waiter.wait(90) == 0
    assert health(disk_user) == (200, "Pylon ready.")
    assert disk_user.pai("sub", "--wait", "--no-sources", "true").status == 0
    for name in ("next", "holder"):
        assert "reason" not in json.loads(disk_user.pai("job-status", name, "-o", "json").out)
        events = json.loads(disk_user.pai("job-status", name, "events", "-o", "json").out)
        assert "Degraded" not in [event["reason"] for event in events]


@pytest.mark.slow
def test_stop_on_full_disk_is_persisted_later(disk_user: CliUser, disk: SmallDisk) -> None:
    pid = disk.go.with_name("pid")
    runs = disk_user.pai("sub", "--no-sources", "--", f"echo $$ > {pid}; exec sleep 600").out.strip()
    until(lambda: disk_user.state(runs) == "RUNNING" and pid.exists() and pid.read_text().endswith("\n"))
    cores = json.loads(disk_user.pai("cluster-resources", "-o", "json").out)[0]["totalVCores"]
    waits = disk_user.pai("sub", "--cpu", str(cores), "--no-sources", "--", f"touch {disk.go}").out.strip()
    disk.fill()
    for name in (runs, waits):
        done = disk_user.pai("stop-job", name)
        assert (
            done.status == 1
            and "is stopped, but the stop could not be written to the database yet" in done.err
        ), done
        assert FULL in done.err and "Free some space on it." in done.err
    until(lambda: not Path(f"/proc/{int(pid.read_text())}").exists())
    assert disk_user.state(runs) == "RUNNING", "as long as nothing can be written"
    disk.empty()
    until(lambda: [disk_user.state(name) for name in (runs, waits)] == ["STOPPED", "STOPPED"])
    assert not disk.go.exists()


@pytest.mark.slow
def test_stop_cluster_now_works_on_full_disk(disk_user: CliUser, disk: SmallDisk) -> None:
    job = disk_user.pai("sub", "--no-sources", "sleep", "600").out.strip()
    until(lambda: disk_user.state(job) == "RUNNING")
    disk.fill()
    done = disk_user.pai("stop-cluster", "--now")
    assert done.status == 1 and "has stopped, and its jobs were asked to stop" in done.err, done
    assert FULL in done.err and "Traceback" not in done.err
    assert "is not running" in disk_user.pai("cluster-status").out
    again = disk_user.pai("stop-cluster", "--now")
    assert again.status == 1 and "is not running, and its remaining jobs could not be stopped" in again.err, (
        again
    )
    assert "full" in again.err or "No space left" in again.err
    disk.empty()
    assert disk_user.pai("stop-cluster", "--now").status == 0
    assert disk_user.state(job) == "STOPPED"
