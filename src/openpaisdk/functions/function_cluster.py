"""Cluster that runs functions: its jobs, its storage, and the futures that wait for them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from openpaisdk.client.follow import follow_tasks, log_lines, log_text
from openpaisdk.client.follow_stream import FollowRequest
from openpaisdk.config.clusters import ClusterRegistry
from openpaisdk.config.paths import user_folder
from openpaisdk.connect import ClusterConnection
from openpaisdk.jobs.call_request import ROLE
from openpaisdk.jobs.function_files import FunctionFiles
from paiprotocol.errors import PaiError

if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient
    from openpaisdk.storage import Storage


class FunctionCluster:
    """One cluster, with an open storage. Thread-safe: futures are completed by threads."""

    def __init__(self, connection: ClusterConnection):
        self.connection = connection
        self._lock = threading.Lock()
        self._stored: set[str] = set()

    @property
    def alias(self) -> str:
        return self.connection.alias

    @property
    def client(self) -> ClusterClient:
        return self.connection.client

    @property
    def user(self) -> str:
        return self.client.user

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
        info = self.storage.backend.status(path)
        return info.owner if info else ""

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
        """Forget which values are stored, because some were deleted."""
        with self._lock:
            self._stored.clear()

    # --- jobs ---

    def pending_reason(self, job: str) -> str:
        """Why a job waits; empty if the cluster has not said so."""
        return self.client.pending_reason(job)

    # --- logs ---

    def log(self, job: str, index: int, stream: str) -> str:
        """What a task has written, in all its attempts; nothing before it starts."""
        request = FollowRequest(job, index=index, stream=stream, follow=False, all_attempts=True)
        return log_text(self.client, request)

    def log_end(self, job: str, index: int, lines: int = 15) -> str:
        try:
            return log_text(self.client, FollowRequest(job, index=index, tail=lines, follow=False))
        except PaiError:  # the log may be gone, or the task never started
            return ""

    def follow(self, job: str, index: int) -> Iterator[str]:
        """The lines of a task as they are written."""
        # A connection of its own: the caller may send other requests between two lines.
        yield from log_lines(self.connection.open_client(), FollowRequest(job, index=index))

    def follow_tasks(self, job: str, tasks: int) -> Iterator[str]:
        """The lines of several tasks as they are written."""
        requests = [FollowRequest(job, role=ROLE, index=index) for index in range(tasks)]
        rests = dict.fromkeys(requests, b"")
        for request, frame in follow_tasks(self.client, requests):
            if frame.kind == "log":
                *lines, rests[request] = (rests[request] + frame.data).split(b"\n")
                yield from (line.decode("utf-8", "replace") + "\n" for line in lines)
        yield from (rest.decode("utf-8", "replace") for rest in rests.values() if rest)


_clusters: dict[tuple[str, str], FunctionCluster] = {}
_clusters_lock = threading.Lock()


def function_cluster(cluster: ClusterConnection | str | None) -> FunctionCluster:
    """The cluster to run functions on: an object, an alias, or None for the one that commands use."""
    if isinstance(cluster, ClusterConnection):
        return FunctionCluster(cluster)
    chosen = ClusterConnection(ClusterRegistry.load().resolve(cluster or ""))
    # A program that changes HOME has another embedded cluster, under the same alias.
    settings = user_folder() if chosen.entry.is_embedded else ""
    with _clusters_lock:
        return _clusters.setdefault((chosen.alias, settings), FunctionCluster(chosen))
