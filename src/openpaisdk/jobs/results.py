"""What a job left: the files it kept on the storage, and the figures of its steps."""

from __future__ import annotations

import json

from openpaisdk.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client import Cluster
    from openpaisdk.storage import Storage


class Results:
    """The files that a job kept. Names are those below its folder for results."""

    def __init__(self, cluster: Cluster, name: str, user: str = ""):
        from openpaisdk.protocol import read_job
        from openpaisdk.protocol.layout import output_folder
        from openpaisdk.storage import Storage

        self.job_name = name
        self.storage: Storage = Storage.of(cluster)
        job = read_job(cluster.job_config(name, user), stored=True)
        self.folder = output_folder(job, user or cluster.user)

    def files(self) -> dict[str, int]:
        """All of them with their sizes, by name; nothing when the job kept nothing."""
        found: dict[str, int] = {}
        if self.storage.exists(self.folder):
            self._walk(self.folder, found)
        return dict(sorted(found.items()))

    def _walk(self, folder: str, found: dict[str, int]) -> None:
        for entry in self.storage.backend.listing(folder):
            path = f"{folder}/{entry.name}"
            if entry.is_folder:
                self._walk(path, found)
            else:
                found[path[len(self.folder) + 1 :]] = entry.size

    def fetch(self, target: str, names: list[str] | None = None) -> list[str]:
        """Bring them, or those named, into a folder of this machine; what was brought."""
        import os

        wanted = names or list(self.files())
        for name in wanted:
            path = os.path.join(target, *name.split("/"))
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            self.storage.download(self.path(name), path)
        return wanted

    def path(self, name: str) -> str:
        path = f"{self.folder}/{name}"
        if not self.storage.exists(path):
            raise NotFound(
                f"{self.job_name} kept no file {name}.", hint=f"pai job-outputs {self.job_name} lists them."
            )
        return path


class Figure:
    """One number over the steps of a task."""

    __slots__ = ("name", "steps", "values")

    def __init__(self, name: str):
        self.name = name
        self.steps: list[int] = []
        self.values: list[float] = []


def figures(cluster: Cluster, name: str, user: str = "", role: str = "", index: int = 0) -> dict[str, Figure]:
    """What the task kept with ``log_metrics``, by name. A line that cannot be read is passed over."""
    from urllib.parse import urlencode

    query = urlencode({key: value for key, value in (("role", role), ("index", index)) if value})
    answer = cluster.transport.ask("GET", f"{cluster.job_path(name, user)}/metrics?{query}")
    found: dict[str, Figure] = {}
    for line in answer.read().splitlines():
        try:
            step = json.loads(line)
            for key, value in step["values"].items():
                figure = found.setdefault(key, Figure(key))
                figure.steps.append(int(step["step"]))
                figure.values.append(float(value))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found
