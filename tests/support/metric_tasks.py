"""A job with running tasks that log metrics, without a server: their folders, and the collectors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paicluster.api.v2.job_summaries import render_summary
from paicluster.services.event_metric_collector import EventMetricCollector
from paicluster.services.metric_collector import MetricCollector
from paicluster.store import Store, jobs, metric_rows
from paicluster.store.jobs import NewJob
from paicluster.store.metric_rows import MetricValues
from paicluster.store.rows import TaskRow
from support.event_files import event, simple
from support.server_fixture import DEADLINE_S


class Tasks:
    """A job with running tasks, their folders, and the collectors that read them."""

    def __init__(self, folder: Path, store: Store | None = None, name: str = "job"):
        self.folder = folder
        self.store = store or Store.open(folder / "cluster.db", render_summary)
        new = NewJob("alice", name, vc="default", config="{}", job="{}", submission_ms=1)
        (made,) = self.store.write_sync(lambda conn: jobs.insert_jobs(conn, [new]))
        self.job_id = int(made.id)
        self.running: list[tuple[int, str]] = []
        self.collector = self.new_collector()

    def new_collector(self, **limits: Any) -> MetricCollector:
        return MetricCollector(
            self.store, lambda uid: self.folder / uid, lambda: self.running, interval_s=0.01, **limits
        )

    def add(self, uid: str) -> None:
        row = TaskRow(uid, self.job_id, 0, "main", 0, len(self.running), 0, uid, "Running", launched_ms=1)
        self.store.write_sync(lambda conn: jobs.insert_tasks(conn, [row]))
        (self.folder / uid / "work/.pai").mkdir(parents=True)
        self.running.append((self.job_id, uid))

    def new_event_collector(self, **limits: Any) -> EventMetricCollector:
        limits = {
            "interval_s": 0.0,
            "cost_factor": 0.0,
            "look_interval_s": 0.0,
            "wait_s": DEADLINE_S,
            **limits,
        }
        return EventMetricCollector(self.store, lambda uid: self.folder / uid, **limits)

    def end(self, uid: str) -> None:
        self.running.remove((self.job_id, uid))
        change = {"uid": uid, "job_id": self.job_id, "sub_state": "Completed", "completed_ms": 2}
        self.store.write_sync(lambda conn: jobs.update_tasks(conn, [change]))

    def file(self, uid: str) -> Path:
        return self.folder / uid / "work/.pai/metrics.jsonl"

    def log(self, uid: str, *losses: float, start: int = 0) -> None:
        with self.file(uid).open("a") as file:
            for step, loss in enumerate(losses, start):
                file.write(json.dumps({"step": step, "values": {"loss": loss}}) + "\n")

    def write_events(self, uid: str, *losses: float, start: int = 0, tag: str = "loss") -> Path:
        """Append to an event file of the task."""
        outputs = self.folder / uid / "work/.pai/output"
        outputs.mkdir(exist_ok=True)
        path = outputs / "events.out.tfevents.1"
        with path.open("ab") as file:
            for step, loss in enumerate(losses, start):
                file.write(event(step, simple(tag, loss)))
        return path

    def stored(self) -> dict[str, MetricValues]:
        found = self.store.read_sync(lambda conn: metric_rows.metrics_of(conn, self.job_id))
        return {one.name: one.values for one in found}

    def counts(self) -> list[int]:
        """How often each metric of each task was logged."""
        found = self.store.read_sync(lambda conn: metric_rows.metrics_of(conn, self.job_id))
        return [one.values.times for one in found]

    def unread(self) -> list[str]:
        return [
            file.uid for file in self.store.read_sync(lambda c: metric_rows.unread_files(c, [self.job_id]))
        ]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.005)
