"""A job on a real server whose task writes an event file, as long as the test wants it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from support.server_fixture import Cluster, eventually, job

_PROGRAM = """
import os, sys, time
from support.event_files import event, simple

folder, tag = sys.argv[1:]
path = os.environ["PAI_OUTPUT_DIR"] + "/events.out.tfevents.1"
written = 0
while not os.path.exists(folder + "/end"):
    wanted = len(os.listdir(folder)) * 50
    # A reader sees all of a part or none of it.
    events = b"".join(event(step, simple(tag, step + 1.0)) for step in range(written, wanted))
    with open(path, "ab", buffering=0) as file:
        file.write(events)
    written = wanted
    time.sleep(0.02)
"""


class EventJob:
    """``count``: values that the task has written. ``folder`` has a file for each part of these."""

    def __init__(self, cluster: Cluster, name: str, folder: Path, tag: str = "loss") -> None:
        folder.mkdir()
        for path in (folder.parent, folder):
            path.chmod(0o755)
        self._cluster = cluster
        self._folder = folder
        self.metric = f"tensorboard/{tag}"
        self.count = 0
        command = f"PYTHONPATH={os.pathsep.join(sys.path)} {sys.executable} -c '{_PROGRAM}' {folder} {tag}"
        self.name = cluster.accept(job(name, command))

    def write(self) -> None:
        """Returns when the task has written 50 more values."""
        self.count += 50
        (self._folder / str(self.count)).touch()
        path = self._cluster.path(self.name, "/metric-series?source=tensorboard")

        def has_written() -> bool:
            counts = self._cluster.get(path).json()["counts"]
            return [one["count"] for one in counts] == [self.count]

        eventually(has_written, f"{self.count} values in the event file")

    def end(self) -> None:
        (self._folder / "end").touch()
        self._cluster.wait_state(self.name, "SUCCEEDED")

    def row(self) -> dict[str, Any] | None:
        """The metric as a comparison has it; this looks at the job."""
        reply = self._cluster.get(f"/api/v2/runs?jobs={self._cluster.user}~{self.name}").json()
        found: dict[str, Any] | None = reply["jobs"][0]["tasks"][0]["metrics"].get(self.metric)
        return found

    def has_row(self) -> bool:
        found = self.row()
        return found is not None and (found["count"], found["last"]) == (self.count, self.count)
