"""`pai resubmit --failed`: the tasks of an array that did not succeed run again, as they were."""

import json
import re

import pytest
import yaml

from support.server_fixture import eventually


def sub(user, *words: str):
    return user.pai("sub", "--mem", "32m", *words)


def resubmit(user, *words: str):
    return user.pai("resubmit", "--failed", *words)


def config_of(user, job: str) -> dict:
    return yaml.safe_load(user.pai("job-status", job, "config").out)


def logs(user, job: str, count: int) -> list[str]:
    return [user.pai("logs", "--index", str(index), job).out for index in range(count)]


# A task fails until its folder of flags has a file of its index.
LINE = 'echo "$PAI_TASK_INDEX {values}"; test -e {flags}/$PAI_TASK_INDEX'


def line(user, values: str = "") -> str:
    (user.project / "flags").mkdir(exist_ok=True)
    return LINE.replace("{values}", values).replace("{flags}", str(user.project / "flags"))


def let_succeed(user, *indexes: int) -> None:
    for index in indexes:
        (user.project / "flags" / str(index)).touch()


def test_failed_tasks_of_combinations_run_again_with_their_values(user) -> None:
    command = line(user, "$lr {seed}")
    let_succeed(user, 0, 1, 3)
    words = ["--array", "lr=0.1,it's", "--array", "seed=7-9%2", "--env", "A=1"]
    first = sub(user, "-j", "grid_$", *words, "--wait", command)
    job = first.out.strip()
    done = resubmit(user, job, "--mem", "48m", "--wait")
    again = done.out.strip()
    assert done.status == 3 and f"3 of the 6 tasks of {job} run again." in done.err, done
    assert logs(user, again, 3) == ["2 0.1 9\n", "4 it's 8\n", "5 it's 9\n"]
    config = config_of(user, again)
    assert config["taskRoles"]["main"]["instances"] == 3 and again != job and again.startswith("grid_")
    assert config["taskRoles"]["main"]["resourcePerInstance"]["memoryMB"] == 48
    ours = config["extras"]["openpaisdk"]
    assert ours["arrayRows"] == {
        "PAI_TASK_INDEX": ["2", "4", "5"],
        "lr": ["0.1", "it's", "it's"],
        "seed": ["9", "8", "9"],
    }
    assert "array" not in ours and ours["arrayLimit"] == 2
    lines = config["deployments"][0]["taskRoles"]["main"]["preCommands"]
    assert len(lines) == 2 and lines[0] == "export A=1" and "case $PAI_TASK_INDEX in" in lines[1], lines
    status = user.pai("job-status", again).out
    assert re.search(r"TASK .* PAI_TASK_INDEX +lr +seed\n", status), status
    assert re.search(r"main\[1\] .* 4 +it's +8\n", status), status
    runs = user.pai("runs", again).out.splitlines()
    assert runs[0].split()[:4] == ["JOB", "TASK", "lr", "seed"], runs
    # What fails again is repeated with the first indexes.
    let_succeed(user, 4, 5)
    third = resubmit(user, again, "--wait").out.strip()
    assert logs(user, third, 1) == ["2 0.1 9\n"]
    let_succeed(user, 2)
    done = resubmit(user, third, "--wait", "-o", "json")
    assert done.status == 0 and json.loads(done.out)["state"] == "SUCCEEDED", done
    tasks = json.loads(user.pai("job-status", json.loads(done.out)["jobName"], "tasks", "-o", "json").out)
    assert [task["arrayValues"] for task in tasks] == [{"PAI_TASK_INDEX": "2", "lr": "0.1", "seed": "9"}]


def test_failed_tasks_of_rows_and_of_numbers_run_again_with_their_index(user) -> None:
    user.write(params__csv="lr,seed\n0.1,3\n0.2,4\n0.3,5\n")
    rows = sub(user, "--array-file", "params.csv", "--wait", line(user, "$lr {seed}")).out.strip()
    plain = sub(user, "--array", "3", "--wait", line(user)).out.strip()
    let_succeed(user, 0, 1)
    # All have failed; the second try of each job is for those whose flag is missing.
    rows_again = resubmit(user, rows, "--wait").out.strip()
    plain_again = resubmit(user, plain, "--wait").out.strip()
    assert logs(user, rows_again, 3) == ["0 0.1 3\n", "1 0.2 4\n", "2 0.3 5\n"]
    last = resubmit(user, rows_again, "--wait")
    assert logs(user, last.out.strip(), 1) == ["2 0.3 5\n"]
    last = resubmit(user, plain_again, "--preview")
    assert "2) " not in last.out and "0) export PAI_TASK_INDEX=2 ;;" in last.out, last
    last = resubmit(user, plain_again, "--wait")
    assert logs(user, last.out.strip(), 1) == ["2 \n"]


def test_values_that_were_changed_in_the_job_are_those_of_the_copy(user) -> None:
    """Commands that are not as `pai sub` made them compute the values from the first index."""
    words = ["--array", "n=1-3", "-j", "edited_$", "--preview", line(user, "$n")]
    job = sub(user, "--no-sources", *words).out.replace("export n=3", "export n=three")
    user.write(job__yaml=job)
    let_succeed(user, 0)
    first = user.pai("submit", "--wait", "job.yaml")
    assert first.status == 3, first
    again = resubmit(user, first.out.strip(), "--wait").out.strip()
    assert logs(user, again, 2) == ["1 2\n", "2 three\n"]


def test_nothing_failed_is_said_with_status_0(user) -> None:
    job = sub(user, "--no-sources", "--array", "2", "--wait", "true").out.strip()
    done = resubmit(user, job)
    assert (done.status, done.out) == (0, "") and f"all 2 tasks of {job} succeeded" in done.err, done
    done = resubmit(user, job, "-o", "json")
    assert done.status == 0 and json.loads(done.out)["jobName"] is None, done


def test_running_array_is_refused_unless_now(user) -> None:
    go = user.project / "go"
    waits = (
        f'test $PAI_TASK_INDEX != 1 || exit 1; until [ -e {go} ]; do sleep 0.05; done; echo "$PAI_TASK_INDEX"'
    )
    job = sub(user, "--no-sources", "-j", "runs_$", "--array", "3", waits).out.strip()

    def states() -> list[str]:
        tasks = json.loads(user.pai("job-status", job, "tasks", "-o", "json").out)
        return [task["taskState"] for task in tasks]

    eventually(lambda: states() == ["RUNNING", "FAILED", "RUNNING"], "the failure of one task")
    done = resubmit(user, job)
    assert done.status == 2 and f"{job} is RUNNING: more of its tasks may fail" in done.err, done
    done = resubmit(user, job, "--now", "--preview")
    assert yaml.safe_load(done.out)["extras"]["openpaisdk"]["arrayRows"] == {"PAI_TASK_INDEX": ["1"]}, done
    user.pai("stop-job", job)
    user.pai("wait", job)
    done = resubmit(user, job, "--preview")
    rows = yaml.safe_load(done.out)["extras"]["openpaisdk"]["arrayRows"]
    assert rows == {"PAI_TASK_INDEX": ["0", "1", "2"]}, "what was stopped did not succeed"
    go.touch()


def test_job_that_never_started_runs_whole(user) -> None:
    first = sub(user, "--no-sources", "sleep 600").out.strip()
    job = sub(user, "--no-sources", "--after", first, "--array", "n=1,2", "true").out.strip()
    user.pai("stop-job", job)
    user.pai("wait", job)
    done = resubmit(user, job, "--preview")
    assert yaml.safe_load(done.out)["extras"]["openpaisdk"]["arrayRows"]["n"] == ["1", "2"], done
    user.pai("stop-job", first)


def test_files_that_are_gone_are_said_before_anything_is_submitted(user) -> None:
    user.write(data="content")
    job = sub(user, "-j", "files_$", "--array", "2", "--wait", "cat data; exit $PAI_TASK_INDEX").out.strip()
    for archive in (user.home / ".openpai").rglob("sources/*"):
        if archive.is_file():
            archive.unlink()
    before = user.pai("list-jobs").out
    done = resubmit(user, job)
    assert done.status == 1 and f"The files that {job} ran with are no longer on the cluster" in done.err, (
        done
    )
    assert "--sources ." in done.err and user.pai("list-jobs").out == before
    done = resubmit(user, job, "--sources", ".", "--wait")
    assert done.status == 3 and logs(user, done.out.strip(), 1) == ["content"], done


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sub", "--instances", "2", "exit 1"], "is no array: its tasks start together"),
        (["sub", "exit 1"], "is no array"),
    ],
)
def test_other_jobs_are_refused(user, words: list[str], says: str) -> None:
    job = user.pai(words[0], "--no-sources", "--mem", "32m", "--wait", *words[1:]).out.strip()
    done = resubmit(user, job)
    assert done.status == 2 and says in done.err, done


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--instances", "3"], "leave --instances and --role out"),
        (["--role", "main", "--cpu", "1"], "leave --instances and --role out"),
        (["--array", "n=1,2"], "cannot be made an array"),
        (["--array-file", "x.csv"], "cannot be made an array"),
        (["--sample", "3"], "cannot be made an array"),
    ],
)
def test_options_that_contradict_failed_are_refused(user, words: list[str], says: str) -> None:
    job = sub(user, "--no-sources", "-j", "one_$", "--array", "2", "--wait", "exit 1").out.strip()
    done = resubmit(user, job, *words)
    assert done.status == 2 and says in done.err, done


def test_now_without_failed_is_refused(user) -> None:
    done = user.pai("resubmit", "--now", "x")
    assert done.status == 2 and "--now belongs to --failed" in done.err, done
