"""Slurm engine: submits gangs, watches their folders, queries Slurm for what only Slurm knows."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from paicluster.engines.common import attempt_folder as attempts
from paicluster.engines.common import session_host, untrusted_files
from paicluster.engines.common.background_loop import restart_on_error
from paicluster.engines.common.unix_accounts import (
    Account,
    Accounts,
    first_blocked_folder,
    with_account_environment,
)
from paicluster.engines.interface import (
    ABSENT,
    Hint,
    LaunchFailed,
    Node,
    Notice,
    Notify,
    Observation,
    Phase,
    TaskLaunch,
    ignore_notice,
)
from paicluster.engines.slurm import gang_folder, runtime_archive, sbatch_command
from paicluster.engines.slurm.event_files import EventFileWatcher
from paicluster.engines.slurm.gang_registry import GangRegistry, SubmittedGang
from paicluster.engines.slurm.observe import observe_attempt
from paicluster.engines.slurm.options import SlurmOptions
from paicluster.engines.slurm.queue_poller import CANCEL_AFTER_S, QueuePoller
from paicluster.engines.slurm.remote_launch import RemoteLaunch
from paicluster.engines.slurm.report_sink import SlurmReportSink
from paicluster.engines.slurm.slurm_commands import SlurmCommands
from paicluster.engines.slurm.submitter import Submitter
from paicluster.engines.slurm.usage_files import UsageFiles
from paicluster.logs.reader import LogReader
from paicluster.metrics.usage import UsageReading
from paiprotocol.errors import NotFound
from pairuntime.local_files.network_fs import is_on_network
from pairuntime.supervisor import attempt, claim, exit_record

log = logging.getLogger(__name__)

T = TypeVar("T")

_NODES_INTERVAL_S = 60.0
# Until the first list of nodes has arrived from Slurm.
_FIRST_NODES_INTERVAL_S = 5.0
# How long callers of refresh_nodes wait for a newer list.
_NODES_TIMEOUT_S = 3.0
# Between two stops of a task that has not started and cannot be asked to stop.
_STOP_RETRY_INTERVAL_S = 1.0
# Work on up to this many tasks runs on the event loop: a thread switch would take longer.
_MAX_INLINE = 4
# Part of Slurm's time between SIGTERM and SIGKILL that the report uploader needs.
_UPLOAD_RESERVE_S = 4.0


class SlurmEngine:
    """Engine that delegates scheduling to Slurm."""

    schedules_itself = True

    def __init__(
        self,
        options: SlurmOptions,
        *,
        grace_s: float = 10.0,
        accounts: Accounts | None = None,
        url: str = "",
        ca_certificates: str = "",
    ):
        """``url``: the server's address for tasks that report over HTTP. ``ca_certificates``: of its CA."""
        self._options = options
        self._url = url
        self._ca_certificates = ca_certificates
        self._home = gang_folder.SlurmFolders(options.folder)
        self._grace_s = grace_s
        self._accounts = accounts
        self._slurm = SlurmCommands()
        self._gangs = GangRegistry(self._home)
        self._poller = QueuePoller(
            options,
            self._slurm,
            self._gangs,
            self._notify_gang,
            lambda uid: self._hint(uid),
            self._in_files_of_one,
        )
        self._submitter = Submitter(
            self._slurm, self._is_startable, self._notify_gang, self._submitted, self._in_files_of_one
        )
        self._poller.on_available = self._submitter.on_slurm_available
        self._files = ThreadPoolExecutor(1, thread_name_prefix="slurm-files")
        self._event_files = EventFileWatcher(
            self._home, self._gangs, self._files, lambda uid: self._hint(uid)
        )
        self._hint: Hint = lambda uid: None
        self._notify: Notify = ignore_notice
        self._nodes: tuple[Node, ...] = ()
        # The last query of the nodes, finished or not, and when it was started.
        self._nodes_query: asyncio.Task[None] | None = None
        self._nodes_queried_at = -math.inf
        self._kill_wait_s = 30.0
        self._usage_files = UsageFiles(self._home)
        # Tasks that could not be asked to stop, which was logged.
        self._unasked: set[str] = set()
        self._runtime = Path()
        # Then a request to the file system may take as long as its server is away.
        self._is_on_network = False
        self._running: list[asyncio.Task[None]] = []
        self._cancelling: set[asyncio.Task[None]] = set()
        if options.container:
            self.runs_images = True
        self.reports = SlurmReportSink(self._home, options, self._files, lambda uid: self._hint(uid))

    # -- lifecycle -----------------------------------------------------------------------------

    async def start(self, hint: Hint, notify: Notify = ignore_notice) -> None:
        self._hint, self._notify = hint, notify
        # Other accounts need access only if the folder is shared.
        root = os.geteuid() == 0 and self._options.shared
        self._home.root.parent.mkdir(parents=True, exist_ok=True)
        for path in (self._home.root, self._home.tasks, self._home.root / "gangs"):
            gang_folder.create_folder(path, 0o711 if root else 0o700)
        self._home.events.mkdir(exist_ok=True)
        # Tasks of any account create event files; only the server lists them.
        self._home.events.chmod(0o1733 if root else 0o700)
        self._is_on_network = is_on_network(self._home.root)
        runtimes = self._home.root / "runtime"
        self._runtime = await self._in_files(lambda: runtime_archive.install(runtimes, self._ca_certificates))
        await self.refresh_nodes(timeout_s=10.0)
        for work in (self._event_files.read, self._poller.run, self._watch_nodes):
            self._running.append(asyncio.create_task(restart_on_error(work, log)))

    async def close(self) -> None:
        await self._submitter.close()
        running = [
            *self._running,
            *self._cancelling,
            *([] if self._nodes_query is None else [self._nodes_query]),
        ]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._slurm.close()
        self._files.shutdown()

    # -- reading -------------------------------------------------------------------------------

    @property
    def calls(self) -> dict[str, int]:
        """Number of calls of Slurm's commands, by command."""
        return self._slurm.calls

    def nodes(self) -> Sequence[Node]:
        return self._nodes

    def notices(self) -> Sequence[Notice]:
        return ()

    def ports_free(self, node: str, ports: Sequence[int], *, non_ephemeral: bool) -> bool:
        """Always true: tasks choose free ports themselves on their node."""
        return True

    def has(self, uid: str) -> bool:
        return self._home.task(uid).exists()

    def log_folder(self, uid: str) -> Path:
        return self._home.task(uid)

    def may_stall(self, uid: str) -> bool:
        return self._is_on_network

    async def log_tail(self, uid: str, size: int) -> bytes:
        written = LogReader(self.log_folder(uid), "all")
        return await self._in_files(lambda: written.last(size))

    async def usage(self, uids: Sequence[str]) -> UsageReading:
        """Usage of tasks only: the machines are Slurm's."""
        # Not in the file thread: a slow file system must not delay what else it does.
        return await asyncio.to_thread(self._usage_files.read, uids) if uids else UsageReading()

    async def observe(self, uids: Sequence[str]) -> dict[str, Observation]:
        seen = await self._in_files(lambda: {uid: self._observe(uid) for uid in uids}, len(uids))
        for uid, (observation, new) in seen.items():
            if new is not None:
                await self._adopt(new)
            gang = self._gangs.of(uid)
            if gang is not None and observation.phase is Phase.RUNNING:
                gang.started = True
                if gang.ending:
                    # Query Slurm now for the reason.
                    self._poller.wake()
            if observation.phase in (Phase.ENDED, Phase.LOST):
                if observation.phase is Phase.LOST and gang is not None:
                    await self._poller.notify_ended(gang)
                elif observation.start_error and gang is not None:
                    self._notify_gang(gang, Notice("FailedToStart", observation.start_error, "Warning"))
                self._gangs.task_ended(uid)
        return {uid: observation for uid, (observation, _) in seen.items()}

    def _observe(self, uid: str) -> tuple[Observation, SubmittedGang | None]:
        """The observation, and the gang if it was not known here."""
        if not self.has(uid):
            return ABSENT, None
        known = self._gangs.of(uid)
        located = None if known is not None else self._gangs.find(uid)
        gang = known if located is None else located[0]
        new = located[0] if located is not None and located[1] else None
        seen = observe_attempt(
            self._home, uid, gang, self._options.file_lag_s, self._options.reason_timeout_s
        )
        if seen.phase in (Phase.ENDED, Phase.LOST):
            attempts.remove_secrets(self._home.task(uid))
        return seen, new

    async def _adopt(self, gang: SubmittedGang) -> None:
        """Take over a gang of an earlier server."""
        self._wake()
        if gang.job is None and await self._in_files_of_one(lambda: self._is_to_submit(gang)):
            self._submitter.add(gang)

    def _is_to_submit(self, gang: SubmittedGang) -> bool:
        if self._is_rejected(gang):
            return False
        was_submitting = gang_folder.read_flag(gang.folder, gang_folder.SUBMITTING) is not None
        return was_submitting or self._is_startable(gang)

    def _is_rejected(self, gang: SubmittedGang) -> bool:
        return gang_folder.read_flag(gang.folder, gang_folder.REJECTED) is not None

    def _is_startable(self, gang: SubmittedGang) -> bool:
        return any(not self._is_claimed(uid) for uid in gang.members)

    def _is_claimed(self, uid: str) -> bool:
        return os.path.lexists(self._home.task(uid) / claim.NAME)

    def exec_command(self, uid: str, command: Sequence[str], *, terminal: bool = False) -> Sequence[str]:
        _, folder = self._runtime_on_node(uid)
        # Parts of lines are passed on at once; a terminal implies it.
        option = "--pty" if terminal else "--unbuffered"
        return self._node_command(uid, ["exec-slurm", str(folder), *command], option)

    def _runtime_on_node(self, uid: str) -> tuple[Path, Path]:
        """The runtime and the attempt folder, as the node has them."""
        return gang_folder.on_node(self._home, uid) or (self._runtime, self._home.task(uid))

    def _node_command(self, uid: str, arguments: Sequence[str], *step_options: str) -> list[str]:
        """Command line that runs a command of the runtime in the job of a running task, on its node."""
        path = self._home.task(uid)
        job, placement = gang_folder.job_of(path), untrusted_files.read_placement(path)
        if not job or placement is None or os.path.lexists(path / exit_record.NAME):
            raise NotFound("The task is not running.")
        srun = ["srun", "--overlap", *job, f"--nodelist={placement.node}", "--nodes=1", "--ntasks=1"]
        srun += ["--quiet", *step_options]
        archive, _ = self._runtime_on_node(uid)
        srun += [self._options.python, "-I", "-S", str(archive), *arguments]
        if (account := self._account_of(uid)) is not None:
            user, group = account
            return ["setpriv", f"--reuid={user}", f"--regid={group}", "--init-groups", *srun]
        return srun

    def _account_of(self, uid: str) -> tuple[int, int] | None:
        """User and group of a task, where they are not those of the server."""
        owner = gang_folder.run_folder(self._home, uid).stat()
        return (owner.st_uid, owner.st_gid) if os.geteuid() == 0 and owner.st_uid != 0 else None

    def session_command(self, uid: str, *, terminal: bool = False) -> Sequence[str]:
        command = self.exec_command(uid, (), terminal=terminal)
        return session_host.host_of_node(command, self._account_of(uid))

    def forward_command(self, uid: str) -> Sequence[str]:
        node_command = self._node_command(uid, ["forward", "node"])
        return session_host.remote_forwarder(self._home.task(uid), node_command, self._account_of(uid))

    # -- writing -------------------------------------------------------------------------------

    async def launch(self, gang: Sequence[TaskLaunch]) -> None:
        first = gang[0].uid
        if self._gangs.of(first) is not None:
            return
        account = None if self._accounts is None else self._accounts.of(gang[0].owner)
        if account is not None:
            blocked = await self._in_files_of_one(lambda: first_blocked_folder(self._home.root))
            if self._options.shared and blocked:
                raise LaunchFailed(
                    f"The account {account.name} cannot reach {self._home.root}: {blocked} is closed to it. "
                    "The administrator can name another folder for Slurm in the cluster's file."
                )
            gang = with_account_environment(gang, account)
        complete, owner = await self._in_files(lambda: self._prepare(gang, account), len(gang))
        if self._gangs.of(first) is not None:
            return
        if not complete:
            submitted = self._gangs.new(first, tuple(task.uid for task in gang), owner)
            ended, rejection, is_startable = await self._in_files(
                lambda: self._state_of_new(submitted), len(gang)
            )
            submitted.live.difference_update(ended)
            self._wake()
            if rejection is not None:
                self._notify_gang(submitted, Notice("SlurmRefused", rejection, "Warning"))
            elif is_startable:
                self._submitter.add(submitted)
            elif not submitted.live:
                self._gangs.forget(submitted)
            if not submitted.live or rejection is not None:
                for task in gang:
                    self._hint(task.uid)

    def _state_of_new(self, gang: SubmittedGang) -> tuple[set[str], str | None, bool]:
        """Tasks of a prepared gang that have ended already, why it was rejected, and whether it can start."""
        ended = {uid for uid in gang.members if self._has_ended(uid)}
        return ended, gang_folder.read_flag(gang.folder, gang_folder.REJECTED), self._is_startable(gang)

    def _has_ended(self, uid: str) -> bool:
        return observe_attempt(self._home, uid, None, 0).phase in (Phase.ENDED, Phase.LOST)

    def _prepare(self, gang: Sequence[TaskLaunch], account: Account | None) -> tuple[bool, int]:
        """Write the gang's files; returns whether they were complete already, and their account."""
        path = self._home.gang(gang[0].uid)
        if gang_folder.members(path):
            return True, gang_folder.owner_of(path)
        common_spec: dict[str, object] = {
            "log_limit": self._options.log_limit,
            "log_segment": self._options.log_segment,
            "grace_s": self._grace_s,
            "kill_wait_s": self._kill_wait_s,
            "poll_interval_s": self._options.steady_interval_s,
            "events": str(self._home.events),
        }
        remote = None
        if not self._options.shared:
            remote = RemoteLaunch.new(self._url, self._options.node_folder, self._ca_certificates)
            common_spec["kill_wait_s"] = max(1.0, self._kill_wait_s - _UPLOAD_RESERVE_S)
        owner = None if account is None else (account.uid, account.gid)
        command: list[str] = []
        rejection = ""
        try:
            command = sbatch_command.sbatch(gang, self._options, path, account=owner)
        except LaunchFailed as error:
            rejection = error.message
        gang_folder.prepare(
            self._home, gang, self._options, self._runtime, common_spec, command, account, remote
        )
        if rejection:
            gang_folder.write_flag(path, gang_folder.REJECTED, rejection)
        return False, gang_folder.owner_of(path)

    async def stop(self, uids: Sequence[str], grace_s: float) -> None:
        failed = await self._in_files(lambda: self._request_stops(uids, grace_s), len(uids))
        located = [await self._find(uid) for uid in uids]
        gangs = {gang.uid: gang for gang in located if gang is not None}
        to_cancel: dict[tuple[str, ...], list[str]] = {}
        for gang in gangs.values():
            gang.kill_at = time.monotonic() + grace_s + CANCEL_AFTER_S
            options = await self._in_files_of_one(partial(self._scancel_options, gang))
            if options is not None and gang.job is not None:
                to_cancel.setdefault(options, []).append(gang.job)
        for options, job_ids in to_cancel.items():
            self._cancel_in_background(job_ids, *options)
        loop = asyncio.get_running_loop()
        for uid in uids:
            if uid in failed:
                # The hint leads to the next stop of a task that has not started: not at once on a full disk.
                loop.call_later(_STOP_RETRY_INTERVAL_S, self._hint, uid)
            else:
                self._hint(uid)

    def _cancel_in_background(self, job_ids: Sequence[str], *options: str) -> None:
        """Not awaited: Slurm may be unavailable for minutes, which must not delay other jobs."""
        task = asyncio.get_running_loop().create_task(self._poller.cancel(job_ids, *options))
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    async def _find(self, uid: str) -> SubmittedGang | None:
        located = await self._in_files_of_one(lambda: self._gangs.find(uid))
        if located is None:
            return None
        if located[1]:
            await self._adopt(located[0])
        return located[0]

    def _request_stops(self, uids: Sequence[str], grace_s: float) -> set[str]:
        """Those that could not be asked."""
        return {uid for uid in uids if not self._request_stop(uid, grace_s)}

    def _request_stop(self, uid: str, grace_s: float) -> bool:
        path = self._home.task(uid)
        try:
            gang_folder.create_folder(path.parent)
            if not os.path.lexists(path / exit_record.NAME):
                gang_folder.request_stop(path, uid, grace_s)
        except OSError as error:
            # The folder may belong to an account that prevents the request: then the job is cancelled later.
            if uid not in self._unasked:
                log.warning("The task %s could not be asked to stop: %s", uid, error)
                self._unasked.add(uid)
            return False
        self._unasked.discard(uid)
        return True

    def _scancel_options(self, gang: SubmittedGang) -> tuple[str, ...] | None:
        """Options of scancel for stopping a gang; None: scancel is not needed."""
        running = [uid for uid in gang.members if self._is_running(uid)]
        if gang.seen is not None and gang.seen.is_suspended and not self._is_startable(gang):
            return ()  # suspended processes receive no signals
        if not running:
            # None of the stopped tasks has started, and none will; but others of the gang may still start.
            return None if self._is_startable(gang) else ()
        if any(not os.path.lexists(self._home.task(uid) / attempt.STOP) for uid in running):
            # The signal would reach all tasks; those with a stop request find it themselves.
            return None
        return ("--batch", "--signal=TERM") if len(gang.members) == 1 else ("--signal=TERM",)

    def _is_running(self, uid: str) -> bool:
        path = self._home.task(uid)
        owner = untrusted_files.read_claim(path)
        return (
            owner is not None
            and (not owner or "pid" in owner)
            and not os.path.lexists(path / exit_record.NAME)
        )

    async def remove(self, uids: Sequence[str]) -> None:
        for uid in uids:
            # Not in the file thread: the millions of files of one task would delay the start of all others.
            await asyncio.to_thread(self._home.remove, uid)

    async def sizes(self) -> dict[str, int]:
        return await asyncio.to_thread(attempts.sizes, self._home.tasks)

    # -- events --------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._event_files.wake()
        self._poller.wake()

    def _notify_gang(self, gang: SubmittedGang, notice: Notice) -> None:
        """Send a notice once per gang, and only if it changed."""
        if gang.last_notice != notice.message:
            gang.last_notice = notice.message
            self._notify(next(iter(gang.live), gang.uid), notice)

    async def _submitted(self, gang: SubmittedGang) -> None:
        """Called when Slurm has accepted or rejected a gang."""
        self._wake()
        if gang.job is not None and await self._in_files_of_one(lambda: self._was_stopped(gang)):
            self._cancel_in_background([gang.job])
        if gang.job is None:
            for uid in gang.members:
                self._hint(uid)

    def _was_stopped(self, gang: SubmittedGang) -> bool:
        """Whether no task of a gang runs or can start any more."""
        return not self._is_startable(gang) and not any(map(self._is_running, gang.members))

    # -- nodes ---------------------------------------------------------------------------------

    async def _watch_nodes(self) -> None:
        while True:
            await asyncio.sleep(_NODES_INTERVAL_S if self._nodes else _FIRST_NODES_INTERVAL_S)
            await self.refresh_nodes()

    async def refresh_nodes(self, timeout_s: float = _NODES_TIMEOUT_S) -> None:
        now = time.monotonic()
        if self._nodes_query is None or (
            self._nodes_query.done() and now - self._nodes_queried_at >= self._options.steady_interval_s
        ):
            self._nodes_queried_at = now
            self._nodes_query = asyncio.create_task(self._query_nodes())
        # Concurrent callers share one query; a cancelled caller does not end it.
        await asyncio.wait([self._nodes_query], timeout=timeout_s)

    async def _query_nodes(self) -> None:
        nodes = await self._slurm.nodes()
        if nodes is None:
            return
        if not self._nodes:
            wait = (await self._slurm.config()).get("KillWait", "").split(" ")[0]
            self._kill_wait_s = float(wait) if wait.isdigit() else self._kill_wait_s
        self._nodes = tuple(nodes[0])
        try:
            await self._in_files(lambda: self._write_addresses(nodes[1]))
        except OSError as error:
            log.warning("The addresses of Slurm's nodes cannot be written: %s", error)

    def _write_addresses(self, addresses: dict[str, str]) -> None:
        file = self._home.nodes_file
        text = json.dumps(addresses)
        if not file.exists() or file.read_text() != text:
            temporary = file.with_suffix(".tmp")
            temporary.write_text(text)
            temporary.chmod(0o644)
            temporary.rename(file)

    async def _in_files_of_one(self, work: Callable[[], T]) -> T:
        return await self._in_files(work, 1)

    async def _in_files(self, work: Callable[[], T], count: int = _MAX_INLINE + 1) -> T:
        """Run in the file thread, or inline if it concerns few tasks and the file system always answers."""
        if count <= _MAX_INLINE and not self._is_on_network:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._files, work)
