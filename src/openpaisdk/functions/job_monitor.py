"""``submitit.helpers.monitor_jobs``: prints the progress of calls until all of them have ended."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Sequence
from typing import Any

# Called with the time of the start, the number of calls, and their indexes by state.
Report = Callable[[float, int, dict[str, set[int]]], object]


def print_progress(started: float, count: int, states: dict[str, set[int]]) -> None:
    """The line for one moment: ``12:03:04  3 of 8 calls ended, 1 failed; 5 running``."""
    failed = f", {len(states['FAILED'])} failed" if states.get("FAILED") else ""
    others = [
        f"{len(states[state])} {state.lower()}" for state in ("RUNNING", "WAITING") if states.get(state)
    ]
    line = f"{time.strftime('%H:%M:%S')}  {len(states.get('DONE', ()))} of {count} calls ended{failed}"
    print("; ".join([line, ", ".join(others)] if others else [line]), flush=True)


def monitor_jobs(
    jobs: Sequence[Any],
    poll_frequency: float = 30,
    test_mode: bool = False,
    custom_logging: Report = print_progress,
) -> None:
    """Report the states of calls every ``poll_frequency`` seconds, until all have ended.

    ``custom_logging(started, count, states)`` replaces the printed line; ``states`` has the indexes of the
    calls by state, and those of all that ended as ``DONE``. ``test_mode`` is submitit's, without effect.
    """
    started = time.time()
    unfinished = list(jobs)
    while unfinished:
        _, pending = concurrent.futures.wait(unfinished, poll_frequency)
        unfinished = list(pending)
        custom_logging(started, len(jobs), _states(jobs))
    if not jobs:
        print("There are no calls to wait for.", flush=True)


def _states(jobs: Sequence[Any]) -> dict[str, set[int]]:
    """Indexes of the calls by state, as far as the futures know it: no cluster is asked."""
    states: dict[str, set[int]] = {}
    for index, job in enumerate(jobs):
        if not job.done():
            state = "RUNNING" if job.running() else "WAITING"
        elif job.cancelled():
            state = "STOPPED"
        else:
            state = "FAILED" if job.exception() else "SUCCEEDED"
        states.setdefault(state, set()).add(index)
        if job.done():
            states.setdefault("DONE", set()).add(index)
    return states
