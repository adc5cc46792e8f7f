"""`Job.sweep` and `resubmit_failed`: arrays over values from Python."""

from pathlib import Path

import pytest

import openpaisdk
from openpaisdk.binding.cluster import SubmittedJob
from openpaisdk.binding.job import Job
from paiprotocol.errors import NotFound, UsageError

ROWS = [{"lr": 0.1, "name": "a b"}, {"lr": 0.2, "name": "it's"}]


def additions_of(job: Job) -> dict:
    return job.get_config()["extras"]["openpaisdk"]


def test_sweep_of_rows_runs_a_task_for_each(here) -> None:
    job = Job("rows_$").sweep("echo {lr} {name}", ROWS, limit=1, mem="32m", sources=[])
    assert additions_of(job)["arrayLimit"] == 1
    assert job.submit().wait() == "SUCCEEDED"
    assert [job.logs(index=index) for index in range(2)] == ["0.1 a b\n", "0.2 it's\n"]


def test_values_of_a_sweep(here) -> None:
    job = Job("grid").sweep("true", {"lr": [0.1, 0.2], "n": "1-3"}, sources=[])
    assert additions_of(job)["array"] == {"lr": ["0.1", "0.2"], "n": ["1", "2", "3"]}
    assert Job("text").sweep("true", "lr=1,2%1", sources=[]).extra("openpaisdk")["arrayLimit"] == 1
    Path("p.csv").write_text("lr,seed\n0.10,1\n0.2,2\n")
    for file in ("p.csv", Path("p.csv"), "p.csv%1"):
        job = Job("file").sweep("true", file, sources=[])
        assert additions_of(job)["arrayRows"] == {"lr": ["0.10", "0.2"], "seed": ["1", "2"]}
    drawn = Job("drawn").sweep("true", {"n": "1..9", "opt": ["a", "b"]}, sample=4, sample_seed=3, sources=[])
    rows = additions_of(drawn)["arrayRows"]
    assert [len(values) for values in rows.values()] == [4, 4]
    other = Job("one_liner").one_liner(
        "true", array={"n": "1..9", "opt": ["a", "b"]}, sample="4", sample_seed=3, sources=[]
    )
    assert additions_of(other)["arrayRows"] == rows
    with_file = Job("of_file").one_liner("true", array_file=Path("p.csv"), sources=[])
    assert additions_of(with_file)["arrayRows"]["seed"] == ["1", "2"]
    assert additions_of(Job("list").one_liner("true", array=ROWS, sources=[]))["arrayRows"]["lr"] == [
        "0.1",
        "0.2",
    ]


@pytest.mark.parametrize(
    ("values", "options", "says"),
    [
        ("none.csv", {}, "cannot be read"),
        ([], {}, "use a number of tasks, or values by name"),
        ({"n": [1]}, {"limit": -1}, "limit is -1"),
        ({"n": [1]}, {"array": 3}, "given once"),
        ({"n": [1]}, {"sample_seed": 3}, "there is no --sample"),
        ("none.csv", {"sample": 3}, "contradict each other"),
        ({"n": [1]}, {"instances": 2}, "contradict each other"),
    ],
)
def test_wrong_sweep_is_refused(here, values: object, options: dict, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Job("wrong").sweep("true", values, sources=[], **options)


def test_calls_of_functions_are_refused(here) -> None:

    def fail(number: int) -> None:
        raise ValueError(number)

    futures = openpaisdk.map(fail, [1, 2])
    assert all(isinstance(future.exception(), Exception) for future in futures)
    job = SubmittedJob({"name": futures[0].job}).select_cluster()
    with pytest.raises(UsageError, match="call a Python function"):
        job.resubmit_failed()


def test_failed_tasks_from_python(here) -> None:
    job = Job("python_$").one_liner(
        'echo "$PAI_TASK_INDEX {n}"; test {n} = 2', mem="32m", array={"n": [1, 2, 3]}, sources=[]
    )
    job.submit().wait()
    again = job.resubmit_failed(mem="48m")
    assert again is not None and again.wait() == "SUCCEEDED"
    assert [again.logs(index=index) for index in range(2)] == ["0 1\n", "2 3\n"]
    assert again.get_config()["taskRoles"]["main"]["resourcePerInstance"]["memoryMB"] == 48
    good = Job("good_$").one_liner("true", mem="32m", array=2, sources=[]).submit()
    good.wait()
    assert good.resubmit_failed() is None
    with pytest.raises(UsageError, match="leave instances and role out"):
        job.resubmit_failed(instances=3)


def test_files_that_are_gone_in_python(here) -> None:
    Path("data").write_text("content of this test")
    job = Job("gone_$").one_liner("exit 1", mem="32m", array=2).submit()
    job.wait()
    archives = [path for path in (Path.home() / ".openpai").rglob("sources/*") if path.is_file()]
    assert archives
    for archive in archives:
        archive.unlink()
    with pytest.raises(NotFound, match="no longer on the cluster"):
        job.resubmit_failed()
    again = job.resubmit_failed(sources=["data"])
    assert again is not None and again.wait() == "SUCCEEDED"
