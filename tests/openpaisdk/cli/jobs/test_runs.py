"""`pai runs`, and the same in Python: parameters and metrics of a sweep and of many jobs."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from support.cli_user import CliUser, CommandResult, until

# The task with the lowest rate logs no accuracy; the one with the highest diverges, and fails.
PROGRAM = """\
import sys
from openpaisdk.runtime import log_metrics
rate = float(sys.argv[1])
for step in range(3):
    log_metrics(step, {"loss": float("nan") if rate > 0.5 and step else abs(rate - 0.1) + 1 / (step + 1)})
    if rate > 0.01:
        log_metrics(step, {"val/acc": rate * step})
if rate > 0.5:
    sys.exit("diverged at 17")
"""


class Studier:
    def __init__(self, person: CliUser, folder: Path):
        self.person = person
        self.folder = folder

    def pai(self, *words: str, **variables: str) -> CommandResult:
        return self.person.pai(*words, cwd=self.folder, env={"COLUMNS": "200", **variables})

    def python(self, program: str) -> CommandResult:
        return self.person.run([sys.executable, "-c", program], cwd=self.folder)


@pytest.fixture(scope="module")
def user(shared_user: CliUser, tmp_path_factory: pytest.TempPathFactory) -> Studier:
    studier = Studier(shared_user, tmp_path_factory.mktemp("runs"))
    (studier.folder / "train.py").write_text(PROGRAM)
    sweep = ("sub", "-j", "runs_sweep", "--array", "lr=1,0.01,0.1", "--mem", "64m", "--tag", "runs-study")
    assert studier.pai(*sweep, "--", "python", "train.py", "{lr}").status == 0
    single = ("sub", "-j", "runs_single", "--mem", "64m", "--tag", "runs-study")
    assert studier.pai(*single, "--", "python", "train.py", "0.2").status == 0
    for name in ("runs_sweep", "runs_single"):
        assert studier.pai("wait", name).status in (0, 3, 1)
    return studier


def tasks(result: CommandResult) -> list[str]:
    assert result.status == 0, result
    return [line.split()[0] for line in result.out.splitlines()[1:]]


def test_a_sweep_is_a_table(user: Studier) -> None:
    shown = user.pai("runs", "runs_sweep")
    assert shown.status == 0, shown
    header, *lines = [line.split() for line in shown.out.splitlines()]
    assert header == [
        *("JOB", "TASK", "lr", "STATE", "DURATION", "loss", "loss.min", "loss.max"),
        *("val/acc", "val/acc.min", "val/acc.max", "CAUSE"),
    ]
    cells = [[*line[:4], *line[5:]] for line in lines]
    assert cells == [
        [
            *("runs_sweep", "main[0]", "1", "FAILED", "nan", "1.9", "1.9", "2", "0", "2"),
            *("Exit", "code", "1:", "diverged", "at", "17"),
        ],
        ["runs_sweep", "main[1]", "0.01", "SUCCEEDED", "0.423333", "0.423333", "1.09", "-", "-", "-", "-"],
        ["runs_sweep", "main[2]", "0.1", "SUCCEEDED", "0.333333", "0.333333", "1", "0.2", "0", "0.2", "-"],
    ]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("loss", ["0.1", "0.01", "1"]),  # NaN is last
        ("loss:desc", ["0.01", "0.1", "1"]),
        ("loss.max", ["0.1", "0.01", "1"]),
        ("val/acc", ["0.1", "1", "0.01"]),  # missing is last
        ("lr:desc", ["1", "0.1", "0.01"]),
        ("index:desc", ["0.1", "0.01", "1"]),
    ],
)
def test_sort(user: Studier, order: str, expected: list[str]) -> None:
    shown = json.loads(user.pai("runs", "runs_sweep", "-o", "json", "--sort", order).out)
    assert [run["parameters"]["lr"] for run in shown] == expected


def test_best_and_filter(user: Studier) -> None:
    def rates(*options: str) -> list[str]:
        return [
            run["parameters"]["lr"]
            for run in json.loads(user.pai("runs", "runs_sweep", "-o", "json", *options).out)
        ]

    assert rates("--best", "loss") == ["0.1"]
    assert rates("--best", "val/acc:max") == ["1"]
    assert rates("--filter", "lr<0.5") == ["0.01", "0.1"]
    assert rates("--filter", "state=failed or loss<0.4", "--filter", "not lr=1") == ["0.1"]
    assert rates("--filter", "loss=nan") == ["1"]
    assert rates("--filter", "exit=0 and duration>=0", "--best", "loss:max") == ["0.01"]
    none = user.pai("runs", "runs_sweep", "--filter", "lr>5")
    assert (none.status, none.out) == (0, "")
    assert "None of 3 runs fits." in none.err


def test_only_some_metrics(user: Studier) -> None:
    header = user.pai("runs", "runs_sweep", "--metric", "val/acc").out.splitlines()[0].split()
    assert header[5:] == ["val/acc", "val/acc.min", "val/acc.max", "CAUSE"]
    nothing = user.pai("runs", "runs_sweep", "--metric", "other")
    assert nothing.status == 0
    assert "No run has logged other; metrics are loss, val/acc." in nothing.err
    near = user.pai("runs", "runs_single", "--metric", "los", "--metric", "loss").err
    assert "No run has logged los; metrics are loss, val/acc. Did you mean loss?" in near
    wrong = user.pai("job-metrics", "runs_single", "vall/acc")
    assert wrong.status == 2, wrong
    assert "runs_single has no metric vall/acc; metrics are loss, val/acc. Did you mean val/acc?" in wrong.err


def test_csv_and_json_are_exact(user: Studier) -> None:
    rows = list(csv.DictReader(io.StringIO(user.pai("runs", "runs_sweep", "-o", "csv").out)))
    assert [row["lr"] for row in rows] == ["1", "0.01", "0.1"]
    assert (rows[1]["loss"], rows[1]["val/acc"]) == (repr(abs(0.01 - 0.1) + 1 / 3), "")
    (first, *_) = json.loads(user.pai("runs", "runs_sweep", "-o", "json").out)
    assert first["metrics"]["loss"] == {
        "count": 3,
        "last": "NaN",
        "lastStep": 2,
        "min": 1.9,
        "minStep": 0,
        "max": 1.9,
        "maxStep": 0,
    }
    assert (first["task"], first["index"], first["exitCode"]) == ("main[0]", 0, 1)
    assert first["cause"] == "Exit code 1: diverged at 17" == rows[0]["cause"]
    assert rows[1]["cause"] == ""
    found = user.pai("runs", "runs_sweep", "--filter", "cause~diverged", "-o", "json")
    assert [run["index"] for run in json.loads(found.out)] == [0]


def test_jobs_with_a_tag(user: Studier) -> None:
    shown = user.pai("runs", "--tag", "runs-study", "--sort", "loss.min")
    assert tasks(shown) == ["runs_sweep", "runs_sweep", "runs_single", "runs_sweep"]
    assert [line.split()[1] for line in shown.out.splitlines()[1:]] == ["main[2]", "main[1]", "-", "main[0]"]
    one = user.pai("runs", "--tag", "runs-study", "--limit", "1")
    assert set(tasks(one)) == {"runs_single"} and "There are more jobs" in one.err
    assert tasks(user.pai("runs", "--keyword", "runs_sin", "--state", "succeeded")) == ["runs_single"]
    assert tasks(user.pai("runs", "runs_single", "runs_sweep")) == ["runs_single", *["runs_sweep"] * 3]


def test_no_jobs(user: Studier) -> None:
    shown = user.pai("runs", "--tag", "runs-none")
    assert (shown.status, shown.out) == (0, "")
    assert "No jobs match." in shown.err and "--filter" not in shown.err
    assert "runs in a state" in user.pai("runs", "--tag", "runs-none", "--state", "failed").err
    assert user.pai("runs", "--tag", "runs-none", "-o", "json").out == "[]\n"
    assert user.pai("runs", "--tag", "runs-none", "-o", "csv", "--sort", "loss").out == ""
    assert user.pai("runs", "--user", "nobody").out == ""


def test_a_running_job_without_metrics(user: Studier) -> None:
    user.pai("sub", "-j", "runs_running", "--no-sources", "--mem", "32m", "sleep 900")
    try:
        until(lambda: user.person.state("runs_running") == "RUNNING")
        shown = user.pai("runs", "runs_running")
        assert shown.out.split()[:5] == ["JOB", "STATE", "DURATION", "runs_running", "RUNNING"]
        assert "No run has logged metrics" in shown.err
        mixed = user.pai("runs", "runs_running", "runs_sweep", "--sort", "loss")
        assert tasks(mixed)[-1] == "runs_running" or tasks(mixed)[-2] == "runs_running"
    finally:
        user.pai("stop-job", "runs_running")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sort", "los"], "sort: there is no 'los'. Did you mean loss?"),
        (["--best", "accuracy"], "best: there is no 'accuracy'."),
        (["--filter", "rate<1"], "filter: there is no 'rate'."),
        (["--filter", "lr<<1"], "a value is expected at character 4"),
        (["--state", "DONE"], "There is no job state 'DONE'."),
        (["--state", "FAILED"], "by --state or by name, not by both"),
        (["--tag", "runs-study"], "by --tag or by name, not by both"),
    ],
)
def test_errors_are_sentences(user: Studier, words: list[str], message: str) -> None:
    done = user.pai("runs", "runs_sweep", *words)
    assert (done.status, done.out) == (2, "")
    assert message in done.err
    if "there is no" in message and "Did" not in message:
        assert "Metrics: loss, val/acc. Parameters: lr." in done.err


def test_a_missing_job_is_named(user: Studier) -> None:
    done = user.pai("runs", "runs_single", "runs_swep")
    assert done.status != 0
    assert "There is no job 'runs_swep'" in done.err and "Did you mean runs_sweep?" in done.err


def test_runs_in_python(user: Studier) -> None:
    program = """
import openpaisdk
cluster = openpaisdk.Cluster("local")
runs = cluster.runs("runs_sweep")
assert (len(runs), runs.metrics, runs.parameters) == (3, ["loss", "val/acc"], ["lr"])
best = runs.best("loss")
assert (best.task, best.parameters, best["lr"]) == ("main[2]", {"lr": "0.1"}, 0.1)
assert best.metrics["loss"].min_step == 2 and best["loss.max"] == 1.0 and best["missing"] is None
fitting = runs.filter("lr<0.5").sort("lr:desc")
assert [run.index for run in fitting] == [2, 1] and [run.index for run in fitting[:1]] == [2]
records = fitting.records()
assert records[1]["val/acc"] is None and records[0]["lr"] == 0.1 and records[0]["state"] == "SUCCEEDED"
frame = runs.to_pandas()
assert list(frame["lr"]) == [1, 0.01, 0.1] and frame["loss"].isna().sum() == 1
assert frame["val/acc.max"].max() == 2
tagged = cluster.runs(tags="runs-study", limit=1, metrics=["loss"])
assert [run.job for run in tagged] == ["runs_single"] and tagged.metrics == ["loss"]
assert "main[2]" in repr(runs) and "<table" in runs._repr_html_()
assert repr(cluster.runs(tags="runs-none")) == "<no runs>"
import asyncio
assert len(asyncio.run(cluster.aio.runs("runs_sweep"))) == 3
job = openpaisdk.Job("runs_sweep")
assert len(job.select_cluster("local").runs()) == 3
"""
    done = user.python(program)
    assert done.status == 0, done
