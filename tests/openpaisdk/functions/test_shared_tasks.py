"""Calls of a map that share tasks: users see items with their own results, errors, logs, limits."""

import concurrent.futures
import os
import sys
import time
from pathlib import Path

import pytest

import openpaisdk
from openpaisdk import Job
from openpaisdk.functions import task_errors
from openpaisdk.functions.shared_tasks import lines_of_call, number_of_tasks, part_of_log

TIMEOUT_S = 180


def test_many_items_share_as_many_tasks_as_run_at_a_time(here) -> None:
    def call(x):
        # Containers number their processes alike.
        return x * x, (os.getppid(), str(Path("/proc/self/ns/pid").readlink()))

    futures = openpaisdk.map(call, range(12), limit=2)
    results = futures.results(TIMEOUT_S)
    assert [square for square, _ in results] == [x * x for x in range(12)]
    # One that starts late may find nothing left to do.
    assert 1 <= len({task for _, task in results}) <= 2
    status = Job(futures.job).select_cluster().get_status()
    assert len(status.tasks) == 2
    assert futures[3].job_id == f"{futures.job}_3" and futures[3].state == "SUCCEEDED"


def test_few_items_have_a_task_each() -> None:
    assert number_of_tasks(calls=31, limit=8) == 31 and number_of_tasks(calls=32, limit=8) == 8
    assert number_of_tasks(calls=1000, limit=0) == 1000


def test_each_item_has_its_own_exception_and_log(here) -> None:
    def work(x: int) -> int:
        print("item", x, end="")
        if x % 3 == 1:
            raise ValueError(f"no {x}")
        if x == 5:
            os.kill(os.getpid(), 9)
        if x == 6:
            os._exit(7)
        return x

    futures = openpaisdk.map(work, range(8), limit=1)
    errors = [future.exception(TIMEOUT_S) for future in futures]
    assert [type(error).__name__ for error in errors] == [
        *("NoneType", "ValueError", "NoneType", "NoneType", "ValueError"),
        *("TaskKilled", "TaskError", "ValueError"),
    ]
    assert str(errors[4]) == "no 4" and "in work" in str(errors[4].__cause__)
    assert errors[5].exit_code == 137 and errors[6].exit_code == 7
    assert futures[3].stdout() == "item 3" and "no 4" in futures[4].stderr()
    job = Job(futures.job).select_cluster()
    assert job.wait(timeout=TIMEOUT_S, progress=False) == "FAILED"


def test_last_lines_of_a_killed_item(here) -> None:
    def work(x: int) -> None:
        print("item", x, flush=True)
        if x == 2:
            os.kill(os.getpid(), 9)

    error = openpaisdk.map(work, range(4), limit=1)[2].exception(TIMEOUT_S)
    assert isinstance(error, task_errors.TaskKilled)
    assert "item 2" in error.log_end and "item 1" not in error.log_end


def test_time_limit_is_that_of_each_item(here) -> None:
    def work(x: int) -> int:
        time.sleep(30 if x == 1 else 0.4)
        return x

    futures = openpaisdk.map(work, range(5), limit=1, timeout=4)
    assert isinstance(futures[1].exception(TIMEOUT_S), task_errors.TaskTimeout)
    assert [futures[i].result(TIMEOUT_S) for i in (0, 2, 3, 4)] == [0, 2, 3, 4]


def test_time_limit_of_an_item_begins_when_it_is_loaded(here) -> None:
    class SlowToLoad:
        def __init__(self, x: int) -> None:
            self.x = x

        def __getstate__(self) -> int:
            return self.x

        def __setstate__(self, x: int) -> None:
            time.sleep(5 if x == 1 else 0)
            self.x = x

    def work(item: SlowToLoad) -> int:
        return item.x

    assert openpaisdk.map(work, map(SlowToLoad, range(1, 5)), limit=1, timeout=4).results(TIMEOUT_S) == [
        1,
        2,
        3,
        4,
    ]


def test_failed_item_is_retried(here_on_host) -> None:
    def work(x: int) -> int:
        path = here_on_host / f"tried-{x}"
        if x == 1 and not path.exists():
            path.touch()
            raise ValueError
        if x == 2 and not path.exists():
            path.touch()
            os.kill(os.getpid(), 9)
        if x == 3:
            raise KeyError(x)
        return x

    futures = openpaisdk.map(work, range(4), limit=1, retries=1)
    assert [futures[i].result(TIMEOUT_S) for i in range(3)] == [0, 1, 2]
    assert isinstance(futures[3].exception(TIMEOUT_S), KeyError)


def test_idle_task_takes_over_the_share_of_a_busy_one(here_on_host) -> None:
    def work(x: int) -> int:
        deadline = time.monotonic() + 150
        while x == 0 and len(list(here_on_host.glob("done-*"))) < 7 and time.monotonic() < deadline:
            time.sleep(0.05)
        (here_on_host / f"done-{x}").touch()
        return x

    started = time.monotonic()
    assert openpaisdk.map(work, range(8), limit=2).results(TIMEOUT_S) == list(range(8))
    assert time.monotonic() - started < 150


def test_each_call_gets_a_fresh_copy_of_the_function(here) -> None:
    class Counter:
        count = 0

        def __call__(self, x: int) -> int:
            self.count += 1
            os.chdir("/")
            return self.count

    assert openpaisdk.map(Counter(), range(4), limit=1).results(TIMEOUT_S) == [1, 1, 1, 1]


def test_futures_of_another_process_and_dependencies(here) -> None:
    futures = openpaisdk.map(lambda x: x + 1, range(8), limit=2)
    total = openpaisdk.submit(sum, futures)
    assert total.result(TIMEOUT_S) == 36
    again = Job(futures.job).select_cluster().futures()
    assert again.results(TIMEOUT_S) == list(range(1, 9))


def test_output_of_an_item_is_followed(here) -> None:
    def work(x: int) -> None:
        print("begin", x, flush=True)
        print()
        print("end", x, flush=True)
        print("error", x, file=sys.stderr)

    futures = openpaisdk.map(work, range(4), limit=1)
    for index in (1, 3):
        # What goes to one stream may overtake what goes to the other, but not leave its item.
        lines = list(futures[index].logs(follow=True))
        assert sorted(lines) == ["\n", f"begin {index}\n", f"end {index}\n", f"error {index}\n"]
        assert futures[index].stdout() == f"begin {index}\n\nend {index}\n"


def test_progress_of_a_map_is_shown(here_on_host) -> None:
    futures = openpaisdk.map(lambda x: 1 / x, range(3), limit=0)
    concurrent.futures.wait(futures, TIMEOUT_S)
    assert repr(futures) == f"<JobFutures {futures.job}: 2 done, 1 failed>"
    shown = futures._repr_html_()
    assert futures.job in shown and "<th>failed</th>" in shown and "waiting" not in shown
    assert '<progress value="3" max="3"' in shown
    assert "failed: ZeroDivisionError: division by zero" in futures[0]._repr_html_()
    assert repr(openpaisdk.map(str, [])) == "[]"


@pytest.mark.slow
def test_interrupted_item_continues(here) -> None:
    steps = 70  # of 0.1 s: more than the time limit allows, which is enough for a task to start anywhere

    def count(x: int) -> tuple[int, int]:
        from openpaisdk import runtime

        state = runtime.saved_state({"count": 0, "starts": 0})
        state["starts"] += 1
        runtime.save_before_stop(lambda: state)
        while state["count"] < steps and x == 1:
            state["count"] += 1
            time.sleep(0.1)
        return state["count"], state["starts"]

    results = openpaisdk.map(count, range(4), limit=1, timeout=6).results(TIMEOUT_S)
    assert results[1][0] == steps and results[1][1] >= 2
    assert [results[i] for i in (0, 2, 3)] == [(0, 1)] * 3


LOG = "starting\n\n--- call 3 ---\na\nb\n\n--- call 1 ---\nc\n--- call 3 ---\n\nd\n\n--- no more calls ---\n"


def test_parts_of_a_log() -> None:
    assert part_of_log(LOG, 3) == "a\nb\n\nd\n" and part_of_log(LOG, 1) == "c" and part_of_log(LOG, 2) == ""
    lines = LOG.splitlines(keepends=True)
    assert list(lines_of_call(lines, 3)) == ["a\n", "b\n"] and list(lines_of_call(lines, 1)) == ["c\n"]
