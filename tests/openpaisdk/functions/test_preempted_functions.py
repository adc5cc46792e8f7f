"""Functions that another job preempts: they are asked for a checkpoint, and continue in the retry."""

import time
from pathlib import Path
from typing import Any

import pytest

import openpaisdk
import openpaisdk.functions as submitit
from openpaisdk.binding.cluster import Cluster
from openpaisdk.client.models import CORES
from support.server_fixture import eventually

TIMEOUT_S = 90
pytestmark = pytest.mark.slow


def all_cores() -> int:
    """A job with all cores leaves no room for another one."""
    (total,) = (vc.total(*CORES) for vc in Cluster().client.virtual_clusters() if vc.name == "default")
    assert total is not None
    return total


def preempt(future: submitit.JobFuture, started: Path, name: str) -> None:
    """Submit a job that needs the cores of a running call, and wait for its end."""
    eventually(started.exists, "the start of the function", TIMEOUT_S)
    assert openpaisdk.submit(str, name, cpu=all_cores()).result(TIMEOUT_S) == name
    reasons = [event.reason for event in Cluster().client.events(future.job)]
    assert "Preempted" in reasons


def test_object_is_asked_for_a_checkpoint_before_preemption(here_on_host) -> None:
    class Training:
        def __init__(self, folder: Path) -> None:
            self.folder = folder
            self.epochs = 0
            self.starts = 0

        def checkpoint(self, *args: Any) -> submitit.helpers.DelayedSubmission:
            print("saved after", self.epochs, "epochs", flush=True)
            return submitit.helpers.DelayedSubmission(self, *args)

        def __call__(self, name: str) -> tuple[str, int, bool]:
            self.starts += 1
            resumed = self.epochs > 0
            while self.starts == 1:
                self.epochs += 1
                (self.folder / "started").touch()
                time.sleep(0.05)
            return name, self.starts, resumed

    training = Training(here_on_host)
    future = openpaisdk.submit(training, "run", cpu=all_cores(), priority="oppo")
    preempt(future, here_on_host / "started", "first")
    assert future.result(TIMEOUT_S) == ("run", 2, True)


def test_plain_function_continues_after_preemption(here_on_host) -> None:
    def train(folder: Path) -> dict[str, int]:
        from openpaisdk import runtime

        state = runtime.saved_state({"epochs": 0, "starts": 0})
        state["starts"] += 1
        runtime.save_before_stop(lambda: state)
        while state["starts"] == 1:
            state["epochs"] += 1
            (folder / "started").touch()
            time.sleep(0.05)
        return state

    future = openpaisdk.submit(train, here_on_host, cpu=all_cores(), priority="oppo")
    preempt(future, here_on_host / "started", "second")
    state = future.result(TIMEOUT_S)
    assert state["starts"] == 2 and state["epochs"] > 0


def test_coroutine_function_continues_after_preemption_in_one_of_its_tasks(here_on_host) -> None:
    async def train(folder: Path) -> int:
        import asyncio

        from openpaisdk import runtime

        state = runtime.saved_state({"starts": 0})
        state["starts"] += 1
        runtime.save_before_stop(lambda: state)

        async def compute() -> None:
            while state["starts"] == 1:
                (folder / "started").touch()
                time.sleep(0.05)
                await asyncio.sleep(0)

        computing = asyncio.ensure_future(compute())
        while state["starts"] == 1:
            await asyncio.sleep(0.01)
        await computing
        return int(state["starts"])

    future = openpaisdk.submit(train, here_on_host, cpu=all_cores(), priority="oppo")
    preempt(future, here_on_host / "started", "coroutine")
    assert future.result(TIMEOUT_S) == 2


@pytest.mark.parametrize("saves", [True, False])
def test_items_that_share_a_preempted_task(here_on_host, saves) -> None:
    def work(item: int) -> tuple[int, int]:
        from openpaisdk import runtime

        state = runtime.saved_state({"starts": 0})
        state["starts"] += 1
        if saves:
            runtime.save_before_stop(lambda: state)
        seen = here_on_host / f"seen-{item}"
        is_first = not seen.exists()
        seen.touch()
        while item == 2 and is_first:
            (here_on_host / "started").touch()
            time.sleep(0.05)
        return item, state["starts"]

    futures = openpaisdk.map(work, range(5), limit=1, cpu=all_cores(), priority="oppo")
    preempt(futures[0], here_on_host / "started", f"third-{saves}")
    results = futures.results(TIMEOUT_S)
    assert results == [(0, 1), (1, 1), (2, 2 if saves else 1), (3, 1), (4, 1)]
