"""Report sink: what tasks in pods download and report, by the ticket of their gang."""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paicluster.engines.common import untrusted_files
from paicluster.engines.common.gang_folders import GangFolders, hash_of
from paicluster.engines.common.received_reports import ReceivedReports, run_in_files, write_report
from paicluster.engines.common.tar_bundle import TarBundle
from paicluster.engines.interface import AppendResult, Hint
from paicluster.engines.kubernetes import gang_folder
from paicluster.engines.kubernetes.options import KubernetesOptions
from paiprotocol.errors import JOB_CONFLICT, NO_JOB, Conflict, NotFound
from pairuntime.kubernetes import bootstrap, pod_runtime
from pairuntime.reports import placement
from pairuntime.supervisor import attempt, claim, exit_record

# Shorter than a task waits for an answer.
_PLACEMENT_WAIT_S = 5.0
_MAX_PORTS = 1024


@dataclass(slots=True)
class _Rendezvous:
    """Where the tasks of a gang run, as far as they have reported it."""

    offers: dict[str, dict[str, Any]] = field(default_factory=dict)
    complete: asyncio.Event = field(default_factory=asyncio.Event)


def _checked_offer(offer: Mapping[str, Any]) -> dict[str, Any]:
    """An offer with nothing but what it may have: it goes to the other tasks of the gang."""
    ports = offer.get("ports")
    return {
        "node": untrusted_files.sanitize(offer.get("node", ""), 256),
        "ip": untrusted_files.sanitize(offer.get("ip", ""), 64),
        "gpus": untrusted_files.sanitize(offer.get("gpus", ""), 1024),
        "ports": [port for port in ports[:_MAX_PORTS] if type(port) is int]
        if isinstance(ports, list)
        else [],
    }


class KubernetesReportSink:
    """Implements the report API for one Kubernetes engine."""

    def __init__(self, home: GangFolders, options: KubernetesOptions, files: Executor, hint: Hint):
        """``files``: a single thread, so that concurrent duplicates are processed one after the other."""
        self._home = home
        self._files = files
        self._received = ReceivedReports(options.log_limit, options.log_segment)
        self._hint = hint
        # By gang: the offers of its tasks, until all are known, and an event for each.
        self._offers: dict[str, _Rendezvous] = {}

    def allows(self, uid: str, ticket: str) -> bool:
        expected = gang_folder.read_ticket(self._home, uid)
        return expected is not None and hmac.compare_digest(expected.encode(), hash_of(ticket).encode())

    async def launch_bundle(self, uid: str, job: str, component: int | None, rank: int) -> TarBundle:
        """The bundle of one task. The other parameters are for engines whose gang is one allocation."""
        return await run_in_files(self._files, lambda: self._pack(uid))

    async def claim(self, uid: str, content: Mapping[str, Any]) -> None:
        path = self._live(uid)
        await run_in_files(self._files, lambda: self._received.claim(path, content))
        self._hint(uid)

    async def place(self, uid: str, offer: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
        leader = self._home.leader_of(uid) or uid
        folder = self._home.gang(leader)
        description = gang_folder.description_of(folder)
        if description is None or os.path.lexists(self._home.task(uid) / claim.NAME):
            raise Conflict("The task has started already, or was stopped.", code=JOB_CONFLICT)
        members: list[str] = description["tasks"]
        known = self._offers.setdefault(leader, _Rendezvous())
        known.offers[uid] = _checked_offer(offer)
        if len(known.offers) == len(members):
            known.complete.set()
        try:
            async with asyncio.timeout(_PLACEMENT_WAIT_S):
                await known.complete.wait()
        except TimeoutError:
            return None
        requests = await run_in_files(self._files, lambda: gang_folder.placement_requests(folder))
        return placement.assign_ports([known.offers[member] for member in members], requests)

    def forget(self, gang: str) -> None:
        """The pods of a gang are gone: others may have other places."""
        self._offers.pop(gang, None)

    async def append(self, uid: str, stream: str, at: int, after: int, data: bytes) -> AppendResult:
        path = self._live(uid)
        return await run_in_files(self._files, lambda: self._received.append(path, stream, at, after, data))

    async def end(
        self, uid: str, record: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> Mapping[str, int] | None:
        path = self._live(uid)
        missing = await run_in_files(self._files, lambda: self._received.end(path, record, sizes))
        self._hint(uid)
        return missing

    async def record_usage(self, uid: str, data: bytes) -> None:
        path = self._live(uid)
        await run_in_files(self._files, lambda: self._received.record_usage(path, data))

    async def record_diagnostics(self, uid: str, data: bytes) -> None:
        path = self._home.gang(uid)
        if not path.is_dir():
            raise NotFound("This uid is not that of a gang.", code=NO_JOB)
        text = data.decode(errors="replace")
        await run_in_files(self._files, lambda: write_report(path / gang_folder.DIAGNOSTICS, text))

    def _live(self, uid: str) -> Path:
        """Folder of an attempt that was not given up: a pod on a node that was lost may still run."""
        path = self._home.task(uid)
        if (path / gang_folder.VERDICT).exists() and not os.path.lexists(path / exit_record.NAME):
            raise Conflict("The task was given up.", code=JOB_CONFLICT)
        return path

    def _pack(self, uid: str) -> TarBundle:
        task = self._home.task(uid)
        folder = self._home.gang(self._home.leader_of(uid) or uid)
        description = gang_folder.description_of(folder)
        if description is None:
            raise NotFound("This uid is not that of a task.", code=NO_JOB)
        if os.path.lexists(task / claim.NAME):
            raise Conflict("The task has started already, or was stopped.", code=JOB_CONFLICT)
        bundle = TarBundle()
        bundle.add_tree(
            Path(pod_runtime.RUNTIME_FOLDER), self._home.root / "runtime" / description["runtime"]
        )
        inner = Path(pod_runtime.TASK_FOLDER)
        bundle.add_folder(inner)
        for name in (gang_folder.SCRIPT, attempt.SPEC):
            bundle.add(inner / name, task / name)
        bundle.add(inner / pod_runtime.GANG, folder / pod_runtime.GANG)
        if (folder / pod_runtime.SOURCES).exists():
            bundle.add(Path(pod_runtime.SOURCES), folder / pod_runtime.SOURCES)
        bundle.add(Path(bootstrap.MARKER), b"")
        return bundle
