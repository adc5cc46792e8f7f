"""Finding jobs again, stopping many, copying one, deleting what is over."""

import json
import os
import pty
import subprocess

import pytest
import yaml
from at_a_terminal import until


def done_job(person, name: str, *words: str) -> str:
    done = person.pai("sub", "--no-sources", "--mem", "32m", "--wait", "-j", name, *(words or ["true"]))
    assert done.out.strip(), done
    return done.out.strip()


def names(person, *words: str) -> list[str]:
    done = person.pai("list-jobs", "-o", "json", *words)
    assert done.status == 0, done
    return [job["name"] for job in json.loads(done.out)]


@pytest.fixture
def sleepers(person):
    made = [
        person.pai("sub", "--no-sources", "--mem", "16m", "-j", f"nap{i}_$", "sleep 60").out.strip()
        for i in (1, 2)
    ]
    yield made
    person.pai("stop-jobs", *made)


def test_jobs_are_found_by_name_time_and_virtual_cluster(person) -> None:
    one = done_job(person, "findme_$")
    assert names(person, "--keyword", one) == [one]
    assert one in names(person, "--since", "1h", "--vc", "default", "--user", "__all__")
    assert one in names(person, "--since", "2020-01-01", "--all")
    assert names(person, "--since", "2999-01-01") == []
    assert names(person, "--vc", "nowhere") == []
    assert person.pai("list-jobs", "--since", "yesterday").status == 2


def test_a_job_in_the_list_of_jobs_is_shown_in_full(person) -> None:
    one = done_job(person, "full_$")
    assert person.pai("list-jobs", one).out == person.pai("job-status", one).out
    raw = json.loads(person.pai("list-jobs", one, "-a", "local", "-o", "json").out)
    assert raw["name"] == one and raw["jobStatus"]["state"] == "SUCCEEDED"


def test_a_list_goes_on_where_it_stopped(person) -> None:
    done_job(person, "page_$"), done_job(person, "page_$")
    first, second = names(person, "--limit", "1"), names(person, "--limit", "1", "--offset", "1")
    assert len(first) == len(second) == 1 and first != second
    assert names(person, "--limit", "2") == first + second
    assert "--offset 1 goes on" in person.pai("list-jobs", "--limit", "1").err


def test_a_pattern_stops_several(person, sleepers) -> None:
    done = person.pai("stop-jobs", "nap*_*")
    assert done.status == 0 and sorted(done.out.split()[1::2]) == sorted(sleepers), done
    for name in sleepers:
        until(lambda name=name: person.state(name) == "STOPPED")
    done = person.pai("stop-job", "nap*_*")
    assert done.status == 2 and "No job matches" in done.err, done


def test_all_jobs_are_stopped_only_after_a_yes(person, sleepers) -> None:
    done = person.pai("stop-job", "--all")
    assert done.status == 2 and "--yes" in done.err and person.state(sleepers[0]) != "STOPPED", done
    assert at_a_terminal(person, "n\n", "stop-job", "--all") == 1
    assert at_a_terminal(person, "y\n", "stop-job", "--all") == 0
    for name in sleepers:
        until(lambda name=name: person.state(name) == "STOPPED")
    done = person.pai("stop-job", "--all", "-y")
    assert done.status == 0 and "No job is left" in done.err, done
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


def test_a_job_that_is_over_can_be_deleted(person) -> None:
    one = done_job(person, "gone_$")
    done = person.pai("delete-job", one)
    assert done.status == 0 and done.out == f"Deleted {one}\n", done
    assert person.pai("job-status", one).status == 1
    two = [done_job(person, "goner1_$"), done_job(person, "goner2_$")]
    assert person.pai("delete-job", "goner*").status == 2
    done = person.pai("delete-job", "-y", "goner*", "-o", "json")
    assert sorted(json.loads(done.out)["deleted"]) == sorted(two), done


def test_a_job_that_runs_is_not_deleted(person, sleepers) -> None:
    done = person.pai("delete-job", sleepers[0])
    assert done.status == 1 and "not over" in done.err, done


def test_a_job_is_handed_in_again_changed(person) -> None:
    person.write(data="content")
    one = person.pai("sub", "--mem", "32m", "--wait", "-j", "copyme_$", "cat data").out.strip()
    (person.project / "data").unlink()
    done = person.pai("clone-job", one, "-f")
    assert (done.status, done.out) == (0, "content"), done
    done = person.pai(
        "resubmit", one, "-j", "other_$", "-u", "taskRoles:main:commands:0=wc -c < data", "--follow"
    )
    assert (done.status, done.out.strip()) == (0, "7") and "Job other_" in done.err, done
    job = yaml.safe_load(person.pai("clone-job", one, "--preview", "--vc", "default").out)
    assert job["name"].startswith("copyme_") and job["name"] != one
    assert job["defaults"]["virtualCluster"] == "default"


def test_a_copy_keeps_its_results_in_a_folder_of_its_own(person) -> None:
    one = done_job(person, "kept_$", "-w", "/tmp/space", "echo 1 > $PAI_OUTPUT_DIR/r")
    job = yaml.safe_load(person.pai("clone-job", one, "-j", "next", "--preview").out)
    assert job["parameters"] == {"work_directory": "/tmp/space/jobs/next"}


def test_a_copy_needs_its_secrets_again(person) -> None:
    one = done_job(person, "hidden_$", "--secret", "KEY=hush", "--env", "A=1", "test $KEY = hush")
    done = person.pai("clone-job", one)
    assert done.status == 2 and "--secret KEY=..." in done.err, done
    done = person.pai("clone-job", one, "--secret", "KEY=hush", "--wait")
    assert done.status == 0, done
    done = person.pai("clone-job", one, "--secret", "KEY", "--wait", env={"KEY": "wrong"})
    assert done.status == 3, done


DEPLOYED = """\
protocolVersion: 2
name: deployed_$
type: job
prerequisites: [{name: img, type: dockerimage, uri: host}]
taskRoles:
  main:
    dockerImage: img
    resourcePerInstance: {cpu: 1, memoryMB: 32, gpu: 0}
    commands: [echo $WHERE]
deployments:
- {name: test, taskRoles: {main: {preCommands: [export WHERE=test]}}}
- {name: prod, taskRoles: {main: {preCommands: [export WHERE=prod]}}}
defaults: {deployment: test}
"""


def test_a_copy_may_use_another_deployment(person) -> None:
    person.write(job__yaml=DEPLOYED)
    one = person.pai("submit", "--wait", "job.yaml").out.strip()
    assert person.pai("clone-job", one, "-f", "--deployment", "prod").out == "prod\n"
    done = person.pai("clone-job", one, "--deployment", "none")
    assert done.status == 2 and "it has test, prod" in done.err, done


def test_jobs_are_found_by_their_tags(person) -> None:
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


def test_a_job_without_ssh_says_so(person) -> None:
    one = done_job(person, "nossh_$")
    done = person.pai("job-status", one, "ssh")
    assert done.status == 1 and "SSH info" in done.err, done


def test_a_job_that_never_started_shows_no_start(person) -> None:
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
