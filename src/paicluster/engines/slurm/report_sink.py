"""Report sink: stores reports of tasks on nodes without a shared file system in the tasks' folders.

A client with a gang's ticket is a process of the gang's account. It can download the launch bundle until the
tasks have started, and write their claims, logs and exit records, within limits and nowhere else.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from paicluster.engines.common.gang_folders import TICKET, hash_of
from paicluster.engines.common.received_reports import ReceivedReports, run_in_files
from paicluster.engines.common.tar_bundle import TarBundle
from paicluster.engines.interface import AppendResult, Hint
from paicluster.engines.slurm import container_command, gang_folder
from paicluster.engines.slurm.options import SlurmOptions
from paiprotocol.errors import JOB_CONFLICT, NO_JOB, Conflict, NotFound
from pairuntime.slurm import gang_launcher
from pairuntime.supervisor import attempt, claim


class SlurmReportSink:
    """Implements the report API for one Slurm engine."""

    def __init__(self, home: gang_folder.SlurmFolders, options: SlurmOptions, files: Executor, hint: Hint):
        """``files``: a single thread, so that concurrent duplicates are processed one after the other."""
        self._home = home
        self._files = files
        self._received = ReceivedReports(options.log_limit, options.log_segment)
        self._hint = hint

    def allows(self, uid: str, ticket: str) -> bool:
        leader = self._home.leader_of(uid)
        expected = None if leader is None else gang_folder.read_flag(self._home.gang(leader), TICKET)
        return expected is not None and hmac.compare_digest(expected.encode(), hash_of(ticket).encode())

    async def launch_bundle(self, uid: str, job: str, component: int | None, rank: int) -> TarBundle:
        return await run_in_files(self._files, lambda: self._pack(uid, job, component, rank))

    async def claim(self, uid: str, content: Mapping[str, Any]) -> None:
        await run_in_files(self._files, lambda: self._received.claim(self._home.task(uid), content))
        self._hint(uid)

    async def place(self, uid: str, offer: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
        raise NotFound("The tasks of a Slurm job tell each other where they run.", code=NO_JOB)

    async def append(self, uid: str, stream: str, at: int, after: int, data: bytes) -> AppendResult:
        return await run_in_files(
            self._files, lambda: self._received.append(self._home.task(uid), stream, at, after, data)
        )

    async def end(
        self, uid: str, record: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> Mapping[str, int] | None:
        missing = await run_in_files(
            self._files, lambda: self._received.end(self._home.task(uid), record, sizes)
        )
        self._hint(uid)
        return missing

    async def record_usage(self, uid: str, data: bytes) -> None:
        await run_in_files(self._files, lambda: self._received.record_usage(self._home.task(uid), data))

    async def record_diagnostics(self, uid: str, data: bytes) -> None:
        text = data.decode(errors="replace")
        await run_in_files(
            self._files, lambda: gang_folder.write_flag(self._gang(uid), gang_folder.OUTPUT, text)
        )

    def _gang(self, uid: str) -> Path:
        path = self._home.gang(uid)
        if not path.is_dir():
            raise NotFound("This uid is not that of a gang.", code=NO_JOB)
        return path

    # -- downloads -----------------------------------------------------------------------------

    def _pack(self, uid: str, job: str, component: int | None, rank: int) -> TarBundle:
        path = self._gang(uid)
        text = (path / gang_launcher.GANG).read_bytes()
        description = json.loads(text)
        tasks: list[dict[str, Any]] = description["tasks"]
        if component is not None:
            tasks = [task for task in tasks if task["component"] == component][rank : rank + 1]
        else:
            self._check_owner(path, job)
            if len(tasks) > 1:  # the rendezvous server; each task downloads its own bundle
                tasks = []
        bundle = TarBundle()
        runtime = Path(description["archive"]).parent
        bundle.add_tree(runtime, self._home.root / runtime)
        relative = path.relative_to(self._home.root)
        bundle.add_folder(relative / gang_launcher.RUN)
        for task in tasks:
            self._add_task(bundle, task)
        if self._home.nodes_file.exists():
            bundle.add(relative / description["nodes"], self._home.nodes_file)
        if (path / gang_launcher.ENVIRONMENT_TEMPLATE).exists():
            bundle.add(
                relative / gang_launcher.ENVIRONMENT_TEMPLATE, path / gang_launcher.ENVIRONMENT_TEMPLATE
            )
        # Last: it marks the bundle complete.
        bundle.add(relative / gang_launcher.GANG, text)
        return bundle

    def _check_owner(self, path: Path, job: str) -> None:
        """Only one Slurm job runs a gang; it may repeat the request if the response was lost."""
        owner = gang_folder.read_flag(path, gang_folder.OWNER)
        if owner is None:
            gang_folder.write_flag(path, gang_folder.OWNER, job)
        elif owner != job:
            raise Conflict("Another Slurm job runs these tasks.", code=JOB_CONFLICT)

    def _add_task(self, bundle: TarBundle, task: Mapping[str, Any]) -> None:
        path = self._home.task(task["uid"])
        if os.path.lexists(path / claim.NAME):
            raise Conflict("The task has started already, or was stopped.", code=JOB_CONFLICT)
        relative = path.relative_to(self._home.root)
        bundle.add_work(relative / gang_folder.WORK)
        for name in (gang_folder.SCRIPT, attempt.SPEC, container_command.LOGIN):
            if name != container_command.LOGIN or (path / name).exists():
                bundle.add(relative / name, path / name)
        if task["sources"]:
            sources = self._home.sources / task["sources"]
            bundle.add(sources.relative_to(self._home.root), sources)
