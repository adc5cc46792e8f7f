"""Outputs of a job: files on the storage, and metrics."""

from __future__ import annotations

import json
import os

from openpaisdk.client.http_errors import is_missing_job
from openpaisdk.config.clusters import alias_option
from paiprotocol.errors import NotFound, PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.client import ClusterClient
    from openpaisdk.storage import Storage
    from openpaisdk.storage.transfer.executor import TransferProgress


class JobOutputs:
    """Output files of a job. Names are relative to its output folder.

    A job may name another folder, as those of version 1 do (``outputDir``). What its tasks put there belongs
    to its outputs, too.
    """

    def __init__(self, cluster: ClusterClient, name: str, user: str = ""):
        from urllib.parse import urlsplit

        from openpaisdk.storage import Storage
        from openpaisdk.storage.job_files import stored_job
        from paiprotocol.jobs.storage_layout import named_output, output_folder, path_on_cluster

        self.job_name = name
        self._alias = cluster.alias
        job, owner = stored_job(cluster, name, user)
        self._folders = [output_folder(job, owner)]
        self.elsewhere = ""
        """Address of the outputs, if the job names a folder of another storage."""
        if named := named_output(job):
            path = path_on_cluster(named, owner, job.name, frozenset({urlsplit(cluster.uri).netloc}))
            self._folders += [path] if path else []
            self.elsewhere = "" if path else named
        self.storage: Storage = Storage.of_jobs(cluster)

    def files(self) -> dict[str, int]:
        """All output files and their sizes, by name; empty if there are none."""
        files: dict[str, int] = {}
        for folder in reversed(self._folders):  # of the same name, that of the job's own folder
            if self.storage.exists(folder):
                self._walk(folder, "", files)
        return dict(sorted(files.items()))

    def _walk(self, folder: str, below: str, files: dict[str, int]) -> None:
        for entry in self.storage.backend.list_folder(folder):
            if entry.is_folder:
                self._walk(f"{folder}/{entry.name}", f"{below}{entry.name}/", files)
            else:
                files[below + entry.name] = entry.size

    def fetch(
        self,
        target: str,
        names: list[str] | None = None,
        watch: Callable[[TransferProgress], None] | None = None,
    ) -> tuple[list[str], list[str]]:
        """Download all output files, or those in ``names``, into a local folder.

        Returns the files that are there now, and those not overwritten because a different local file has the
        name. ``watch`` is called with the progress.
        """
        fetched: list[str] = []
        differing: list[str] = []
        every = list(self.files())
        if every and not names and not os.path.lexists(target) and len(self._folders) == 1:
            self.storage.download(self._folders[0], target, watch=watch)  # one copy of the whole folder
            return every, []
        # The name of a folder selects its files.
        selected = [file for name in names or () for file in _below(name, every) or [name]]
        for name in selected if names else every:
            path = os.path.join(target, *name.split("/"))
            if os.path.lexists(path):
                (fetched if self._is_same(name, path) else differing).append(name)
                continue
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            self.storage.download(self.path(name), path, watch=watch)
            fetched.append(name)
        return fetched, differing

    def _is_same(self, name: str, path: str) -> bool:
        file = self.storage.backend.open(self.path(name))
        try:
            if not os.path.isfile(path) or os.path.getsize(path) != file.size:
                return False
            with open(path, "rb") as local:
                return all(local.read(len(chunk)) == bytes(chunk) for chunk in file.chunks(0, file.size))
        finally:
            file.close()

    def conflict_error(self, target: str, differing: list[str]) -> PaiError:
        """The error for local files that differ and were not overwritten."""
        few = ", ".join(differing[:5]) + (", ..." if len(differing) > 5 else "")
        where = "the current folder" if target == "." else target
        return PaiError(
            f"Files in {where} differ from the outputs of {self.job_name} and were not overwritten: {few}.",
            hint=f"Download to another folder: pai job-outputs {self._option}{self.job_name} get --to FOLDER",
        )

    @property
    def _option(self) -> str:
        return alias_option(self._alias)

    def path(self, name: str) -> str:
        for folder in self._folders:
            if self.storage.exists(f"{folder}/{name}"):
                return f"{folder}/{name}"
        raise NotFound(
            f"{self.job_name} has no output file {name}.",
            hint=f"pai job-outputs {self._option}{self.job_name} lists them.",
        )

    def no_files(self) -> str:
        """The sentence about a job without output files, with the place where it may have left some."""
        if self.elsewhere:
            where = f"pai listdir {self.elsewhere}"
            return f"The outputs of {self.job_name} are on another storage: {where} lists them."
        return f"{self.job_name} has no output files."


def _below(name: str, every: list[str]) -> list[str]:
    return [file for file in every if file.startswith(name.rstrip("/") + "/")]


class MetricSeries:
    """Values of one metric over the steps of a task, those of all its attempts one after the other."""

    __slots__ = ("_attempt", "name", "restarts", "steps", "values")

    def __init__(self, name: str):
        self.name = name
        self.steps: list[int] = []
        self.values: list[float] = []
        self.restarts: list[int] = []
        """Where the values of each further attempt begin."""
        self._attempt: object = None

    def add(self, step: int, value: float, attempt: object) -> None:
        if self.steps and attempt != self._attempt:
            self.restarts.append(len(self.steps))
        self._attempt = attempt
        self.steps.append(step)
        self.values.append(value)


def metrics(
    cluster: ClusterClient, name: str, user: str = "", role: str = "", index: int = 0
) -> dict[str, MetricSeries]:
    """Metrics that a task logged with ``log_metrics``, by name. Malformed lines are skipped."""
    from urllib.parse import urlencode

    by_name: dict[str, MetricSeries] = {}
    start = 0
    while True:  # a response has a part of a long file
        choice = (("role", role), ("index", index), ("start", start))
        query = urlencode({key: value for key, value in choice if value})
        try:
            path = f"{cluster.job_path(name, user)}/metrics?{query}"
            response = cluster.transport.request("GET", path, whole=True)
        except NotFound as e:
            raise cluster.no_job(cluster.short_name(name, user)) if is_missing_job(e) else e from None
        part = response.read()
        if not part:
            return by_name
        _add_steps(by_name, part)
        start += len(part)


def _add_steps(by_name: dict[str, MetricSeries], lines: bytes) -> None:
    for line in lines.splitlines():
        try:
            step = json.loads(line)
            for key, value in step["values"].items():
                # float() also reads what is written for NaN and infinity.
                number = float(value)
                series = by_name.setdefault(key, MetricSeries(key))
                series.add(int(step["step"]), number, step.get("attempt"))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            continue
