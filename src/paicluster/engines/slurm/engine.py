"""The Slurm engine: hands gangs over, watches their folders, asks Slurm what only Slurm knows."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from openpaisdk.errors import NotFound
from paicluster.engines.common import attempt_folder as attempts
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
from paicluster.engines.slurm import observe as looking
from paicluster.engines.slurm import untrusted_files as told
from paicluster.engines.slurm.event_files import EventFileWatcher
from paicluster.engines.slurm.gang_registry import GangRegistry, SubmittedGang
from paicluster.engines.slurm.launch_bundle import RemoteLaunch
from paicluster.engines.slurm.options import SlurmOptions
from paicluster.engines.slurm.queue_poller import FORCE_AFTER_S, QueuePoller
from paicluster.engines.slurm.report_sink import SlurmReportSink
from paicluster.engines.slurm.slurm_commands import SlurmCommands
from paicluster.engines.slurm.submitter import Submitter
from paicluster.logs.reader import LogReader
from pairuntime.supervisor import attempt, claim, exit_record

log = logging.getLogger(__name__)

T = TypeVar("T")

_AGAIN_AFTER_S = 1.0
_NODES_EVERY_S = 60.0
# Whoever wants to know what there is gets an answer no older than this, and waits for it no longer than that.
_NODES_FRESH_S = 5.0
_NODES_TIMEOUT_S = 3.0
_INLINE = 4
# What whoever carries for a task needs of the time that Slurm leaves between asking and killing.
_CARRYING_S = 4.0


class SlurmEngine:
    schedules_itself = True

    def __init__(
        self,
        options: SlurmOptions,
        *,
        grace_s: float = 10.0,
        accounts: Accounts | None = None,
        url: str = "",
        authority: str = "",
    ):
        """``url``: where tasks reach the server, if they have to. ``authority``: by what they know it."""
        self._options = options
        self._url = url
        self._authority = authority
        self._home = gang_folder.SlurmFolders(options.folder)
        self._grace_s = grace_s
        self._accounts = accounts
        self._slurm = SlurmCommands()
        self._gangs = GangRegistry(self._home)
        self._watcher = QueuePoller(
            options, self._slurm, self._gangs, self._say_of, lambda uid: self._hint(uid)
        )
        self._submitter = Submitter(self._slurm, self._startable, self._say_of, self._submitted)
        self._watcher.on_answer = self._submitter.slurm_answers_again
        self._files = ThreadPoolExecutor(1, thread_name_prefix="slurm-files")
        self._notes = EventFileWatcher(self._home, self._gangs, self._files, lambda uid: self._hint(uid))
        self._hint: Hint = lambda uid: None
        self._say: Notify = ignore_notice
        self._nodes: tuple[Node, ...] = ()
        # The last question about them, answered or not, and when it was asked.
        self._learning: asyncio.Task[None] | None = None
        self._asked_at = -math.inf
        self._kill_wait_s = 30.0
        self._runtime = Path()
        self._running: list[asyncio.Task[None]] = []
        self._telling: set[asyncio.Task[None]] = set()
        if options.container:
            self.runs_images = True
        self.reports = SlurmReportSink(self._home, options, self._files, lambda uid: self._hint(uid))

    # -- life ----------------------------------------------------------------------------------

    async def start(self, hint: Hint, notify: Notify = ignore_notice) -> None:
        self._hint, self._say = hint, notify
        # Other accounts come here only where it is shared.
        root = os.geteuid() == 0 and self._options.shared
        self._home.root.parent.mkdir(parents=True, exist_ok=True)
        for path in (self._home.root, self._home.tasks, self._home.root / "gangs"):
            gang_folder.open_folder(path, 0o711 if root else 0o700)
        self._home.notes.mkdir(exist_ok=True)
        # Tasks of any account leave notes; only the server lists them.
        self._home.notes.chmod(0o1733 if root else 0o700)
        runtimes = self._home.root / "runtime"
        self._runtime = await self._in_files(lambda: runtime_archive.install(runtimes, self._authority))
        await self.refresh_nodes(patience_s=10.0)
        for work in (self._notes.read, self._watcher.run, self._watch_nodes):
            self._running.append(asyncio.create_task(self._forever(work)))

    async def close(self) -> None:
        await self._submitter.close()
        running = [*self._running, *self._telling, *([] if self._learning is None else [self._learning])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._slurm.close()
        self._files.shutdown()

    async def _forever(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await work()
            except Exception:
                # Without it nothing would be noticed any more: it goes on, and the log says what was wrong.
                log.exception("A part of the Slurm engine failed; it is started again.")
                await asyncio.sleep(_AGAIN_AFTER_S)

    # -- reading -------------------------------------------------------------------------------

    @property
    def calls(self) -> dict[str, int]:
        """How often Slurm was asked, by command."""
        return self._slurm.calls

    def nodes(self) -> Sequence[Node]:
        return self._nodes

    def notices(self) -> Sequence[Notice]:
        return ()

    def ports_free(self, node: str, ports: Sequence[int], *, non_ephemeral: bool) -> bool:
        """Tasks find free ports themselves, where they come to run."""
        return True

    def has(self, uid: str) -> bool:
        return self._home.task(uid).exists()

    def log_folder(self, uid: str) -> Path:
        return self._home.task(uid)

    async def log_tail(self, uid: str, size: int) -> bytes:
        written = LogReader(self.log_folder(uid), "all")
        return await self._in_files(lambda: written.last(size))

    async def observe(self, uids: Sequence[str]) -> dict[str, Observation]:
        seen = await self._in_files(lambda: {uid: self._look(uid) for uid in uids}, len(uids))
        for uid, (observation, new) in seen.items():
            if new is not None:
                self._adopt(new)
            gang = self._gangs.of(uid)
            if gang is not None and observation.phase is Phase.RUNNING:
                gang.began = True
                if gang.ending:
                    # What Slurm has to say about that is worth a question now.
                    self._watcher.wake()
            if observation.phase in (Phase.ENDED, Phase.LOST):
                if observation.phase is Phase.LOST and gang is not None:
                    self._watcher.say_ended(gang)
                elif observation.start_error and gang is not None:
                    self._say_of(gang, Notice("FailedToStart", observation.start_error, "Warning"))
                self._gangs.task_over(uid)
        return {uid: observation for uid, (observation, _) in seen.items()}

    def _look(self, uid: str) -> tuple[Observation, SubmittedGang | None]:
        """What is true, and its gang if it was not known here."""
        if not self.has(uid):
            return ABSENT, None
        known = self._gangs.of(uid)
        found = None if known is not None else self._gangs.find(uid)
        gang = known if found is None else found[0]
        new = found[0] if found is not None and found[1] else None
        return looking.observe_attempt(self._home, uid, gang, self._options.file_lag_s), new

    def _adopt(self, gang: SubmittedGang) -> None:
        """A gang that another server left."""
        self._wake()
        if gang.job is not None or self._refused(gang):
            return
        asked = gang_folder.read_flag(gang.folder, gang_folder.SUBMITTING) is not None
        if asked or self._startable(gang):
            self._submitter.add(gang)

    def _refused(self, gang: SubmittedGang) -> bool:
        return gang_folder.read_flag(gang.folder, gang_folder.REFUSED) is not None

    def _startable(self, gang: SubmittedGang) -> bool:
        return any(not self._claimed(uid) for uid in gang.members)

    def _claimed(self, uid: str) -> bool:
        return os.path.lexists(self._home.task(uid) / claim.NAME)

    def exec_command(self, uid: str, command: Sequence[str], *, terminal: bool = False) -> Sequence[str]:
        path = self._home.task(uid)
        job, place = gang_folder.job_of(path), told.place_of(path)
        if not job or place is None or os.path.lexists(path / exit_record.NAME):
            raise NotFound("The task does not run.")
        words = ["srun", "--overlap", *job, f"--nodelist={place.node}", "--nodes=1", "--ntasks=1"]
        words += ["--quiet", "--pty"] if terminal else ["--quiet"]
        archive, seen = gang_folder.on_node(self._home, uid) or (self._runtime, path)
        words += [self._options.python, "-I", "-S", str(archive), "exec-slurm", str(seen), *command]
        owner = gang_folder.run_folder(self._home, uid).stat()
        if os.geteuid() == 0 and owner.st_uid != 0:
            who = (f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}")
            return ["setpriv", *who, "--init-groups", *words]
        return words

    # -- writing -------------------------------------------------------------------------------

    async def launch(self, gang: Sequence[TaskLaunch]) -> None:
        first = gang[0].uid
        if self._gangs.of(first) is not None:
            return
        account = None if self._accounts is None else self._accounts.of(gang[0].owner)
        if account is not None:
            if self._options.shared and (closed := first_blocked_folder(self._home.root)):
                raise LaunchFailed(
                    f"The account {account.name} cannot reach {self._home.root}: {closed} is closed to it. "
                    "The administrator can name another folder for Slurm in the cluster's file."
                )
            gang = with_account_environment(gang, account)
        complete = await self._in_files(lambda: self._prepare(gang, account), len(gang))
        if self._gangs.of(first) is not None:
            return
        if not complete:
            found = self._gangs.new(first, tuple(task.uid for task in gang))
            found.live.difference_update(task.uid for task in gang if self._is_over(task.uid))
            self._wake()
            if (refused := gang_folder.read_flag(found.folder, gang_folder.REFUSED)) is not None:
                self._say_of(found, Notice("SlurmRefused", refused, "Warning"))
            elif self._startable(found):
                self._submitter.add(found)
            elif not found.live:
                self._gangs.forget(found)
            if not found.live or refused is not None:
                for task in gang:
                    self._hint(task.uid)

    def _is_over(self, uid: str) -> bool:
        return looking.observe_attempt(self._home, uid, None, 0).phase in (Phase.ENDED, Phase.LOST)

    def _prepare(self, gang: Sequence[TaskLaunch], account: Account | None) -> bool:
        """Whether the gang was complete already."""
        path = self._home.gang(gang[0].uid)
        if gang_folder.members(path):
            return True
        usual: dict[str, object] = {
            "log_limit": self._options.log_limit,
            "log_segment": self._options.log_segment,
            "grace_s": self._grace_s,
            "kill_wait_s": self._kill_wait_s,
            "events": str(self._home.notes),
        }
        carried = None
        if not self._options.shared:
            carried = RemoteLaunch.new(self._url, self._options.node_folder, self._authority)
            usual["kill_wait_s"] = max(1.0, self._kill_wait_s - _CARRYING_S)
        owner = None if account is None else (account.uid, account.gid)
        words: list[str] = []
        refused = ""
        try:
            words = sbatch_command.sbatch(gang, self._options, path, account=owner)
        except LaunchFailed as error:
            refused = error.message
        gang_folder.prepare(self._home, gang, self._options, self._runtime, usual, words, account, carried)
        if refused:
            gang_folder.write_flag(path, gang_folder.REFUSED, refused)
        return False

    async def stop(self, uids: Sequence[str], grace_s: float) -> None:
        await self._in_files(lambda: self._request_stops(uids, grace_s), len(uids))
        concerned = {gang.uid: gang for uid in uids if (gang := self._find(uid)) is not None}
        to_ask: dict[tuple[str, ...], list[str]] = {}
        for gang in concerned.values():
            gang.kill_at = time.monotonic() + grace_s + FORCE_AFTER_S
            how = self._how_to_stop(gang)
            if how is not None and gang.job is not None:
                to_ask.setdefault(how, []).append(gang.job)
        for how, job_ids in to_ask.items():
            self._tell_to_end(job_ids, *how)
        for uid in uids:
            self._hint(uid)

    def _tell_to_end(self, job_ids: Sequence[str], *how: str) -> None:
        """Nobody waits for that: Slurm may be silent for minutes, and all other jobs are to go on."""
        task = asyncio.get_running_loop().create_task(self._watcher.cancel(job_ids, *how))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def _find(self, uid: str) -> SubmittedGang | None:
        found = self._gangs.find(uid)
        if found is None:
            return None
        if found[1]:
            self._adopt(found[0])
        return found[0]

    def _request_stops(self, uids: Sequence[str], grace_s: float) -> None:
        for uid in uids:
            self._request_stop(uid, grace_s)

    def _request_stop(self, uid: str, grace_s: float) -> None:
        path = self._home.task(uid)
        gang_folder.open_folder(path.parent)
        if os.path.lexists(path / exit_record.NAME):
            return
        try:
            gang_folder.request_stop(path, uid, grace_s)
        except OSError as error:
            # The folder may be an account's that does not want to be asked: it is then ended by force.
            log.warning("The task %s could not be asked to stop: %s", uid, error)

    def _how_to_stop(self, gang: SubmittedGang) -> tuple[str, ...] | None:
        """By which words Slurm is told; None: not at all."""
        running = [uid for uid in gang.members if self._runs(uid)]
        if gang.seen is not None and gang.seen.suspended and not self._startable(gang):
            return ()  # who stands still hears nothing
        if not running:
            # Nothing of it began, and now nothing will; unless some others of it are still to begin.
            return None if self._startable(gang) else ()
        if any(not os.path.lexists(self._home.task(uid) / attempt.STOP) for uid in running):
            # The signal would reach them all: those who were asked find that out by themselves.
            return None
        return ("--batch", "--signal=TERM") if len(gang.members) == 1 else ("--signal=TERM",)

    def _runs(self, uid: str) -> bool:
        path = self._home.task(uid)
        owner = told.read_claim(path)
        return (
            owner is not None
            and (not owner or "pid" in owner)
            and not os.path.lexists(path / exit_record.NAME)
        )

    async def remove(self, uids: Sequence[str]) -> None:
        def clear() -> None:
            for uid in uids:
                gang_folder.remove(self._home, uid)

        await self._in_files(clear)

    async def sizes(self) -> dict[str, int]:
        return await self._in_files(lambda: attempts.sizes(self._home.tasks))

    # -- what happens --------------------------------------------------------------------------

    def _wake(self) -> None:
        self._notes.wake()
        self._watcher.wake()

    def _say_of(self, gang: SubmittedGang, remark: Notice) -> None:
        """Once for the gang, and only what is new."""
        if gang.said != remark.message:
            gang.said = remark.message
            self._say(next(iter(gang.live), gang.uid), remark)

    def _submitted(self, gang: SubmittedGang) -> None:
        """Slurm has it, or refuses it."""
        self._wake()
        if gang.job is not None and not self._startable(gang) and not any(map(self._runs, gang.members)):
            # It was told to stop meanwhile.
            self._tell_to_end([gang.job])
        if gang.job is None:
            for uid in gang.members:
                self._hint(uid)

    # -- nodes ---------------------------------------------------------------------------------

    async def _watch_nodes(self) -> None:
        while True:
            await asyncio.sleep(_NODES_EVERY_S if self._nodes else _NODES_FRESH_S)
            await self.refresh_nodes()

    async def refresh_nodes(self, patience_s: float = _NODES_TIMEOUT_S) -> None:
        now = time.monotonic()
        if self._learning is None or (self._learning.done() and now - self._asked_at >= _NODES_FRESH_S):
            self._asked_at = now
            self._learning = asyncio.create_task(self._learn_nodes())
        # All who ask now share one question; that one of them leaves does not end it.
        await asyncio.wait([self._learning], timeout=patience_s)

    async def _learn_nodes(self) -> None:
        told = await self._slurm.nodes()
        if told is None:
            return
        if not self._nodes:
            wait = (await self._slurm.config()).get("KillWait", "").split(" ")[0]
            self._kill_wait_s = float(wait) if wait.isdigit() else self._kill_wait_s
        self._nodes = tuple(told[0])
        try:
            await self._in_files(lambda: self._write_addresses(told[1]))
        except OSError as error:
            log.warning("The addresses of Slurm's nodes cannot be written: %s", error)

    def _write_addresses(self, addresses: dict[str, str]) -> None:
        file = self._home.nodes_file
        text = json.dumps(addresses)
        if not file.exists() or file.read_text() != text:
            aside = file.with_suffix(".aside")
            aside.write_text(text)
            aside.chmod(0o644)
            aside.rename(file)

    async def _in_files(self, work: Callable[[], T], count: int = _INLINE + 1) -> T:
        """Off the loop, unless it is so little that handing it over would take longer."""
        if count <= _INLINE:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._files, work)
