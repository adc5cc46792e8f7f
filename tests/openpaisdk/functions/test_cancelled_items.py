"""Items of a map that are cancelled on their own: one that has not begun never runs, the others do."""

from __future__ import annotations

import concurrent.futures
import time
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

import openpaisdk
from openpaisdk import Job
from openpaisdk.functions import JobFutures, task_errors
from support.server_fixture import eventually

TIMEOUT_S = 60


def map_until(folder: Path, count: int) -> JobFutures:
    """A map whose first item waits for the file ``go``; one item runs at a time."""

    def work(x: int) -> int:
        (folder / f"began-{x}").touch()
        while x == 0 and not (folder / "go").exists():
            time.sleep(0.02)
        return x

    futures = openpaisdk.map(work, range(count), limit=1, mem="64m")
    eventually((folder / "began-0").exists, "the start of the first item", TIMEOUT_S)
    return futures


@pytest.mark.parametrize("count", [3, 5], ids=["a task each", "shared tasks"])
def test_waiting_item_is_cancelled_without_the_others(here_on_host: Path, count: int) -> None:
    futures = map_until(here_on_host, count)
    *kept, last = range(count)
    assert futures[last].cancel() and futures[last].cancelled() and futures[last].cancel()
    assert not futures[0].cancel()
    other_program = Job(futures.job).select_cluster().futures()
    (here_on_host / "go").touch()
    for seen in (futures, other_program):
        assert [seen[i].result(TIMEOUT_S) for i in kept] == kept
        with pytest.raises(CancelledError):
            seen[last].result(TIMEOUT_S)
        assert seen[last].state == "STOPPED"
    assert not futures[1].cancel() and futures[1].result() == 1
    assert Job(futures.job).select_cluster().wait(timeout=TIMEOUT_S, progress=False) == "SUCCEEDED"
    assert not (here_on_host / f"began-{last}").exists()


def test_cancelled_items_of_a_program_that_died_at_once(here_on_host: Path, monkeypatch) -> None:
    """The claim alone decides: the file that tells other programs may be missing."""
    futures = map_until(here_on_host, 4)
    monkeypatch.setattr(futures[3].cluster, "write", lambda path, content: None)
    assert futures[3].cancel()
    other_program = Job(futures.job).select_cluster().futures()
    (here_on_host / "go").touch()
    with pytest.raises(CancelledError):
        other_program[3].result(TIMEOUT_S)
    assert futures[2].result(TIMEOUT_S) == 2


def test_job_whose_items_are_all_cancelled_is_stopped(here_on_host: Path) -> None:
    first = openpaisdk.submit(time.sleep, 60)
    futures = openpaisdk.map(str, range(3), after=first.job)
    assert all(future.cancel() for future in futures)
    assert Job(futures.job).select_cluster().wait(timeout=TIMEOUT_S, progress=False) == "STOPPED"
    assert first.cancel()


def test_call_after_a_cancelled_or_failed_item(here_on_host: Path) -> None:
    futures = map_until(here_on_host, 3)
    futures[2].cancel()
    total = openpaisdk.submit(sum, futures)
    (here_on_host / "go").touch()
    with pytest.raises(task_errors.DependencyFailed, match="whose result is an argument was cancelled"):
        total.result(TIMEOUT_S)
    failed = openpaisdk.map(lambda x: 1 / x, [0, 1])
    assert openpaisdk.submit(abs, failed[1]).result(TIMEOUT_S) == 1
    with pytest.raises(
        task_errors.DependencyFailed, match=r"failed .*main-0.*: builtins.ZeroDivisionError: division by zero"
    ):
        openpaisdk.submit(abs, failed[0]).result(TIMEOUT_S)


def test_executor_that_is_shut_down_keeps_what_runs(here_on_host: Path) -> None:
    def wait_for_go() -> str:
        (here_on_host / "began").touch()
        while not (here_on_host / "go").exists():
            time.sleep(0.02)
        return "done"

    executor = openpaisdk.Executor(mem="64m")
    running = executor.submit(wait_for_go)
    eventually((here_on_host / "began").exists, "the start of the call", TIMEOUT_S)
    eventually(running.running, "the notice of it", TIMEOUT_S)
    waiting = executor.submit(str, running)
    executor.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    (here_on_host / "go").touch()
    assert running.result(TIMEOUT_S) == "done"


def test_call_of_a_batch_is_cancelled_before_it_is_submitted(here_on_host: Path) -> None:
    executor = openpaisdk.Executor()
    with executor.batch():
        first, second = executor.submit(abs, -1), executor.submit(abs, -2)
        assert first.cancel()
    assert second.result(TIMEOUT_S) == 2 and second.num_tasks == 1
    with executor.batch():
        third = executor.submit(abs, -3)
        third.cancel()
    assert concurrent.futures.wait([first, third], 0).not_done == set()
