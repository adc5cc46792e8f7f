"""One attempt under its supervisor: claim, start, copy the output, end the tree, write the exit record.

A supervisor is single-threaded and small: it is forked from the zygote, and every page that it writes becomes
private memory and has to be copied first. So whatever can be done before the fork is done there.
"""

import _signal  # type: ignore[import-not-found]
import errno
import fcntl
import json
import os
import select
import signal
import sys
import time

from pairuntime.supervisor import claim, exit_record, output_upload, process_tree
from pairuntime.supervisor.limits import Limits
from pairuntime.supervisor.log_segments import SegmentedLog
from pairuntime.supervisor.log_times import LogTimes
from pairuntime.supervisor.masking import Masker
from pairuntime.supervisor.merged_log import MergedLog
from pairuntime.supervisor.shared_environment import with_suffixes

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs memory
    from typing import Any, Callable

    from pairuntime.supervisor.storage_mounts import StorageMounts

SPEC = "spec.json"
STOP = "stop"
# Descriptor of the source archive, opened for a task that runs as another account: it may not open it itself.
SOURCES_FD = 9

# Exit code of a task that succeeded but whose outputs, or files in its storages, are not all kept.
UPLOAD_FAILED_EXIT_CODE = 74

_READ_BYTES = 65536
_F_GETPIPE_SZ = 1032
# Errors that may go away: the end of an attempt is retried rather than lost.
_TRANSIENT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
# Since Python 3.8.
_SPAWN_OPEN = getattr(os, "POSIX_SPAWN_OPEN", 0)
_SPAWN_DUP2 = getattr(os, "POSIX_SPAWN_DUP2", 0)
# The C function: `signal.signal` also converts its argument and its result to enum members.
set_handler = _signal.signal
DEFAULT = _signal.SIG_DFL
HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


# Signals reset to their default for the program, though Python or the server's shell (`nohup`, `&`) ignores
# them.
_RESTORED_SIGNALS = tuple(set(HANDLED).union(process_tree.ignored_signals()))


def _limit_account_processes(count: "int") -> "None":
    import resource  # in the child only: it costs the supervisor memory

    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    count = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (count, count))


def _ignore(signum: "int", frame: "object") -> "None":
    """Signals only wake the loop, which then checks what happened."""


class Attempt:
    """One attempt, from the claim to the exit record.

    `ContainerAttempt` and `SlurmAttempt` override what differs.
    """

    def __init__(self, folder: "str", spec: "dict[str, object]", cgroup: "process_tree.Cgroup") -> "None":
        self._folder = folder
        self._attempt = str(spec["attempt"])
        self._argv = spec["argv"]  # type: list[str] # type: ignore[assignment]
        self._cwd = str(spec["cwd"])
        self._events = str(spec.get("events") or "")
        self._grace_s = float(spec.get("grace_s", 10))  # type: ignore[arg-type]
        self._linger_s = float(spec.get("linger_s", 0.5))  # type: ignore[arg-type]
        self._wake = -1
        self._cgroup = cgroup
        self._environment = spec["env"]  # type: dict[bytes, bytes] | dict[str, str] # type: ignore[assignment]
        # Last characters of variables whose beginning the gang shares; None without a gang.
        self._suffixes = spec.get("env_suffixes")  # type: dict[str, str] | None # type: ignore[assignment]
        # Unix account of the program; None: the supervisor's.
        self._account = spec.get("account")  # type: dict[str, object] | None # type: ignore[assignment]
        self._sources = str(spec.get("sources") or "")
        # How outputs are uploaded at the end.
        self._output_upload = spec.get("output_upload")  # type: dict[str, object] | None # type: ignore[assignment]
        limit = int(spec.get("log_limit", 512 << 20))  # type: ignore[call-overload]
        segment = int(spec.get("log_segment", 64 << 20))  # type: ignore[call-overload]
        secrets = [str(s).encode() for s in spec.get("secrets", ())]  # type: ignore[attr-defined]
        self._logs = {
            name: SegmentedLog(folder, name, limit, segment) for name in ("stdout", "stderr", "all")
        }
        self._log_times = LogTimes(folder, self._logs)
        self._merged = MergedLog(self._logs["all"])
        self._maskers = {name: Masker(secrets) for name in ("stdout", "stderr")}
        self._reads = {}  # type: dict[int, str]
        self._poll = select.poll()
        self._main = 0
        self._status = None  # type: int | None
        self._childless = False
        self._time_limit_s = int(spec.get("time_limit_s") or 0)  # type: ignore[call-overload]
        self._timed_out = False
        self._limits = Limits(spec.get("limits") or ())  # type: ignore[arg-type]
        # Processes of the task's account, at most, where no cgroup limits those of the task; 0: no limit.
        self._account_processes = int(spec.get("account_processes") or 0)  # type: ignore[call-overload]
        # Storages that are mounted before the start.
        self._mount_spec = spec.get("storage_mounts")  # type: dict[str, object] | None # type: ignore[assignment]
        self._mounts: "StorageMounts | None" = None
        self._stop = None  # type: dict[str, object] | None
        self._signals_sent = []  # type: list[int]
        self._signaled = set()  # type: set[int]

    def install_signal_handlers(self) -> "None":
        """Let signals wake the poll loop from here on, also before it starts."""
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        for signum in HANDLED:
            set_handler(signum, _ignore)
        self._poll.register(self._wake, select.POLLIN)
        self._become_subreaper()

    def supervise(self) -> "int":
        """Run the attempt unless it is claimed. Returns this process's exit status."""
        if self._limits:
            self._cgroup.create()
        lock = _retry_until_done(lambda: claim.acquire(self._folder, self._attempt))
        if lock < 0:
            return 3
        try:
            self.run()
        except BaseException:
            # No process of a task may outlive the supervisor: nothing else could end it.
            self.abandon()
            raise
        return 0

    def run(self) -> "None":
        reserved = _retry_until_done(lambda: exit_record.reserve(self._folder))
        started_ms = int(time.time() * 1000)
        started = time.monotonic()
        error = self._mount_storages()
        if not error and not self._stop_requested():
            error = self._start()
        self._send_event("started")
        if self._main:
            self._pump_output()
        for fd in list(self._reads):
            self._close(fd)
        are_files_kept = self._unmount_storages()
        code, signum, oom, problem = self._outcome()
        are_files_kept = self._upload_outputs() and are_files_kept
        if code == 0 and not are_files_kept:
            code = UPLOAD_FAILED_EXIT_CODE
        elapsed_ms = int((time.monotonic() - started) * 1000)
        self._write_record(
            reserved,
            {
                "attempt": self._attempt,
                "exit_code": code,
                "signal": signum,
                "start_error": error or problem,
                "stopped": self._stop is not None,
                "timed_out": self._timed_out,
                "oom": oom,
                "forks_refused": bool(code or signum) and self._limits.forks_refused(),
                "signals_sent": self._signals_sent,
                "started_ms": started_ms,
                "elapsed_ms": elapsed_ms,
                # The wall clock may have been changed meanwhile; the duration is measured with the monotonic
                # one.
                "ended_ms": started_ms + elapsed_ms,
                "log_sizes": {name: log.offset for name, log in self._logs.items()},
                "log_dropped": sum(log.dropped for log in self._logs.values()),
            },
        )
        # The server persists what it reads now, so it need not wait until the folder is synced.
        self._send_event("ended")
        exit_record.sync(self._folder)

    def _become_subreaper(self) -> "None":
        process_tree.become_subreaper()

    def _outcome(self) -> "tuple[int | None, int | None, bool, str]":
        """Exit code, signal, whether out of memory, and why the user's program was never started."""
        code, signum = exit_record.decode_status(self._status)
        # The kernel may have killed a child for lack of memory, and the program may have coped with it.
        return code, signum, bool(code or signum) and self._limits.oom_killed(), ""

    def abandon(self) -> "None":
        """After an unexpected error: kill the tree. Claimed, unlocked and without a record means lost."""
        while self._main:
            self._kill_all()
            self._reap()
            if self._childless:
                return
            time.sleep(0.01)

    # -- storages ------------------------------------------------------------------------------

    def _mount_storages(self) -> "str":
        """Mount the storages of the task. Returns why it cannot start without them, else an empty text."""
        if not self._mount_spec or self._stop_requested():
            return ""
        from pairuntime.supervisor import storage_mounts  # most tasks have none

        try:
            is_private = self._has_mount_namespace()
        except ImportError:  # nodes may have a Python that was built without it
            problem = "Storages cannot be mounted: %s has no ctypes." % sys.executable
            self._write_message(problem + "\n")
            return problem
        account = self._account or {}
        owner = int(account.get("uid", os.geteuid())), int(account.get("gid", os.getegid()))  # type: ignore[call-overload]
        self._mounts = storage_mounts.StorageMounts(self._mount_spec, self._folder)
        problem = self._mounts.mount(is_private, owner, self._stop_requested)
        self._write_message("".join(self._mounts.take_messages()))
        storage_mounts.set_variables(self._mount_spec, self._environment)
        return problem

    def _has_mount_namespace(self) -> "bool":
        """Whether storages are mounted at the paths that the task requested, and seen by no other task."""
        from pairuntime.supervisor import mount_namespace

        return mount_namespace.enter_own()

    def _unmount_storages(self) -> "bool":
        """Unmount the storages; False if files that the task wrote to them are lost."""
        if self._mounts is None:
            return True
        are_files_kept = self._mounts.unmount(self._stop_requested, self._is_overdue)
        self._write_message("".join(self._mounts.take_messages()))
        return are_files_kept

    def _is_overdue(self) -> "bool":
        """Whether this process is about to be killed."""
        return False

    # -- starting ------------------------------------------------------------------------------

    def _start(self) -> "str":
        """Start the user's program. Returns why it could not be started, else an empty text."""
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        action = "enter the folder %s" % self._cwd
        problem = ""
        try:
            os.chdir(self._cwd)
            os.umask(0o022)
            action = "limit the task"
            self._limits.create()
            action = "start %s" % self._argv[0]
            environment = self._environment
            if self._suffixes:
                environment = with_suffixes(environment, self._suffixes)  # type: ignore[arg-type]
            self._main = self._spawn(environment, out_w, err_w)
        except OSError as e:
            problem = "cannot %s: %s" % (action, os.strerror(e.errno or 0))
        except ValueError as e:  # a zero byte in the environment
            problem = "cannot %s: %s" % (action, e)
        os.close(out_w)
        os.close(err_w)
        for fd, name in ((out_r, "stdout"), (err_r, "stderr")):
            os.set_blocking(fd, False)
            self._reads[fd] = name
            self._poll.register(fd, select.POLLIN | select.POLLHUP)
        return problem

    def _spawn(self, environment: "dict[bytes, bytes] | dict[str, str]", out: "int", err: "int") -> "int":
        """Start the program in its own session.

        Spawned, not forked: that would copy the supervisor's memory.
        """
        program, argv = self._argv[0], self._argv
        spawn = getattr(os, "posix_spawn", None)
        # Joining limits or changing the account happens in the child before exec, which needs a fork.
        in_parent = not self._limits and self._account is None and not self._account_processes
        if spawn is not None and in_parent:
            actions = [
                (_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (_SPAWN_DUP2, out, 1),
                (_SPAWN_DUP2, err, 2),
            ]
            try:
                return int(
                    spawn(
                        program,
                        argv,
                        environment,
                        file_actions=actions,
                        setsid=True,
                        setsigmask=(),
                        setsigdef=_RESTORED_SIGNALS,
                    )
                )
            except NotImplementedError:  # a C library without POSIX_SPAWN_SETSID
                pass
        return self._fork_program(program, argv, environment, out, err)

    def _fork_program(
        self,
        program: "str",
        argv: "list[str]",
        environment: "dict[bytes, bytes] | dict[str, str]",
        out: "int",
        err: "int",
    ) -> "int":
        error_r, error_w = os.pipe()
        pid = self._cgroup.fork() if self._limits else os.fork()
        if pid == 0:
            code = 1
            try:
                os.setsid()
                if self._limits:
                    self._cgroup.join()
                    self._limits.join()
                signal.set_wakeup_fd(-1)
                for signum in _RESTORED_SIGNALS:
                    signal.signal(signum, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(out, 1)
                os.dup2(err, 2)
                if self._account is not None:
                    self._change_account(self._account)
                if self._account_processes:
                    _limit_account_processes(self._account_processes)
                os.execve(program, argv, environment)
            except OSError as e:
                code = e.errno or 1
            finally:
                os.write(error_w, b"%d" % code)
                os._exit(127)
        os.close(error_w)
        # End of file as soon as exec succeeds: it closes the child's end of the pipe.
        problem = os.read(error_r, 16)
        os.close(error_r)
        if problem:
            os.waitpid(pid, 0)
            raise OSError(int(problem), os.strerror(int(problem)))
        return pid

    def _change_account(self, account: "dict[str, Any]") -> "None":
        """Change to the account, irrevocably, in the child before exec."""
        if self._sources:
            os.dup2(os.open(self._sources, os.O_RDONLY), SOURCES_FD)
        # Without this the program could not open /dev/stdout.
        for fd in (1, 2):
            os.fchown(fd, account["uid"], account["gid"])
        process_tree.take_account(account)

    # -- output --------------------------------------------------------------------------------

    def _pump_output(self) -> "None":
        """Copy output until the main process has exited, its tree is empty, and the pipes are drained."""
        deadline = None  # type: float | None
        # End of the time limit; None without one.
        expires = time.monotonic() + self._time_limit_s if self._time_limit_s else None
        stopping = False
        signaled = False
        signaled_again = False
        while not (self._status is not None and self._childless and not self._reads):
            running = self._status is None and not stopping
            due = [moment for moment in (deadline, expires if running else None) if moment is not None]
            # Not longer than an hour at a time: the kernel counts milliseconds in 31 bits.
            wait = min(max(0.0, min(due) - time.monotonic()), 3600.0) if due else None
            for fd, _ in self._poll.poll(None if wait is None else int(wait * 1000) + 1):
                if fd == self._wake:
                    _drain(self._wake)
                else:
                    self._read(fd)
            self._reap()
            if self._status is not None and self._childless:
                # No process of the tree is left. Read what the pipes hold, and no more: a foreign process
                # that got a descriptor and keeps writing must not delay the end.
                for fd in list(self._reads):
                    for _ in range(fcntl.fcntl(fd, _F_GETPIPE_SZ) // _READ_BYTES + 1):
                        if not self._read(fd):
                            break
                    if fd in self._reads:
                        self._close(fd)
                continue
            now = time.monotonic()
            if not stopping and self._status is None and expires is not None and now >= expires:
                self._timed_out = True
            if not stopping and (self._stop_requested() or self._timed_out):
                stopping = signaled = True
                self._signal_tree()
                deadline = now + self._grace_s
            elif stopping and self._status is not None and not signaled_again:
                # A process that was being forked missed the signal. Not repeated earlier: what the main
                # process starts while it shuts down belongs to its shutdown.
                signaled_again = True
                self._signal_tree()
            elif self._status is not None and deadline is None:
                # The main process has exited: the rest gets a moment to end by itself (a `tee` that drains
                # its pipe), then SIGTERM, then SIGKILL.
                deadline = now + self._linger_s
            elif deadline is not None and now >= deadline:
                if not signaled:
                    signaled = True
                    self._signal_tree()
                    deadline = now + self._linger_s
                else:
                    self._kill_all()
                    deadline = now + 0.05

    def _read(self, fd: "int") -> "bool":
        """Copy what the pipe holds. False if it is empty or closed."""
        try:
            data = os.read(fd, _READ_BYTES)
        except OSError as e:
            if e.errno in (errno.EAGAIN, errno.EINTR):
                return False
            raise
        if not data:
            self._close(fd)
            return False
        name = self._reads[fd]
        self._write_output(name, self._maskers[name].feed(data))
        return True

    def _close(self, fd: "int") -> "None":
        name = self._reads.pop(fd)
        self._poll.unregister(fd)
        os.close(fd)
        self._write_output(name, self._maskers[name].flush())
        self._merged.end(name)

    def _write_output(self, name: "str", data: "bytes") -> "None":
        if data:
            self._log_times.note()
            self._logs[name].write(data)
            self._merged.feed(name, data)

    def _reap(self) -> "None":
        """Reap children.

        As the subreaper inherits every orphan, having no child means that the tree is empty.
        """
        while True:
            pid, status = self._next_exit()
            if pid == 0:
                return
            if pid == self._main:
                self._status = status

    def _next_exit(self) -> "tuple[int, int]":
        """A child that has exited, and its status; 0 if there is none, and then `_childless` is known.

        Processes of mounts do not count: they stay until the task has ended.
        """
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                return 0, 0
            if pid == 0:
                self._childless = self._mounts is not None and self._mounts.are_only_children()
                return 0, 0
            sentence = "" if self._mounts is None else self._mounts.note_exit(pid, status)
            if not sentence:
                return pid, status
            self._write_message(sentence)

    # -- ending --------------------------------------------------------------------------------

    def _upload_outputs(self) -> "bool":
        """Upload outputs, also those of a failed task. False if there are any and the upload failed."""
        if not self._main or not output_upload.has_outputs(self._output_upload):
            return True
        assert self._output_upload is not None
        out_r, out_w = os.pipe()
        argv, environment = self._output_upload["argv"], self._output_upload["env"]
        self._sources = ""
        try:
            os.chdir(str(self._output_upload["cwd"]))
            pid = self._fork_program(argv[0], argv, environment, out_w, out_w)  # type: ignore[index,arg-type]
        except OSError as e:
            os.close(out_r)
            self._write_message("The outputs could not be uploaded: %s\n" % os.strerror(e.errno or 0))
            return False
        finally:
            os.close(out_w)
        try:
            return output_upload.wait_for(pid, out_r, self._write_stderr, self._stop_requested)
        finally:
            os.close(out_r)

    def _write_message(self, text: "str") -> "None":
        self._write_stderr(text.encode())

    def _write_stderr(self, data: "bytes") -> "None":
        """Append a message of the runtime to the task's stderr."""
        self._write_output("stderr", self._maskers["stderr"].feed(data) + self._maskers["stderr"].flush())

    def _stop_requested(self) -> "bool":
        if self._stop is None:
            request = os.path.join(self._folder, STOP)
            if not os.access(request, os.F_OK):
                return False
            self._stop = json.loads(claim.read_file(request).decode())
            self._grace_s = float(self._stop.get("grace_s", self._grace_s))  # type: ignore[arg-type]
        return True

    def _tree_pids(self) -> "list[int]":
        own = os.getpid()
        others = set(self._cgroup.members()).union(process_tree.descendants(own)).difference((own,))
        return process_tree.parents_first(others.difference(self._mount_pids()))

    def _mount_pids(self) -> "set[int]":
        return set() if self._mounts is None else self._mounts.pids()

    def _signal_tree(self) -> "None":
        """Send SIGTERM once to each process: many programs take a second one for an immediate kill."""
        for pid in self._tree_pids():
            if pid not in self._signaled:
                self._signaled.add(pid)
                process_tree.send(pid, signal.SIGTERM)
                process_tree.send(pid, signal.SIGCONT)
        self._note_sent(signal.SIGTERM)

    def _kill_all(self) -> "None":
        mounts = self._mount_pids()
        self._cgroup.kill_others(mounts)
        process_tree.kill_below(os.getpid(), mounts)
        self._note_sent(signal.SIGKILL)

    def _note_sent(self, signum: "int") -> "None":
        """Record signals that the main process may have died of, not those sent to its leftovers."""
        if self._status is None and int(signum) not in self._signals_sent:
            self._signals_sent.append(int(signum))

    def _write_record(self, reserved: "int", record: "dict[str, object]") -> "None":
        for log in self._logs.values():
            log.sync()
        pause = 0.05
        while True:
            try:
                exit_record.write(self._folder, reserved, record)
                return
            except OSError as e:
                if e.errno not in _TRANSIENT_ERRORS:
                    raise
                # Until the record is written the attempt counts as running: nothing is lost by waiting.
                for log in self._logs.values():
                    log.drop_all_but_newest()
                time.sleep(pause)
                pause = min(pause * 2, 5.0)

    def _send_event(self, event: "str") -> "None":
        """Send a hint to the server. It may be lost: the folder is the truth."""
        if not self._events:
            return
        try:
            # A FIFO: a line this short is written whole or not at all, and thousands wait unread.
            fd = os.open(self._events, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return
        try:
            os.write(fd, ("%s %s\n" % (event, self._attempt)).encode())
        except OSError:
            pass
        finally:
            os.close(fd)


def _retry_until_done(work: "Callable[[], int]") -> "int":
    """Retry while the disk is full or fails: exiting would only mean being launched again, forever."""
    pause = 0.05
    while True:
        try:
            return work()
        except OSError as e:
            if e.errno not in _TRANSIENT_ERRORS:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 5.0)


def _drain(fd: "int") -> "None":
    try:
        while os.read(fd, 512):
            pass
    except BlockingIOError:
        pass
