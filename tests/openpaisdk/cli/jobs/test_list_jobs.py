"""`pai list-jobs`, `pai job-status` and `pai tag-job`."""

import json
import re
import subprocess

from support.cli_user import done_job
from support.terminal import run_on_terminal


def names(user, *words: str) -> list[str]:
    done = user.pai("list-jobs", "-o", "json", *words)
    assert done.status == 0, done
    return [job["name"] for job in json.loads(done.out)]


def test_filters_by_name_time_and_virtual_cluster(user) -> None:
    one = done_job(user, "findme_$")
    assert names(user, "--keyword", one) == [one]
    assert one in names(user, "--since", "1h", "--vc", "default", "--user", "__all__")
    assert one in names(user, "--since", "2020-01-01", "--all")
    assert names(user, "--since", "2999-01-01") == []
    assert names(user, "--vc", "nowhere") == []
    assert user.pai("list-jobs", "--since", "yesterday").status == 2


def test_list_jobs_with_a_name_shows_job_status(user) -> None:
    one = done_job(user, "full_$")
    assert user.pai("list-jobs", one).out == user.pai("job-status", one).out
    raw = json.loads(user.pai("list-jobs", one, "-a", "local", "-o", "json").out)
    assert raw["name"] == one and raw["jobStatus"]["state"] == "SUCCEEDED"


def test_list_jobs_pages(user) -> None:
    done_job(user, "page_$"), done_job(user, "page_$")
    first, second = names(user, "--limit", "1"), names(user, "--limit", "1", "--offset", "1")
    assert len(first) == len(second) == 1 and first != second
    assert names(user, "--limit", "2") == first + second
    assert "--offset 1 lists the next page" in user.pai("list-jobs", "--limit", "1").err


def test_failed_tasks_of_a_job_that_succeeded_are_counted(user) -> None:
    words = ("--array", "3", "--wait", "-j", "partly_$", "exit $((PAI_TASK_INDEX > 0))")
    job = user.pai("sub", "--no-sources", "--mem", "16m", *words).out.strip()
    line = next(line for line in user.pai("list-jobs").out.splitlines() if line.startswith(job))
    assert "SUCCEEDED" in line and "3, 2 failed" in line
    assert user.pai("list-jobs", "--keyword", done_job(user, "whole_$")).out.count("failed") == 0
    (raw,) = json.loads(user.pai("list-jobs", "--keyword", job, "-o", "json").out)
    assert raw["failedTaskNumber"] == 2
    assert "failed" in run_on_terminal(user, "list-jobs", "--keyword", job, columns=80).lines[1]


def test_filter_by_tag(user) -> None:
    one = done_job(user, "tagged_$")
    done = user.pai("tag-job", one, "good", "first try")
    assert done.status == 0 and sorted(done.out.splitlines()) == ["first try", "good"], done
    assert (
        names(user, "--tag", "good") == [one]
        and "tags       first try, good" in user.pai("job-status", one).out
    )
    assert user.pai("tag-job", one, "--remove", "good").out == "first try\n"
    assert names(user, "--tag", "good") == []
    done = user.pai("tag-job", one, "a,b")
    assert done.status == 2 and "cannot be a tag" in done.err, done


def test_job_without_ssh_is_reported(user) -> None:
    one = done_job(user, "nossh_$")
    done = user.pai("job-status", one, "ssh")
    assert done.status == 1 and "SSH info" in done.err, done


def test_job_stopped_before_start_has_no_start_time(user) -> None:
    failed = done_job(user, "breaks_$", "exit 3")
    never = user.pai("sub", "--no-sources", "--wait", "-j", "never_$", "--after", failed, "true")
    name = never.out.strip()
    assert never.status == 3 and f"{name} FAILED before it started: exit code -1100" in never.err, never
    stopped = user.pai("sub", "--no-sources", "--cpu", "100000", "true").out.strip()
    user.pai("stop-job", stopped)
    waited = user.pai("wait", stopped)
    assert f"{stopped} STOPPED before it started: stopped on request" in waited.err, waited
    rows = {row.split()[0]: row.split() for row in user.pai("list-jobs").out.splitlines()}
    heads = user.pai("list-jobs").out.splitlines()[0].split()
    # Date and time of the submission are two columns when split.
    duration = heads.index("DURATION") + 1
    for one in (name, stopped):
        assert rows[one][duration] == "-", rows[one]
        shown = dict(line.split(maxsplit=1) for line in user.pai("job-status", one).out.splitlines()[1:7])
        assert (shown["started"], shown["duration"]) == ("-", "-")
        assert shown["ended"] != "-"
    assert rows[failed][duration].endswith("s")
    shown = dict(line.split(maxsplit=1) for line in user.pai("job-status", failed).out.splitlines()[1:7])
    assert "-" not in (shown["started"], shown["duration"])


def test_list_jobs_filters(user) -> None:
    good, bad = (user.pai("sub", "--wait", "-o", "json", line).out for line in ("true", "false"))
    good, bad = json.loads(good)["jobName"], json.loads(bad)["jobName"]
    failed = user.pai("list-jobs", "--state", "failed", "--state", "stopped").out
    assert bad in failed and good not in failed
    assert good in user.pai("list-jobs", "--keyword", good).out
    done = user.pai("list-jobs", "--limit", "1")
    assert len(done.out.splitlines()) == 2 and "--limit" in done.err


def test_job_status_shows_tasks_and_files(user) -> None:
    job = json.loads(user.pai("sub", "--wait", "-o", "json", "echo kept > result.txt").out)["jobName"]
    out = user.pai("job-status", job).out
    assert "main[0]" in out and "SUCCEEDED" in out
    folder = re.search(r"files +(\S+)", out)[1].replace("~", str(user.home))
    assert subprocess.run(["cat", f"{folder}/result.txt"], capture_output=True, text=True).stdout == "kept\n"
