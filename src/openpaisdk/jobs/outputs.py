"""What a job left: the files it kept on the storage, and the figures of its steps."""

from __future__ import annotations

import json
import os

from openpaisdk.client.http_errors import is_missing_job
from openpaisdk.config.clusters import option_for
from openpaisdk.errors import NotFound, PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.client import ClusterClient
    from openpaisdk.storage import Storage
    from openpaisdk.storage.transfer.executor import TransferProgress


class JobOutputs:
    """The files that a job kept. Names are those below its folder for results."""

    def __init__(self, cluster: ClusterClient, name: str, user: str = ""):
        from openpaisdk.protocol import read_job
        from openpaisdk.protocol.storage_layout import output_folder
        from openpaisdk.storage import Storage

        self.job_name = name
        self._alias = cluster.alias
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

    def fetch(
        self,
        target: str,
        names: list[str] | None = None,
        watch: Callable[[TransferProgress], None] | None = None,
    ) -> tuple[list[str], list[str]]:
        """Bring them, or those named, into a folder of this machine.

        What is there now, and what was left as it is because another file of that name lies there. ``watch``
        is called now and then.
        """
        brought: list[str] = []
        differing: list[str] = []
        every = list(self.files())
        if every and not names and not os.path.lexists(target):
            self.storage.download(self.folder, target, watch=watch)  # all of them in one go
            return every, []
        # A folder is what is in it.
        wanted = [file for name in names or () for file in _below(name, every) or [name]]
        for name in wanted if names else every:
            path = os.path.join(target, *name.split("/"))
            if os.path.lexists(path):
                (brought if self._is_same(name, path) else differing).append(name)
                continue
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            self.storage.download(self.path(name), path, watch=watch)
            brought.append(name)
        return brought, differing

    def _is_same(self, name: str, path: str) -> bool:
        file = self.storage.backend.open(self.path(name))
        try:
            if not os.path.isfile(path) or os.path.getsize(path) != file.size:
                return False
            with open(path, "rb") as here:
                return all(here.read(len(chunk)) == bytes(chunk) for chunk in file.chunks(0, file.size))
        finally:
            file.close()

    def conflict_error(self, target: str, differing: list[str]) -> PaiError:
        """The error for files that were not overwritten."""
        few = ", ".join(differing[:5]) + (", ..." if len(differing) > 5 else "")
        to = "here" if target == "." else f"in {target}"
        return PaiError(
            f"What lies {to} differs from what {self.job_name} kept, and was left as it is: {few}.",
            hint=f"Bring it elsewhere: pai job-outputs {self._option}{self.job_name} get --to FOLDER",
        )

    @property
    def _option(self) -> str:
        return option_for(self._alias)

    def path(self, name: str) -> str:
        path = f"{self.folder}/{name}"
        if not self.storage.exists(path):
            raise NotFound(
                f"{self.job_name} kept no file {name}.",
                hint=f"pai job-outputs {self._option}{self.job_name} lists them.",
            )
        return path


def _below(name: str, every: list[str]) -> list[str]:
    return [file for file in every if file.startswith(name.rstrip("/") + "/")]


class MetricSeries:
    """One number over the steps of a task."""

    __slots__ = ("name", "steps", "values")

    def __init__(self, name: str):
        self.name = name
        self.steps: list[int] = []
        self.values: list[float] = []


def metrics(
    cluster: ClusterClient, name: str, user: str = "", role: str = "", index: int = 0
) -> dict[str, MetricSeries]:
    """What the task kept with ``log_metrics``, by name. A line that cannot be read is passed over."""
    from urllib.parse import urlencode

    query = urlencode({key: value for key, value in (("role", role), ("index", index)) if value})
    try:
        answer = cluster.transport.request("GET", f"{cluster.job_path(name, user)}/metrics?{query}")
    except NotFound as e:
        raise cluster.no_job(name) if is_missing_job(e) else e from None
    found: dict[str, MetricSeries] = {}
    for line in answer.read().splitlines():
        try:
            step = json.loads(line)
            for key, value in step["values"].items():
                figure = found.setdefault(key, MetricSeries(key))
                figure.steps.append(int(step["step"]))
                figure.values.append(float(value))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found
