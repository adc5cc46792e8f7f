"""`pai job-status`: what a job runs, its tasks with their files, its events with their times."""

import json
import re
import urllib.request
from pathlib import Path

from support.cli_user import done_job, until
from support.terminal import run_on_terminal

ROLES = """\
protocolVersion: 2
name: roles_$
type: job
prerequisites: [{name: img, type: dockerimage, uri: host}]
taskRoles:
  server:
    dockerImage: img
    completion: {minSucceededInstances: -1}
    resourcePerInstance: {cpu: 1, memoryMB: 64, gpu: 0}
    commands: [echo serve]
  worker:
    instances: 2
    dockerImage: img
    completion: {minSucceededInstances: -1}
    resourcePerInstance: {cpu: 1, memoryMB: 2048, gpu: 0}
    commands: [echo one, echo two]
extras: {gangAllocation: false}
"""


def fields(out: str) -> dict[str, str]:
    """The labelled lines of the overview."""
    return {line[2:12].strip(): line[13:] for line in out.splitlines() if re.match(r"  \w", line)}


def test_overview_shows_what_the_job_runs(user) -> None:
    job = done_job(user, "shown_$", "--cpu", "1", "--priority", "prod", "echo hello; echo again")
    shown = fields(user.pai("job-status", job).out)
    assert shown["command"] == "echo hello; echo again"
    assert shown["image"] == "none"
    assert shown["resources"] == "1 core, 32 MB memory", "no word about GPUs where there are none"
    assert shown["priority"] == "prod"
    page = shown["page"]
    assert page.endswith(f"/job-detail.html?username={user.handshake()['user']}&jobName={job}")
    with urllib.request.urlopen(page) as response:
        assert response.status == 200
    assert fields(user.pai("job-status", done_job(user, "plain_$")).out)["priority"] == "default"


def test_waiting_job_shows_requested_gpus_and_image(user) -> None:
    done = user.pai(
        "sub", "--no-sources", "--cpu", "100000", "--mem", "4g", "--gpu", "2", "--instances", "3", "true"
    )
    job = done.out.strip()
    until(lambda: json.loads(user.pai("job-status", job, "events", "-o", "json").out))
    out = user.pai("job-status", job).out
    shown = fields(out)
    assert shown["resources"] == "100000 cores, 4 GB memory, 2 GPUs each, 3 tasks"
    assert (shown["started"], shown["ended"], shown["duration"]) == ("-", "-", "-")
    assert "WAITING  0/1 nodes are available" in out.splitlines()[0]
    assert re.search(
        r"^TIME +TYPE +REASON +MESSAGE\n\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  Warning  FailedScheduling  0/1 nodes",
        out,
        re.M,
    ), out
    user.pai("stop-job", job)


def test_events_have_times(user) -> None:
    job = user.pai("sub", "--no-sources", "--cpu", "100000", "true").out.strip()
    until(lambda: json.loads(user.pai("job-status", job, "events", "-o", "json").out))
    head, first, *_ = user.pai("job-status", job, "events").out.splitlines()
    assert head.split() == ["TIME", "TYPE", "REASON", "MESSAGE"]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  Warning  FailedScheduling  0/1 nodes", first), first
    user.pai("stop-job", job)


def test_job_without_events_says_so(user) -> None:
    job = user.pai("sub", "--no-sources", "--wait", "true").out.strip()
    done = user.pai("job-status", job, "events")
    assert (done.status, done.out) == (0, "") and f"{job} has no events" in done.err
    assert json.loads(user.pai("job-status", job, "events", "-o", "json").out) == []


def test_long_command_is_complete_in_a_pipe_and_wrapped_on_a_terminal(user) -> None:
    command = "true " + " ".join(f"--option-{i}=value-{i}" for i in range(60))
    job = done_job(user, "long_$", command)
    assert fields(user.pai("job-status", job).out)["command"] == command
    for columns in (80, 160):
        lines = run_on_terminal(user, "job-status", job, columns=columns).lines
        first = next(i for i, line in enumerate(lines) if line.startswith("  command "))
        assert all(len(line) <= columns for line in lines[first : first + 6]), lines
        assert "more lines; the query config shows all" in lines[first + 5], lines


def test_several_roles_are_a_table_and_files_are_shown_by_task(user) -> None:
    user.write(job__yaml=ROLES)
    job = user.pai("submit", "--wait", "job.yaml").out.strip()
    out = user.pai("job-status", job).out
    assert re.search(r"^server +1 +1 +64 MB +0  none   echo serve$", out, re.M), out
    assert re.search(r"^worker +2 +1 +2 GB +0  none   echo one && echo two$", out, re.M), out
    files = re.findall(r"^  files      (\S+) +(\S+)$", out, re.M)
    assert [task for task, _ in files] == ["server[0]", "worker[0]", "worker[1]"], out
    assert all(Path(folder.replace("~", str(user.home))).is_dir() for _, folder in files), files


def test_many_tasks_are_summarised_on_a_terminal(user) -> None:
    command = "exit $((PAI_TASK_INDEX == 24))"
    job = user.pai(
        "sub", "--no-sources", "--mem", "16m", "--array", "25", "--wait", "-j", "many_$", command
    ).out.strip()
    lines = run_on_terminal(user, "job-status", job, columns=80, lines=50).lines
    assert "25 tasks: 1 FAILED, 24 SUCCEEDED" in lines, lines
    tasks = [line.split()[0] for line in lines if line.startswith("main[")]
    assert len(tasks) == 20 and tasks[:2] == ["main[24]", "main[0]"], "failed tasks come first"
    assert f"and 5 more: pai job-status {job} tasks" in lines, lines
    piped = user.pai("job-status", job).out
    assert len(re.findall(r"^main\[", piped, re.M)) == 25, "complete in a pipe"


PROGRAM = """\
import sys
rate, seed = float(sys.argv[1]), int(sys.argv[2])
if rate > 1:
    raise ValueError(f"rate {rate} diverged at step {seed}")
if seed == 3:
    sys.exit("no data for this seed")
"""


def test_causes_of_failed_tasks_are_grouped(user) -> None:
    user.write(t__py=PROGRAM)
    arrays = ("--array", "lr=5,0.1", "--array", "seed=1-3")
    command = ("python", "t.py", "{lr}", "{seed}")
    done = user.pai("sub", "--mem", "32m", "-j", "why_$", "--wait", *arrays, "--", *command)
    job = done.out.strip()
    lines = user.pai("job-status", job).out.splitlines()
    at = lines.index(
        "3 tasks exited with 1 (lr=5; main[0], main[1] and main[2]): "
        "The program raised ValueError: rate 5.0 diverged at step 1."
    )
    assert lines[at + 1 : at + 4] == [
        f"  pai logs {job} --task main:0",
        "1 task exited with 1 (lr=0.1 seed=3; main[5]): no data for this seed",
        f"  pai logs {job} --task main:5",
    ]
    assert user.pai("logs", job, "--task", "main:5").out == "no data for this seed\n"
    head, *rows = user.pai("job-status", job, "tasks").out.splitlines()
    assert head.split()[6:] == ["lr", "seed", "CAUSE", "FILES"]
    assert "Exit code 1: no data for this seed" in rows[5] and " - " in rows[4]
    raw = json.loads(user.pai("job-status", job, "tasks", "-o", "json").out)
    assert [task.get("cause", "")[-6:] for task in raw] == ["tep 1.", "tep 2.", "tep 3.", "", "", "s seed"]
    narrow = run_on_terminal(user, "job-status", job, "tasks", columns=90, lines=50).lines
    assert any("The program raised Value" in line for line in narrow), narrow


def test_tasks_query_lists_all_tasks_with_their_files(user) -> None:
    job = user.pai("sub", "--no-sources", "--mem", "16m", "--array", "3", "--wait", "true").out.strip()
    head, *rows = user.pai("job-status", job, "tasks").out.splitlines()
    assert head.split() == ["TASK", "STATE", "EXIT", "DURATION", "ADDRESS", "PORTS", "FILES"]
    assert [row.split()[0] for row in rows] == ["main[0]", "main[1]", "main[2]"]
    assert all(Path(row.split()[-1].replace("~", str(user.home))).is_dir() for row in rows), rows
    raw = json.loads(user.pai("job-status", job, "tasks", "-o", "json").out)
    assert [(task["taskRole"], task["taskIndex"]) for task in raw] == [("main", i) for i in range(3)]


def test_tasks_query_of_a_waiting_job_says_that_there_are_none(user) -> None:
    job = user.pai("sub", "--no-sources", "--cpu", "100000", "true").out.strip()
    done = user.pai("job-status", job, "tasks")
    assert done.status == 0 and done.out == "" and f"{job} is WAITING and has no tasks yet." in done.err, done
    user.pai("stop-job", job)


def test_times_are_also_relative_on_a_terminal(user) -> None:
    job = done_job(user, "timed_$")
    on_terminal = run_on_terminal(user, "job-status", job).text
    assert re.search(r"submitted  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  \(\d+s ago\)", on_terminal), on_terminal
    assert " ago)" not in user.pai("job-status", job).out
