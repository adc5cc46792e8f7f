"""Authorization of SSH clients: which key opens which job, and which task a user name means.

A job's own key opens that job only, so the user name needs to name the task alone. Keys of the job's user,
which the job lists, open several jobs: there the user name contains the job.

The jobs of a disabled user go on, and their tasks reach each other with the job's key. The user may have a
copy of it, so then it is accepted only from the other machines that the job's tasks run on.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection

from paicluster.api.v2.ssh import TASK_SEPARATOR
from paicluster.auth.ssh_keys import SshKeys
from paicluster.engines.interface import Node
from paicluster.store import Store, jobs, users
from paicluster.store.rows import JobRow
from paiprotocol.jobs import read_job
from paiprotocol.jobs.extras import find_plugin

# User name of OpenPAI's clients, whose tasks have no other.
ROOT = "root"
# Keys of the job's user that one job may list.
MAX_USER_KEYS = 64
# Jobs whose listed keys are in memory, of each 64 digests.
MAX_CACHED_JOBS = 1024


@dataclass(frozen=True, slots=True)
class Target:
    """What a user name means. ``framework``: full name of a job, empty if the key tells it. ``task``: as
    ROLE-INDEX; empty: the first one that runs."""

    framework: str
    task: str

    @classmethod
    def parse(cls, username: str) -> Target:
        job, _, task = username.partition(TASK_SEPARATOR)
        if "~" in job:
            return cls(job, task)
        return cls("", "" if username == ROOT else username)


@dataclass(frozen=True, slots=True)
class OpenedJob:
    """The job that a key opens. ``is_for_task``: a task of the job connects, not its user."""

    row: JobRow
    is_for_task: bool


class _ListedKeys(NamedTuple):
    """Keys in the text of a job: how many lines they take of `MAX_USER_KEYS`, and their digests."""

    lines: int
    digests: frozenset[bytes]


class JobAuthorization:
    """Finds the job that a key opens.

    Clients that have not authenticated ask, so a question must be cheap: the text of a job, which may be
    long, is parsed once.
    """

    def __init__(self, store: Store, keys: SshKeys, nodes: Callable[[], Sequence[Node]]) -> None:
        """``nodes``: those of the cluster, with their addresses."""
        self._store = store
        self._keys = keys
        self._nodes = nodes
        # Keys of running jobs in base64, as far as they were needed.
        self._job_of_key: dict[str, int] = {}
        self._key_of_job: dict[int, str] = {}
        # By id, name and time of the job: ids are used again.
        self._listed_keys: OrderedDict[tuple[int, str, int], _ListedKeys | None] = OrderedDict()
        self._lock = threading.Lock()

    async def find_job(self, target: Target, key: str, address: str) -> OpenedJob | None:
        """The unfinished job that this key (type and base64) opens under this name for a client there."""
        return await self._store.read(lambda conn: self._find_job(conn, target, key, address))

    def _find_job(self, conn: Connection, target: Target, key: str, address: str) -> OpenedJob | None:
        row = self._job_of(conn, target, key)
        if row is None:
            return None
        is_for_task = self._keys.of_job(row).public == key and self._is_of_task(conn, row, address)
        user = users.get_user(conn, row.username)
        if user is not None and user.disabled_ms is not None and not is_for_task:
            return None
        return OpenedJob(row, is_for_task)

    def _job_of(self, conn: Connection, target: Target, key: str) -> JobRow | None:
        if target.framework:
            row = jobs.get_job(conn, target.framework)
            if row is None or row.completed_ms is not None:
                return None
            is_permitted = self._keys.of_job(row).public == key or self._is_users(conn, row, key)
            return row if is_permitted else None
        if key not in self._job_of_key:
            self._learn_running_jobs(conn)
        job_id = self._job_of_key.get(key)
        row = None if job_id is None else jobs.get_job_by_id(conn, job_id)
        # Compared with the row as it is now: ids are used again.
        if row is None or row.completed_ms is not None or self._keys.of_job(row).public != key:
            return None
        return row

    def _is_users(self, conn: Connection, row: JobRow, key: str) -> bool:
        """Whether the job's plugin `ssh` permits a key of its user: listed there, or in the profile."""
        listed = self._listed(conn, row)
        if listed is None:
            return False
        if _digest(key) in listed.digests:
            return True
        user = users.get_user(conn, row.username)
        texts = _profile_keys(json.loads(user.extension) if user is not None else {})
        lines = [line for text in texts if isinstance(text, str) for line in text.splitlines()]
        return key in _public_keys(lines[: MAX_USER_KEYS - listed.lines])

    def _listed(self, conn: Connection, row: JobRow) -> _ListedKeys | None:
        job = row.id, row.framework, row.submission_ms
        # One thread parses at a time: many clients that offer keys at once do not occupy all readers.
        with self._lock:
            if job in self._listed_keys:
                self._listed_keys.move_to_end(job)
                return self._listed_keys[job]
            listed = self._listed_keys[job] = _listed_keys(conn, row)
            if len(self._listed_keys) > MAX_CACHED_JOBS:
                self._listed_keys.popitem(last=False)
            return listed

    def _is_of_task(self, conn: Connection, row: JobRow, address: str) -> bool:
        """Whether a client at this address is a task of the job.

        A machine of the cluster other than this one is entered through jobs. From this one a
        connection proves nothing: users may have a login there, or forward the connections of others.
        """
        client = _without_mapping(address)
        if client is None or _is_own_address(client):
            return False
        # On Slurm a task itself reports where it runs, so the node must have that address.
        named = {
            task.node
            for task in jobs.tasks_of(conn, row.id, row.attempt)
            if task.ip == client and task.launched_ms is not None and not task.ended
        }
        return any(client in _addresses_of(node) for node in self._nodes() if node.name in named)

    def _learn_running_jobs(self, conn: Connection) -> None:
        """Derive the keys of running jobs whose keys are not known, and forget those of all others."""
        running = {row.id: row for row in jobs.running_jobs(conn)}
        known = {id_: key for id_, key in self._key_of_job.items() if id_ in running}
        known.update({id_: self._keys.of_job(row).public for id_, row in running.items() if id_ not in known})
        # Replaced as a whole: other threads read them.
        self._key_of_job = known
        self._job_of_key = {key: id_ for id_, key in known.items()}


def _without_mapping(address: str) -> str | None:
    """An address in its usual form, that of IPv4 as such; None if it is none."""
    try:
        client = ipaddress.ip_address(address)
    except ValueError:
        return None
    mapped = client.ipv4_mapped if isinstance(client, ipaddress.IPv6Address) else None
    return str(mapped or client)


def _addresses_of(node: Node) -> set[str | None]:
    """Addresses of a node, whose engine may know it by a name only."""
    if (address := _without_mapping(node.ip)) is not None:
        return {address}
    try:
        found = socket.getaddrinfo(node.ip, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {_without_mapping(str(where[0])) for *_, where in found}


def _is_own_address(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _listed_keys(conn: Connection, row: JobRow) -> _ListedKeys | None:
    """Keys that the job's plugin `ssh` lists; None if it permits no key, of the profile neither."""
    spec = jobs.job_spec(conn, row.id)
    plugin = find_plugin(read_job(spec.job, stored=True).extras, "ssh") if spec is not None else None
    parameters = plugin.get("parameters") if plugin is not None else None
    wanted = parameters.get("userssh") if isinstance(parameters, Mapping) else None
    if not isinstance(wanted, Mapping):
        return None
    value = wanted.get("value")
    lines = value.splitlines()[:MAX_USER_KEYS] if isinstance(value, str) else []
    return _ListedKeys(len(lines), frozenset(map(_digest, _public_keys(lines))))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _profile_keys(extension: Mapping[str, Any]) -> list[Any]:
    listed = extension.get("sshKeys")
    entries = listed if isinstance(listed, list) else []
    return [entry.get("value") for entry in entries if isinstance(entry, Mapping)]


def _public_keys(lines: list[str]) -> Iterator[str]:
    """Type and base64 of the keys in these lines, without their comments."""
    for line in lines:
        words = line.split()
        if len(words) >= 2 and not line.startswith("#"):
            yield " ".join(words[:2])
