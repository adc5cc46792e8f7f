"""Cluster that runs functions: its jobs, its storage, and the futures that wait for them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from openpaisdk.binding.cluster import Cluster
from openpaisdk.config.paths import user_folder
from openpaisdk.errors import PaiError
from openpaisdk.functions.function_files import FunctionFiles

if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient
    from openpaisdk.storage import Storage


class FunctionCluster:
    """One cluster, with an open storage. Thread-safe: futures are completed by threads."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self._lock = threading.Lock()
        self._stored: set[str] = set()

    @property
    def alias(self) -> str:
        return self.cluster.alias

    @property
    def client(self) -> ClusterClient:
        return self.cluster.client

    @property
    def user(self) -> str:
        return self.cluster.client.user

    @cached_property
    def storage(self) -> Storage:
        from openpaisdk.storage import Storage

        return Storage.of_jobs(self.client)

    # --- files ---

    @cached_property
    def files(self) -> FunctionFiles:
        return FunctionFiles(self.storage)

    def write(self, path: str, content: bytes) -> None:
        self.files.write(path, content)

    def read(self, path: str) -> bytes | None:
        """Content of a file; None if it does not exist."""
        return self.files.read(path)

    def names(self, folder: str) -> list[str]:
        """Names in a folder; none if it does not exist."""
        return self.files.names(folder)

    def owner(self, path: str) -> str:
        """The user who wrote a file; empty if unknown."""
        if path.startswith(f"/user/{self.user}/"):
            return self.user  # only this user can write there
        found = self.storage.backend.status(path)
        return found.owner if found else ""

    def store(self, folder: str, content: bytes) -> str:
        """Upload a value unless it is there, under its hash; returns its path."""
        path = f"{folder}/{hashlib.sha256(content).hexdigest()}"
        with self._lock:
            if path in self._stored:
                return path
        if not self.storage.exists(path):
            self.write(path, content)
        with self._lock:
            self._stored.add(path)
        return path

    def forget_stored(self) -> None:
        """Look again whether values are there: some were deleted."""
        with self._lock:
            self._stored.clear()

    # --- jobs ---

    def pending_reason(self, job: str) -> str:
        """Why a job waits; empty if the cluster has not said so."""
        return self.cluster.pending_reason(job)

    # --- logs ---

    def log(self, job: str, index: int, stream: str) -> str:
        return self.cluster.logs(job, index=index, stream=stream)

    def log_end(self, job: str, index: int, lines: int = 15) -> str:
        try:
            return self.cluster.logs(job, index=index, tail=lines)
        except PaiError:  # the log may be gone, or the task never started
            return ""

    def follow(self, job: str, index: int) -> Iterator[str]:
        return self.cluster.follow(job, index=index)


_clusters: dict[tuple[str, str], FunctionCluster] = {}
_clusters_lock = threading.Lock()


def function_cluster(cluster: Cluster | str | None) -> FunctionCluster:
    """The cluster to run functions on: an object, an alias, or None for the one that commands use."""
    if isinstance(cluster, Cluster):
        return FunctionCluster(cluster)
    chosen = Cluster(cluster or "")
    # A program that changes HOME has another embedded cluster, under the same alias.
    settings = user_folder() if chosen.entry.is_embedded else ""
    with _clusters_lock:
        return _clusters.setdefault((chosen.alias, settings), FunctionCluster(chosen))
