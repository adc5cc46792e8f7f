"""The process engine: tasks are processes of this machine, each under its own supervisor."""

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

from paicluster.engines.common import (
    attempt_folder,
    external_wait,
    folder_size,
    mount_specs,
    runtime_install,
    session_host,
)
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
from paicluster.engines.process.attempt_owner import living_owner, signal_owner
from paicluster.engines.process.local_node import is_ephemeral
from paicluster.engines.process.local_usage import LocalUsage
from paicluster.engines.process.prelaunch_journal import PrelaunchJournal
from paicluster.engines.process.zygote_client import ForkGroup, Zygote
from paicluster.logs.reader import LogReader
from paicluster.metrics.usage import UsageReading
from paiprotocol.errors import NotFound
from pairuntime.supervisor import claim, exit_record, process_tree

log = logging.getLogger(__name__)

T = TypeVar("T")

# Size of the event pipe: thousands of tasks may write at once.
_EVENT_PIPE_BYTES = 1 << 20
# Interval of checks while the tree of a dead supervisor is being killed.
_RECHECK_INTERVAL_S = 0.05
# Hints about started tasks are batched for this long; longer while at least so many starts are expected.
_START_BATCH_S = 0.01
_MIN_BULK_STARTS = 50
_BULK_START_BATCH_S = 0.5
_SUPERVISOR_EXIT_TIMEOUT_S = 0.2
# Up to so many attempts are observed or prepared in less time than a thread takes to wake.
_MAX_INLINE = 4
# Batch of a large gang: its supervisors are forked while the folders of the next batch are prepared.
_LAUNCH_BATCH = 50


# Processes and threads of one task. A quarter of the smallest table of processes that Linux has, 32768, and
# more than a program needs that does not start them without end.
DEFAULT_MAX_PROCESSES = 8192


class _ForkFailed(LaunchFailed):
    """The kernel refused a fork; no task of the gang has started."""


class ProcessEngine:
    def __init__(
        self,
        home: Path,
        node: Node,
        *,
        tree_control: cgroups.ProcessTreeControl | None = None,
        enforce_limits: bool = False,
        max_processes: int = DEFAULT_MAX_PROCESSES,
        accounts: accounts.Accounts | None = None,
        log_limit: int = 512 << 20,
        log_segment: int = 64 << 20,
        grace_s: float = 10.0,
        ca_certificates: str = "",
    ):
        # Certificates by which tasks verify the server.
        self._ca_certificates = ca_certificates
        # None: all tasks run under the server's account.
        self._accounts = accounts
        self._traversal_allowed = False
        self._tasks = home / "tasks"
        self._run = home / "run"
        self._prelaunches = PrelaunchJournal(self._run / "prelaunch")
        self._runtimes = home / "runtime"
        self._node = node
        name = "pai-" + hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]
        self._tree_control = (
            tree_control if tree_control is not None else cgroups.choose(name, limiting=enforce_limits)
        )
        # None: limits are not enforced.
        self._limits = cgroup_limits.choose(name, self._tree_control) if enforce_limits else None
        # Of each task; 0: no limit.
        self._max_processes = max_processes if enforce_limits else 0
        self._spec_defaults = {"log_limit": log_limit, "log_segment": log_segment, "grace_s": grace_s}
        self._files = ThreadPoolExecutor(1, thread_name_prefix="engine-files")
        self._hint: Hint = lambda uid: None
        self._events_fd = -1
        self._events_pending = b""
        # Supervisors whose start was not reported yet, and starts that are to be passed on as hints.
        self._expected_starts: set[str] = set()
        self._started: list[str] = []
        # A handle tells when it is due, but not that of uvloop for a time that has come.
        self._start_timer: asyncio.Handle | None = None
        self._starts_due = 0.0
        self._boot_id = claim.boot_id()
        self._runtime = self._runtimes
        self._zygote: Zygote | None = None
        self._pidfds: dict[str, int] = {}
        self._usage = LocalUsage(node.name, self._tasks, self._limits, self._is_container)

    # -- lifecycle -----------------------------------------------------------------------------

    async def start(self, hint: Hint, notify: Notify = ignore_notice) -> None:
        self._hint = hint
        for path in (self._tasks, self._run, self._runtimes):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for root in self._roots():
            root.mkdir(exist_ok=True)
            cgroups.remove_empty(root)
        events = self._run / "events"
        if not events.exists():
            os.mkfifo(events, 0o600)
        # Opened for reading and writing, so that it never reads as closed when no task runs.
        self._events_fd = os.open(events, os.O_RDWR | os.O_NONBLOCK)
        with contextlib.suppress(OSError):  # the account's limit of pipe memory is reached
            # Thousands of tasks may write while the loop is busy launching: an event that does not fit would
            # be noticed only by the slow sweep.
            fcntl.fcntl(self._events_fd, fcntl.F_SETPIPE_SZ, _EVENT_PIPE_BYTES)
        asyncio.get_running_loop().add_reader(self._events_fd, self._read_events)
        self._discard_prelaunched()
        mount_specs.remove_all_leftovers(self._tasks.parent, self._is_finished)
        self._runtime = runtime_install.install(self._runtimes, self._ca_certificates)
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
        self._prelaunches.close()
        self._files.shutdown()
        for root in self._roots():
            cgroups.remove_empty(root)
            try:
                root.rmdir()
            except OSError:
                pass  # tasks are running in it

    def _discard_prelaunched(self) -> None:
        """Delete folders that a server prepared before it died.

        A launch that was committed prepares them again.
        """
        try:
            for uid in self._prelaunches.open():
                path = attempt_folder.path_of(self._tasks, uid)
                # Its supervisor may have been started just then: the claim decides.
                if path.exists() and claim.bury(str(path), uid):
                    folder_size.remove_tree(path)
            self._prelaunches.clear()
        except OSError as error:  # a full disk: the next server tries again
            log.warning("Attempt folders prepared by an earlier server could not be removed: %s", error)

    def _is_finished(self, uid: str) -> bool:
        path = attempt_folder.path_of(self._tasks, uid)
        return not path.exists() or attempt_folder.observe(path).phase in (Phase.ENDED, Phase.LOST)

    def _wait_for_exiting_supervisors(self) -> None:
        """Wait for supervisors that have written their exit record, so that their cgroups can be removed."""
        exiting = select.poll()
        count = 0
        for uid, fd in self._pidfds.items():
            if (attempt_folder.path_of(self._tasks, uid) / exit_record.NAME).exists():
                exiting.register(fd, select.POLLIN)
                count += 1
        deadline = time.monotonic() + _SUPERVISOR_EXIT_TIMEOUT_S
        while count and time.monotonic() < deadline:
            for fd, _ in exiting.poll(_SUPERVISOR_EXIT_TIMEOUT_S * 1000):
                exiting.unregister(fd)
                count -= 1

    def _roots(self) -> list[Path]:
        """Folders with one cgroup for each attempt."""
        roots = [self._tree_control.root] if self._tree_control.root is not None else []
        return roots + list(self._limits.roots if self._limits is not None else ())

    # -- reading -------------------------------------------------------------------------------

    def nodes(self) -> Sequence[Node]:
        return (self._node,)

    def notices(self) -> Sequence[Notice]:
        if self._limits is None or not self._limits.missing:
            return ()
        missing = " and the ".join(self._limits.missing)
        message = (
            f"The {missing} of a task cannot be limited on this machine: the job runs without this limit."
        )
        return (Notice("LimitsNotEnforced", message),)

    def has(self, uid: str) -> bool:
        return attempt_folder.path_of(self._tasks, uid).exists()

    def may_stall(self, uid: str) -> bool:
        return False

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
        folder = self._folder_of_running(uid)
        return [sys.executable, "-I", "-S", str(self._runtime), "exec", str(folder), *command]

    def session_command(self, uid: str, *, terminal: bool = False) -> Sequence[str]:
        return session_host.host_in_task(self._folder_of_running(uid))

    def forward_command(self, uid: str) -> Sequence[str]:
        return session_host.local_forwarder(self._folder_of_running(uid))

    def _folder_of_running(self, uid: str) -> Path:
        """Folder of an attempt in which commands can be run."""
        path = attempt_folder.path_of(self._tasks, uid)
        if attempt_folder.observe(path).phase is not Phase.RUNNING:
            raise NotFound("The task is not running, so no command can be run in it.")
        return path

    async def observe(self, uids: Sequence[str]) -> dict[str, Observation]:
        seen = await self._in_files(lambda: self._observe_all(uids), len(uids))
        for uid, observation in seen.items():
            if observation.phase is not Phase.ABSENT:
                self._expected_starts.discard(uid)  # its event may have been lost
            if observation.phase is Phase.RUNNING:
                self._watch(uid)
        return seen

    async def log_tail(self, uid: str, size: int) -> bytes:
        written = LogReader(self.log_folder(uid), "all")
        return await self._in_files(lambda: written.last(size))

    def _observe_all(self, uids: Sequence[str]) -> dict[str, Observation]:
        return {uid: self._observe_one(uid) for uid in uids}

    def _observe_one(self, uid: str) -> Observation:
        path = attempt_folder.path_of(self._tasks, uid)
        seen = self._verify(uid, attempt_folder.observe(path))
        if seen.phase in (Phase.ENDED, Phase.LOST):
            # Before the end is written to the database: after a crash in between it is observed again.
            attempt_folder.remove_secrets(path)
            mount_specs.remove_leftovers(path)
        return seen

    def _verify(self, uid: str, seen: Observation) -> Observation:
        """Report an attempt as LOST only when no process of it is left; clean up its cgroups."""
        if seen.phase is Phase.ENDED:
            if uid not in self._pidfds:
                # Its supervisor exited while it was not watched; else `_supervisor_ended` removes the cgroup.
                self._tree_control.cgroup(uid).remove()
            if self._limits is not None:
                self._limits.remove(uid)
        if seen.phase is not Phase.LOST:
            return seen
        path = attempt_folder.path_of(self._tasks, uid)
        owner = attempt_folder.owner_of(path) or {}
        if owner.get("boot_id", self._boot_id) != self._boot_id:
            return seen  # the machine was rebooted: no process can be left
        # The mechanism it was started with, which may differ from the current one.
        group = attempt_folder.cgroup_of(path) or self._tree_control.cgroup(uid)
        marker = attempt_folder.environment_marker(uid).encode()
        if process_tree.kill_orphaned(group, marker, str(path / claim.NAME), str(path / attempt_folder.WORK)):
            return Observation(Phase.RUNNING, started_ms=seen.started_ms)
        group.remove()
        if self._limits is not None:
            self._limits.remove(uid)
        failure = attempt_folder.supervisor_failure(path)
        if failure:
            log.error("The supervisor of attempt %s failed:\n%s", uid, failure)
        return seen

    # -- writing -------------------------------------------------------------------------------

    async def launch(self, gang: Sequence[TaskLaunch]) -> None:
        await self._launch(gang)

    async def launch_when_committed(self, gang: Sequence[TaskLaunch], committed: Awaitable[bool]) -> None:
        if not self._prelaunches.add([task.uid for task in gang]):
            if await committed:
                await self._launch(gang)
            return
        try:
            await self._launch(gang, committed)
        finally:
            self._prelaunches.finish()

    async def _launch(self, gang: Sequence[TaskLaunch], committed: Awaitable[bool] | None = None) -> None:
        if not gang:
            return
        account = self._account_of(gang)
        if account is not None:
            gang = accounts.with_account_environment(gang, account)
        group = ForkGroup()
        created: list[Path] = []
        try:
            if not await self._launch_parts(gang, account, group, created, committed):
                await self._in_files(lambda: _remove_all(created), len(created))
        except OSError as e:
            _remove_all(created)
            raise LaunchFailed.not_written(e) from e
        except _ForkFailed:
            raise
        except LaunchFailed:
            # The zygote died before it could report whether they had started.
            try:
                await self.stop([task.uid for task in gang], 0)
            except OSError as error:  # the launch is what failed; its caller stops the tasks, too
                log.warning("The tasks of a failed launch cannot be stopped yet: %s", error)
            raise

    async def _launch_parts(
        self,
        gang: Sequence[TaskLaunch],
        account: accounts.Account | None,
        group: ForkGroup,
        created: list[Path],
        committed: Awaitable[bool] | None,
    ) -> bool:
        """Prepare all folders and fork all supervisors, or none: nothing is claimed before all are forked.

        While the folders of one batch are prepared, the supervisors of the previous one are forked. They
        start their tasks once ``committed`` is true. False: it was not committed.
        """
        assert self._zygote is not None
        with self._shared_files(gang) as shared:
            forking: list[asyncio.Task[None]] = []
            try:
                for start in range(0, len(gang), _LAUNCH_BATCH):
                    part = gang[start : start + _LAUNCH_BATCH]

                    def prepare(part: Sequence[TaskLaunch] = part) -> list[Path]:
                        return [self._prepare_one(task, shared, account, created) for task in part]

                    folders = await self._in_files(prepare, len(part))
                    if committed is not None or start + _LAUNCH_BATCH < len(gang):
                        fork = self._fork(group, part, folders, last=False)
                        forking.append(asyncio.create_task(fork))
                        continue
                    await external_wait.outside(asyncio.gather(*forking))
                    await external_wait.outside(self._fork(group, part, folders, last=True))
                if committed is None:
                    return True
                await external_wait.outside(asyncio.gather(*forking))
                is_committed = await committed
            except BaseException:
                await asyncio.gather(*forking, return_exceptions=True)
                await self._zygote.drop(group)
                raise
            if not is_committed:
                await self._zygote.drop(group)
            elif not await external_wait.outside(self._zygote.go(group)):
                # The controller observes that nothing has started, and launches again.
                for task in gang:
                    self._hint(task.uid)
            return is_committed

    async def _fork(
        self, group: ForkGroup, part: Sequence[TaskLaunch], folders: Sequence[Path], *, last: bool
    ) -> None:
        assert self._zygote is not None
        groups = map(self._group_of, part)
        uids = [task.uid for task in part]
        self._expected_starts.update(uids)
        pids = [-1]
        try:
            pids = await self._zygote.fork(group, list(zip(folders, groups, strict=True)), last=last)
        finally:
            if pids[0] < 0:
                self._expected_starts.difference_update(uids)
        if pids[0] < 0:
            raise _ForkFailed(f"The machine could not start another process: {os.strerror(-pids[0])}.")
        for uid, pid in zip(uids, pids, strict=True):
            self._watch(uid, pid)

    @contextlib.contextmanager
    def _shared_files(self, gang: Sequence[TaskLaunch]) -> Iterator[Mapping[int, Path]]:
        """Files with the variables that tasks of a gang share; all task folders link to them."""
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
        """Cgroup in which the supervisor starts; none for a task with limits, which only the task joins."""
        return (
            process_tree.Cgroup(process_tree.PROC, "")
            if self._limits_of(task)
            else self._tree_control.cgroup(task.uid)
        )

    def _limits_of(self, task: TaskLaunch) -> list[dict[str, object]]:
        if self._limits is None:
            return []
        return self._limits.groups(task.uid, task.cpu, task.memory_mb, self._max_processes)

    def _account_of(self, gang: Sequence[TaskLaunch]) -> accounts.Account | None:
        """Account of the gang, which belongs to one user; None: the server's."""
        account = self._accounts.of(gang[0].owner) if self._accounts is not None and gang else None
        if account is not None and not self._traversal_allowed:
            accounts.allow_traversal(self._tasks.parent, (self._tasks, self._runtimes))
            self._traversal_allowed = True
        return account

    def _prepare_one(
        self,
        task: TaskLaunch,
        shared: Mapping[int, Path],
        account: accounts.Account | None,
        created: list[Path],
    ) -> Path:
        path = attempt_folder.path_of(self._tasks, task.uid)
        if attempt_folder.is_complete(path, self._boot_id):
            return path
        created.append(path)
        spec: dict[str, object] = {
            **self._spec_defaults,
            "boot_id": self._boot_id,
            "events": str(self._run / "events"),
            "cgroup": self._tree_control.as_spec(task.uid),
        }
        if limits := self._limits_of(task):
            spec["limits"] = limits
        if self._limits is not None and self._limits.pids is None and self._max_processes:
            # Counts all processes of the account, not only those of the task: better than none.
            spec["account_processes"] = self._max_processes
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
            signal_owner(owner, signal.SIGTERM)

    async def remove(self, uids: Sequence[str]) -> None:
        for uid in uids:
            # Not in the file thread: the millions of files of one task would delay the start of all others.
            await asyncio.to_thread(folder_size.remove_tree, attempt_folder.path_of(self._tasks, uid))

    async def sizes(self) -> dict[str, int]:
        return await asyncio.to_thread(attempt_folder.sizes, self._tasks)

    def _is_container(self, folder: Path) -> bool:
        return False

    async def usage(self, uids: Sequence[str]) -> UsageReading:
        return await asyncio.to_thread(self._usage.read, uids)

    # -- hints ---------------------------------------------------------------------------------

    def _read_events(self) -> None:
        try:
            data = os.read(self._events_fd, 65536)
        except BlockingIOError:
            return
        *lines, self._events_pending = (self._events_pending + data).split(b"\n")
        for line in lines:
            event, _, name = line.partition(b" ")
            uid = name.decode("ascii", "replace")
            if event == b"started":
                self._note_started(uid)
            else:
                self._hint(uid)

    def _note_started(self, uid: str) -> None:
        self._started.append(uid)
        self._expected_starts.discard(uid)
        loop = asyncio.get_running_loop()
        # Most tasks that end at once do so within the shorter time: one observation then covers both.
        due = loop.time() + (
            _BULK_START_BATCH_S if len(self._expected_starts) >= _MIN_BULK_STARTS else _START_BATCH_S
        )
        if self._start_timer is not None:
            if self._starts_due <= due:
                return
            self._start_timer.cancel()
        self._start_timer, self._starts_due = loop.call_at(due, self._send_start_hints), due

    def _send_start_hints(self) -> None:
        """Send all hints together: each observation of a large gang costs in proportion to its size."""
        self._start_timer = None
        started, self._started = self._started, []
        for uid in started:
            self._hint(uid)

    def _watch(self, uid: str, pid: int | None = None) -> None:
        """Watch a supervisor for its exit. A wrong or missing pidfd costs a hint, never the truth."""
        if uid in self._pidfds:
            return
        if pid is None:
            owner = attempt_folder.owner_of(attempt_folder.path_of(self._tasks, uid))
            if owner is None:
                return
            pid = living_owner(owner)
            if pid is None:
                # It died, and its tree may still be being killed: check again.
                asyncio.get_running_loop().call_later(_RECHECK_INTERVAL_S, self._hint, uid)
                return
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            self._expected_starts.discard(uid)
            self._hint(uid)
            return
        self._pidfds[uid] = fd
        asyncio.get_running_loop().add_reader(fd, self._supervisor_ended, uid)

    def _supervisor_ended(self, uid: str) -> None:
        self._expected_starts.discard(uid)
        self._unwatch(uid)
        self._tree_control.cgroup(uid).remove()
        self._hint(uid)

    def _unwatch(self, uid: str) -> None:
        fd = self._pidfds.pop(uid, None)
        if fd is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    async def _in_files(self, work: Callable[[], T], count: int = _MAX_INLINE + 1) -> T:
        """Run in the file thread, unless there is so little work that the switch would take longer."""
        if count <= _MAX_INLINE:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._files, work)


def _remove_all(folders: Sequence[Path]) -> None:
    """Remove prepared folders that are not claimed."""
    for path in folders:
        if attempt_folder.owner_of(path) is None:
            folder_size.remove_tree(path)
