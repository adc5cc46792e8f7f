"""`pai list-jobs`, `pai job-status` and tags: finding jobs again."""

import json
import re
import subprocess

from support.cli_user import done_job


def names(person, *words: str) -> list[str]:
    done = person.pai("list-jobs", "-o", "json", *words)
    assert done.status == 0, done
    return [job["name"] for job in json.loads(done.out)]


def test_filters_by_name_time_and_virtual_cluster(person) -> None:
    one = done_job(person, "findme_$")
    assert names(person, "--keyword", one) == [one]
    assert one in names(person, "--since", "1h", "--vc", "default", "--user", "__all__")
    assert one in names(person, "--since", "2020-01-01", "--all")
    assert names(person, "--since", "2999-01-01") == []
    assert names(person, "--vc", "nowhere") == []
    assert person.pai("list-jobs", "--since", "yesterday").status == 2


def test_list_jobs_with_a_name_shows_job_status(person) -> None:
    one = done_job(person, "full_$")
    assert person.pai("list-jobs", one).out == person.pai("job-status", one).out
    raw = json.loads(person.pai("list-jobs", one, "-a", "local", "-o", "json").out)
    assert raw["name"] == one and raw["jobStatus"]["state"] == "SUCCEEDED"


def test_list_jobs_pages(person) -> None:
    done_job(person, "page_$"), done_job(person, "page_$")
    first, second = names(person, "--limit", "1"), names(person, "--limit", "1", "--offset", "1")
    assert len(first) == len(second) == 1 and first != second
    assert names(person, "--limit", "2") == first + second
    assert "--offset 1 lists the next page" in person.pai("list-jobs", "--limit", "1").err


def test_filter_by_tag(person) -> None:
    one = done_job(person, "tagged_$")
    done = person.pai("tag-job", one, "good", "first try")
    assert done.status == 0 and sorted(done.out.splitlines()) == ["first try", "good"], done
    assert (
        names(person, "--tag", "good") == [one]
        and "tags       first try, good" in person.pai("job-status", one).out
    )
    assert person.pai("tag-job", one, "--remove", "good").out == "first try\n"
    assert names(person, "--tag", "good") == []
    done = person.pai("tag-job", one, "a,b")
    assert done.status == 2 and "cannot be a tag" in done.err, done


def test_job_without_ssh_is_reported(person) -> None:
    one = done_job(person, "nossh_$")
    done = person.pai("job-status", one, "ssh")
    assert done.status == 1 and "SSH info" in done.err, done


def test_job_stopped_before_start_has_no_start_time(person) -> None:
    failed = done_job(person, "breaks_$", "exit 3")
    never = person.pai("sub", "--no-sources", "--wait", "-j", "never_$", "--after", failed, "true")
    name = never.out.strip()
    assert never.status == 3 and f"{name} FAILED before it started: exit code -1100" in never.err, never
    stopped = person.pai("sub", "--no-sources", "--cpu", "100000", "true").out.strip()
    person.pai("stop-job", stopped)
    waited = person.pai("wait", stopped)
    assert f"{stopped} STOPPED before it started: stopped on request" in waited.err, waited
    rows = {row.split()[0]: row.split() for row in person.pai("list-jobs").out.splitlines()}
    heads = person.pai("list-jobs").out.splitlines()[0].split()
    # The day and the hour of its submission are two words.
    duration = heads.index("DURATION") + 1
    for one in (name, stopped):
        assert rows[one][duration] == "-", rows[one]
        shown = dict(line.split(maxsplit=1) for line in person.pai("job-status", one).out.splitlines()[1:7])
        assert (shown["started"], shown["duration"]) == ("-", "-")
        assert shown["ended"] != "-"
    assert rows[failed][duration].endswith("s")
    shown = dict(line.split(maxsplit=1) for line in person.pai("job-status", failed).out.splitlines()[1:7])
    assert "-" not in (shown["started"], shown["duration"])


def test_list_jobs_filters(person) -> None:
    good, bad = (person.pai("sub", "--wait", "-o", "json", line).out for line in ("true", "false"))
    good, bad = json.loads(good)["jobName"], json.loads(bad)["jobName"]
    failed = person.pai("list-jobs", "--state", "failed", "--state", "stopped").out
    assert bad in failed and good not in failed
    assert good in person.pai("list-jobs", "--keyword", good).out
    done = person.pai("list-jobs", "--limit", "1")
    assert len(done.out.splitlines()) == 2 and "--limit" in done.err


def test_job_status_shows_tasks_and_files(person) -> None:
    job = json.loads(person.pai("sub", "--wait", "-o", "json", "echo kept > result.txt").out)["jobName"]
    out = person.pai("job-status", job).out
    assert "main[0]" in out and "SUCCEEDED" in out
    folder = re.search(r"files +(\S+)", out)[1].replace("~", str(person.home))
    assert subprocess.run(["cat", f"{folder}/result.txt"], capture_output=True, text=True).stdout == "kept\n"
