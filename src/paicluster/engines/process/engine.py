"""The process engine: folders, supervisors, hints."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from openpaisdk.errors import NotFound
from paicluster.engines.common import attempt_folder, folder_size, runtime_install
from paicluster.engines.common import unix_accounts as accounts
from paicluster.engines.interface import (
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
from paicluster.engines.process import cgroup_limits, cgroups
from paicluster.engines.process.local_node import is_ephemeral
from paicluster.engines.process.prelaunch_journal import PrelaunchJournal
from paicluster.engines.process.zygote_client import ForkGroup, Zygote
from paicluster.logs.reader import LogReader
from pairuntime.supervisor import claim, exit_record, process_tree

log = logging.getLogger(__name__)

T = TypeVar("T")

# Room for what thousands of tasks have to say at once.
_HINTS_ROOM = 1 << 20
# While a dead supervisor's tree is being killed, look again this soon.
_RECHECK_S = 0.05
# Starts are told together, so late; later while so many are still to come.
_START_TIMEOUT_S = 0.01
_MANY_STARTS = 50
_BULK_START_TIMEOUT_S = 0.5
_LEAVING_S = 0.2
# So many attempts are looked at or prepared in less time than a thread takes to wake.
_INLINE = 4
# Of a large gang the folders of so many are made, then their supervisors forked while the next ones are.
_AT_ONCE = 50


class _NoMoreProcesses(LaunchFailed):
    """Nothing of the gang has started."""


class ProcessEngine:
    def __init__(
        self,
        home: Path,
        node: Node,
        *,
        tree_control: cgroups.ProcessTreeControl | None = None,
        enforce_limits: bool = False,
        accounts: accounts.Accounts | None = None,
        log_limit: int = 512 << 20,
        log_segment: int = 64 << 20,
        grace_s: float = 10.0,
        authority: str = "",
    ):
        # By which certificates tasks know the server.
        self._authority = authority
        # None: all tasks run as we do.
        self._accounts = accounts
        self._way_is_open = False
        self._tasks = home / "tasks"
        self._run = home / "run"
        self._ahead = PrelaunchJournal(self._run / "ahead")
        self._runtimes = home / "runtime"
        self._node = node
        name = "pai-" + hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]
        self._hold = (
            tree_control if tree_control is not None else cgroups.choose(name, limiting=enforce_limits)
        )
        # None: tasks are not held to what they asked for.
        self._limits = cgroup_limits.choose(name, self._hold) if enforce_limits else None
        self._usual = {"log_limit": log_limit, "log_segment": log_segment, "grace_s": grace_s}
        self._files = ThreadPoolExecutor(1, thread_name_prefix="engine-files")
        self._hint: Hint = lambda uid: None
        self._events_fd = -1
        self._events_pending = b""
        # Supervisors of which no start was heard yet, and those of which it is still to be told.
        self._unheard: set[str] = set()
        self._started: list[str] = []
        self._telling: asyncio.TimerHandle | None = None
        self._boot_id = claim.boot_id()
        self._runtime = self._runtimes
        self._zygote: Zygote | None = None
        self._pidfds: dict[str, int] = {}

    # -- life ----------------------------------------------------------------------------------

    async def start(self, hint: Hint, notify: Notify = ignore_notice) -> None:
        self._hint = hint
        for path in (self._tasks, self._run, self._runtimes):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for root in self._roots():
            root.mkdir(exist_ok=True)
            _sweep(root)
        events = self._run / "events"
        if not events.exists():
            os.mkfifo(events, 0o600)
        # Opened for reading and writing, so that it never reads as closed when no task runs.
        self._events_fd = os.open(events, os.O_RDWR | os.O_NONBLOCK)
        with contextlib.suppress(OSError):  # where an account has used up its pipes
            # Thousands may have something to say while we are busy launching them: what found no room
            # would be noticed only by the slow sweep.
            fcntl.fcntl(self._events_fd, fcntl.F_SETPIPE_SZ, _HINTS_ROOM)
        asyncio.get_running_loop().add_reader(self._events_fd, self._read_events)
        self._discard_prelaunched()
        self._runtime = runtime_install.install(self._runtimes, self._authority)
        self._zygote = Zygote(self._runtime)
        await self._zygote.start()

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        if self._events_fd >= 0:
            loop.remove_reader(self._events_fd)
            os.close(self._events_fd)
            self._events_fd = -1
        self._wait_for_exiting_supervisors()
        for uid in list(self._pidfds):
            self._unwatch(uid)
        if self._zygote is not None:
            await self._zygote.close()
        self._ahead.close()
        self._files.shutdown()
        for root in self._roots():
            _sweep(root)
            try:
                root.rmdir()
            except OSError:
                pass  # tasks go on in there

    def _discard_prelaunched(self) -> None:
        """What a server that died had laid ahead. What is to start after all is laid anew."""
        try:
            for uid in self._ahead.open():
                path = attempt_folder.path_of(self._tasks, uid)
                # Its supervisor may have been let go a moment ago: who is there first has it.
                if path.exists() and claim.bury(str(path), uid):
                    folder_size.remove_tree(path)
            self._ahead.clear()
        except OSError as error:  # a full disk: the next server tries again
            log.warning("What an earlier server had made ready could not be removed: %s", error)

    def _wait_for_exiting_supervisors(self) -> None:
        """A supervisor that has told the end of its task is gone in a moment: then its cgroup can go too."""
        leaving = select.poll()
        count = 0
        for uid, fd in self._pidfds.items():
            if (attempt_folder.path_of(self._tasks, uid) / exit_record.NAME).exists():
                leaving.register(fd, select.POLLIN)
                count += 1
        deadline = time.monotonic() + _LEAVING_S
        while count and time.monotonic() < deadline:
            for fd, _ in leaving.poll(_LEAVING_S * 1000):
                leaving.unregister(fd)
                count -= 1

    def _roots(self) -> list[Path]:
        """The folders in which each attempt gets a cgroup."""
        held = [self._hold.root] if self._hold.root is not None else []
        return held + list(self._limits.roots if self._limits is not None else ())

    # -- reading -------------------------------------------------------------------------------

    def nodes(self) -> Sequence[Node]:
        return (self._node,)

    def notices(self) -> Sequence[Notice]:
        if self._limits is None or not self._limits.missing:
            return ()
        what = " and the ".join(self._limits.missing)
        message = f"This machine does not let the cluster limit the {what} of a task: the job runs without."
        return (Notice("LimitsNotEnforced", message),)

    def has(self, uid: str) -> bool:
        return attempt_folder.path_of(self._tasks, uid).exists()

    def log_folder(self, uid: str) -> Path:
        return attempt_folder.path_of(self._tasks, uid)

    def ports_free(self, node: str, ports: Sequence[int], *, non_ephemeral: bool) -> bool:
        if non_ephemeral and any(is_ephemeral(port) for port in ports):
            return False
        for port in ports:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("", port))
                except OSError:
                    return False
        return True

    def exec_command(self, uid: str, command: Sequence[str], *, terminal: bool = False) -> Sequence[str]:
        path = attempt_folder.path_of(self._tasks, uid)
        if attempt_folder.observe(path).phase is not Phase.RUNNING:
            raise NotFound("The task does not run, so that nothing can be run beside it.")
        return [sys.executable, "-I", "-S", str(self._runtime), "beside", str(path), *command]

    async def observe(self, uids: Sequence[str]) -> dict[str, Observation]:
        seen = await self._in_files(lambda: self._look(uids), len(uids))
        for uid, observation in seen.items():
            if observation.phase is not Phase.ABSENT:
                self._unheard.discard(uid)  # what it said may have been lost
            if observation.phase is Phase.RUNNING:
                self._watch(uid)
        return seen

    async def log_tail(self, uid: str, size: int) -> bytes:
        written = LogReader(self.log_folder(uid), "all")
        return await self._in_files(lambda: written.last(size))

    def _look(self, uids: Sequence[str]) -> dict[str, Observation]:
        return {
            uid: self._settle(uid, attempt_folder.observe(attempt_folder.path_of(self._tasks, uid)))
            for uid in uids
        }

    def _settle(self, uid: str, seen: Observation) -> Observation:
        """A lost attempt is reported as lost only when nothing of it is left."""
        if seen.phase is Phase.ENDED:
            if uid not in self._pidfds:
                # Its supervisor ended while nobody watched; else the cgroup goes when it has left it.
                self._hold.cgroup(uid).remove()
            if self._limits is not None:
                self._limits.remove(uid)
        if seen.phase is not Phase.LOST:
            return seen
        path = attempt_folder.path_of(self._tasks, uid)
        owner = attempt_folder.owner_of(path) or {}
        if owner.get("boot_id", self._boot_id) != self._boot_id:
            return seen  # the machine was started anew meanwhile: nothing can be left
        # As it was started, which need not be how trees are held now.
        group = attempt_folder.cgroup_of(path) or self._hold.cgroup(uid)
        mark = attempt_folder.environment_marker(uid).encode()
        if process_tree.kill_orphaned(group, mark, str(path / claim.NAME), str(path / attempt_folder.WORK)):
            return Observation(Phase.RUNNING, started_ms=seen.started_ms)
        group.remove()
        if self._limits is not None:
            self._limits.remove(uid)
        why = attempt_folder.supervisor_failure(path)
        if why:
            log.error("The supervisor of attempt %s failed:\n%s", uid, why)
        return seen

    # -- writing -------------------------------------------------------------------------------

    async def launch(self, gang: Sequence[TaskLaunch]) -> None:
        await self._launch(gang)

    async def launch_when_committed(self, gang: Sequence[TaskLaunch], committed: Awaitable[bool]) -> None:
        if not self._ahead.add([task.uid for task in gang]):
            if await committed:
                await self._launch(gang)
            return
        try:
            await self._launch(gang, committed)
        finally:
            self._ahead.finish()

    async def _launch(self, gang: Sequence[TaskLaunch], committed: Awaitable[bool] | None = None) -> None:
        if not gang:
            return
        account = self._account_of(gang)
        if account is not None:
            gang = accounts.with_account_environment(gang, account)
        together = ForkGroup()
        made: list[Path] = []
        try:
            if not await self._launch_parts(gang, account, together, made, committed):
                await self._in_files(lambda: _remove_all(made), len(made))
        except OSError as e:
            _remove_all(made)
            raise LaunchFailed(
                f"The tasks' folders could not be written: {e.strerror} ({e.filename})."
            ) from e
        except _NoMoreProcesses:
            raise
        except LaunchFailed:
            # The zygote died before it could tell whether they had started.
            await self.stop([task.uid for task in gang], 0)
            raise

    async def _launch_parts(
        self,
        gang: Sequence[TaskLaunch],
        account: accounts.Account | None,
        together: ForkGroup,
        made: list[Path],
        committed: Awaitable[bool] | None,
    ) -> bool:
        """All folders and all supervisors, or none: nothing is claimed before the last one is there.

        While the folders of some are made, the supervisors of those before them are forked. They go when that
        is ``certain``; False: it turned out that they are not to.
        """
        assert self._zygote is not None
        with self._common_files(gang) as shared:
            forking: list[asyncio.Task[None]] = []
            try:
                for start in range(0, len(gang), _AT_ONCE):
                    part = gang[start : start + _AT_ONCE]

                    def prepare(part: Sequence[TaskLaunch] = part) -> list[Path]:
                        return [self._prepare_one(task, shared, account, made) for task in part]

                    folders = await self._in_files(prepare, len(part))
                    if committed is not None or start + _AT_ONCE < len(gang):
                        fork = self._fork(together, part, folders, last=False)
                        forking.append(asyncio.create_task(fork))
                        continue
                    await asyncio.gather(*forking)
                    await self._fork(together, part, folders, last=True)
                if committed is None:
                    return True
                await asyncio.gather(*forking)
                wanted = await committed
            except BaseException:
                await asyncio.gather(*forking, return_exceptions=True)
                await self._zygote.drop(together)
                raise
            if not wanted:
                await self._zygote.drop(together)
            elif not await self._zygote.go(together):
                # Whoever looks now finds that nothing has begun, and launches again.
                for task in gang:
                    self._hint(task.uid)
            return wanted

    async def _fork(
        self, together: ForkGroup, part: Sequence[TaskLaunch], folders: Sequence[Path], *, last: bool
    ) -> None:
        assert self._zygote is not None
        groups = map(self._group_of, part)
        uids = [task.uid for task in part]
        self._unheard.update(uids)
        pids = [-1]
        try:
            pids = await self._zygote.fork(together, list(zip(folders, groups, strict=True)), last=last)
        finally:
            if pids[0] < 0:
                self._unheard.difference_update(uids)
        if pids[0] < 0:
            raise _NoMoreProcesses(f"The machine could not start another process: {os.strerror(-pids[0])}.")
        for uid, pid in zip(uids, pids, strict=True):
            self._watch(uid, pid)

    @contextlib.contextmanager
    def _common_files(self, gang: Sequence[TaskLaunch]) -> Iterator[Mapping[int, Path]]:
        """What the tasks of a gang have in common, in files that all their folders link to."""
        shared: dict[int, Path] = {}
        try:
            for task in gang if len(gang) > 1 else ():
                key = id(task.shared_environment)
                if key not in shared:
                    shared[key] = self._run / f"env.{task.uid}"
                    attempt_folder.write_shared_environment(shared[key], task)
            yield shared
        finally:
            for path in shared.values():
                path.unlink(missing_ok=True)

    def _group_of(self, task: TaskLaunch) -> process_tree.Cgroup:
        """Where the supervisor is born. That of a task with limits puts the task into cgroups, not itself."""
        return (
            process_tree.Cgroup(process_tree.PROC, "")
            if self._limits_of(task)
            else self._hold.cgroup(task.uid)
        )

    def _limits_of(self, task: TaskLaunch) -> list[dict[str, object]]:
        return [] if self._limits is None else self._limits.groups(task.uid, task.cpu, task.memory_mb)

    def _account_of(self, gang: Sequence[TaskLaunch]) -> accounts.Account | None:
        """Who the gang, which is one user's, runs as; None: as we do."""
        found = self._accounts.of(gang[0].owner) if self._accounts is not None and gang else None
        if found is not None and not self._way_is_open:
            accounts.allow_traversal(self._tasks.parent, (self._tasks, self._runtimes))
            self._way_is_open = True
        return found

    def _prepare_one(
        self,
        task: TaskLaunch,
        shared: Mapping[int, Path],
        account: accounts.Account | None,
        made: list[Path],
    ) -> Path:
        path = attempt_folder.path_of(self._tasks, task.uid)
        if attempt_folder.is_complete(path, self._boot_id):
            return path
        made.append(path)
        spec: dict[str, object] = {
            **self._usual,
            "boot_id": self._boot_id,
            "events": str(self._run / "events"),
            "tree": self._hold.as_spec(task.uid),
        }
        if limited := self._limits_of(task):
            spec["limits"] = limited
        self._prepare(path, task, spec, shared.get(id(task.shared_environment)), account)
        return path

    def _prepare(
        self,
        path: Path,
        task: TaskLaunch,
        spec: dict[str, object],
        shared_file: Path | None,
        account: accounts.Account | None,
    ) -> None:
        attempt_folder.prepare(path, task, spec, shared_file, account, runtime=self._runtime)

    async def stop(self, uids: Sequence[str], grace_s: float) -> None:
        await self._in_files(lambda: self._stop_all(uids, grace_s), len(uids))
        for uid in uids:
            self._hint(uid)

    def _stop_all(self, uids: Sequence[str], grace_s: float) -> None:
        for uid in uids:
            self._stop_one(uid, grace_s)

    def _stop_one(self, uid: str, grace_s: float) -> None:
        path = attempt_folder.path_of(self._tasks, uid)
        if attempt_folder.request_stop(path, uid, grace_s):
            return
        owner = attempt_folder.owner_of(path)
        if owner is not None and not owner.get("tombstone"):
            _signal_owner(owner, signal.SIGTERM)

    async def remove(self, uids: Sequence[str]) -> None:
        for uid in uids:
            path = attempt_folder.path_of(self._tasks, uid)
            await self._in_files(lambda path=path: folder_size.remove_tree(path))  # type: ignore[misc]

    async def sizes(self) -> dict[str, int]:
        return await self._in_files(lambda: attempt_folder.sizes(self._tasks))

    # -- hints ---------------------------------------------------------------------------------

    def _read_events(self) -> None:
        try:
            data = os.read(self._events_fd, 65536)
        except BlockingIOError:
            return
        *lines, self._events_pending = (self._events_pending + data).split(b"\n")
        for line in lines:
            what, _, name = line.partition(b" ")
            uid = name.decode("ascii", "replace")
            if what == b"started":
                self._note_started(uid)
            else:
                self._hint(uid)

    def _note_started(self, uid: str) -> None:
        self._started.append(uid)
        self._unheard.discard(uid)
        loop = asyncio.get_running_loop()
        # Most tasks that end at once say so within the shorter time: one look then tells both.
        due = loop.time() + (
            _BULK_START_TIMEOUT_S if len(self._unheard) >= _MANY_STARTS else _START_TIMEOUT_S
        )
        if self._telling is not None:
            if self._telling.when() <= due:
                return
            self._telling.cancel()
        self._telling = loop.call_at(due, self._tell_started)

    def _tell_started(self) -> None:
        """All that have started meanwhile at once: for a large gang each look costs by its size."""
        self._telling = None
        started, self._started = self._started, []
        for uid in started:
            self._hint(uid)

    def _watch(self, uid: str, pid: int | None = None) -> None:
        """Be told when the supervisor dies. A wrong or missing pidfd costs a hint, never the truth."""
        if uid in self._pidfds:
            return
        if pid is None:
            owner = attempt_folder.owner_of(attempt_folder.path_of(self._tasks, uid))
            if owner is None:
                return
            pid = _living_owner(owner)
            if pid is None:
                # It died, or its tree is still being killed: come back.
                asyncio.get_running_loop().call_later(_RECHECK_S, self._hint, uid)
                return
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            self._unheard.discard(uid)
            self._hint(uid)
            return
        self._pidfds[uid] = fd
        asyncio.get_running_loop().add_reader(fd, self._supervisor_ended, uid)

    def _supervisor_ended(self, uid: str) -> None:
        self._unheard.discard(uid)
        self._unwatch(uid)
        self._hold.cgroup(uid).remove()
        self._hint(uid)

    def _unwatch(self, uid: str) -> None:
        fd = self._pidfds.pop(uid, None)
        if fd is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    async def _in_files(self, work: Callable[[], T], count: int = _INLINE + 1) -> T:
        """Off the loop, unless it is so little that handing it over would take longer."""
        if count <= _INLINE:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._files, work)


def _remove_all(laid: Sequence[Path]) -> None:
    """Folders that were laid for nothing."""
    for path in laid:
        if attempt_folder.owner_of(path) is None:
            folder_size.remove_tree(path)


def _sweep(root: Path) -> None:
    """Remove the cgroups that nobody is in; the kernel refuses for the others."""
    for path in root.iterdir():
        if path.is_dir():
            try:
                path.rmdir()
            except OSError:
                pass


def _living_owner(owner: dict[str, object]) -> int | None:
    """The supervisor's pid, if the process with that number is still the one that claimed."""
    pid = owner.get("pid")
    if not isinstance(pid, int) or owner.get("boot_id") != claim.boot_id():
        return None
    return pid if claim.start_time(pid) == owner.get("start_time") else None


def _signal_owner(owner: dict[str, object], signum: signal.Signals) -> None:
    pid = owner.get("pid")
    if not isinstance(pid, int):
        return
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # Checked while the pidfd pins the process: the number cannot change hands in between.
        if _living_owner(owner) is not None:
            signal.pidfd_send_signal(fd, signum)
    except ProcessLookupError:
        pass
    finally:
        os.close(fd)
