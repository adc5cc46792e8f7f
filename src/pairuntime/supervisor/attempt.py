"""The life of one supervisor: claim, start, carry the output, end the tree, write the record.

It is single-threaded and small: it is forked from the zygote, and what it touches becomes private
memory, page by page, each of which has to be copied first. So whatever can be done before the fork is.
"""

import _signal  # type: ignore[import-not-found]
import errno
import fcntl
import json
import os
import select
import signal
import time

from pairuntime.supervisor import claim, exit_record, output_upload, process_tree
from pairuntime.supervisor.limits import Limits
from pairuntime.supervisor.log_segments import SegmentedLog
from pairuntime.supervisor.masking import Masker
from pairuntime.supervisor.merged_log import MergedLog

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs memory
    from typing import Any, Callable

SPEC = "spec.json"
STOP = "stop"
# What the tasks of a gang have in common of their environment: NAME=value, each with a zero byte behind it.
SHARED_ENVIRONMENT_FILE = "env"
# Where a task that runs as another account finds its sources, already open: it cannot open them itself.
SOURCES_FD = 9

# The exit code of a task that did its work, and whose results could not be kept.
UPLOAD_FAILED_EXIT_CODE = 74

_READ = 65536
_F_GETPIPE_SZ = 1032
# What the end of an attempt waits out rather than be lost to.
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
# Since Python 3.8.
_SPAWN_OPEN = getattr(os, "POSIX_SPAWN_OPEN", 0)
_SPAWN_DUP2 = getattr(os, "POSIX_SPAWN_DUP2", 0)
# The plain one: `signal.signal` also looks up names for what it is given and what it gives back.
set_handler = _signal.signal
DEFAULT = _signal.SIG_DFL
HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def _ignored() -> "list[int]":
    found = []
    for signum in range(1, signal.NSIG):
        try:
            if signal.getsignal(signum) == signal.SIG_IGN:
                found.append(signum)
        except (OSError, ValueError):
            pass  # a number that is no signal here
    return found


# What a program is to find as usual, though Python or the server's shell (`nohup`, `&`) has it ignored.
_RESTORED = tuple(set(HANDLED).union(_ignored()))


def _ignore(signum: "int", frame: "object") -> "None":
    """Signals only wake the loop; what happened is looked up, not remembered."""


def supervise(folder: "str", cgroup: "process_tree.Cgroup", spec: "dict[str, Any] | None" = None) -> "int":
    """Run the attempt in this folder, unless someone else has it. Gives this process's exit status.

    Whoever has read the folder's spec already gives it.
    """
    attempt = read(folder, cgroup, SharedEnvironment(), spec)
    attempt.install_signal_handlers()
    return attempt.supervise()


def read(
    folder: "str",
    cgroup: "process_tree.Cgroup",
    gang: "SharedEnvironment",
    spec: "dict[str, Any] | None" = None,
) -> "Attempt":
    """The attempt that is to be run in this folder. Nothing is done about it yet."""
    if spec is None:
        spec = json.loads(claim.read_file(os.path.join(folder, SPEC)).decode())
    if spec.get("limits"):
        # This process is in the cgroup already, if there is one; a task with limits is held by its own.
        cgroup = process_tree.Cgroup(spec["tree"]["mode"], spec["tree"]["path"])
    kind = Attempt
    if spec.get("container"):
        from pairuntime.supervisor.container_attempt import ContainerAttempt

        kind = ContainerAttempt
    elif spec.get("slurm"):
        from pairuntime.slurm.slurm_attempt import SlurmAttempt

        kind = SlurmAttempt
    if spec.get("tails") is not None:
        spec["env"] = gang.environment(folder, spec["env"])
    return kind(folder, spec, cgroup)


class SharedEnvironment:
    """What the tasks of a gang have in common of their environment: one file under many names, read once."""

    def __init__(self) -> "None":
        self._file = None  # type: tuple[int, int] | None
        self._variables = {}  # type: dict[bytes, bytes]

    def environment(self, folder: "str", own: "dict[str, str]") -> "dict[bytes, bytes]":
        """That, with a task's own variables; but for those that end with words of its own."""
        path = os.path.join(folder, SHARED_ENVIRONMENT_FILE)
        about = os.stat(path)
        if (about.st_dev, about.st_ino) != self._file:
            self._variables = {}
            for pair in claim.read_file(path).split(b"\0")[:-1]:
                name, _, value = pair.partition(b"=")
                self._variables[name] = value
            self._file = about.st_dev, about.st_ino
        variables = dict(self._variables)
        for known, text in own.items():
            variables[os.fsencode(known)] = os.fsencode(text)
        return variables


def with_suffixes(variables: "dict[bytes, bytes]", suffixes: "dict[str, str]") -> "dict[bytes, bytes]":
    """The whole environment: many variables of a gang differ in their last words only."""
    whole = dict(variables)
    for known, tail in suffixes.items():
        whole[os.fsencode(known)] += os.fsencode(tail)
    return whole


def whole_environment(
    folder: "str", own: "dict[str, str]", suffixes: "dict[str, str] | None"
) -> "dict[bytes, bytes] | dict[str, str]":
    """A task's own variables, with those it has in common with its gang."""
    return own if suffixes is None else with_suffixes(SharedEnvironment().environment(folder, own), suffixes)


class Attempt:
    """One attempt, from the claim to the record. What differs for tasks in containers is in `contained`."""

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
        # The ends of variables whose beginnings all tasks of the gang have in common; None without a gang.
        self._suffixes = spec.get("tails")  # type: dict[str, str] | None # type: ignore[assignment]
        # Who the program runs as; None: as we do.
        self._account = spec.get("account")  # type: dict[str, object] | None # type: ignore[assignment]
        self._sources = str(spec.get("sources") or "")
        # How results are brought to the storage at the end.
        self._output_upload = spec.get("keep")  # type: dict[str, object] | None # type: ignore[assignment]
        limit = int(spec.get("log_limit", 512 << 20))  # type: ignore[call-overload]
        segment = int(spec.get("log_segment", 64 << 20))  # type: ignore[call-overload]
        secrets = [str(s).encode() for s in spec.get("mask", ())]  # type: ignore[attr-defined]
        self._logs = {
            name: SegmentedLog(folder, name, limit, segment) for name in ("stdout", "stderr", "all")
        }
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
        self._stop = None  # type: dict[str, object] | None
        self._signals_sent = []  # type: list[int]
        self._signaled = set()  # type: set[int]

    def install_signal_handlers(self) -> "None":
        """From here on signals wake the loop that is to come."""
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        for signum in HANDLED:
            set_handler(signum, _ignore)
        self._poll.register(self._wake, select.POLLIN)
        self._hold_tree()

    def supervise(self) -> "int":
        """Run it, unless someone else has it. Gives this process's exit status."""
        if self._limits:
            self._cgroup.create()
        lock = _retry_until_done(lambda: claim.acquire(self._folder, self._attempt))
        if lock < 0:
            return 3
        try:
            self.run()
        except BaseException:
            # Nothing of a task may outlive the only one who can end it.
            self.abandon()
            raise
        return 0

    def run(self) -> "None":
        reserved = _retry_until_done(lambda: exit_record.reserve(self._folder))
        started_ms = int(time.time() * 1000)
        started = time.monotonic()
        error = "" if self._stop_requested() else self._start()
        self._send_event("started")
        if self._main:
            self._pump_output()
        for fd in list(self._reads):
            self._close(fd)
        code, signum, oom, problem = self._outcome()
        if code == 0 and not self._upload_outputs():
            code = UPLOAD_FAILED_EXIT_CODE
        elif code != 0:
            self._upload_outputs()
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
                "signals_sent": self._signals_sent,
                "started_ms": started_ms,
                "elapsed_ms": elapsed_ms,
                # The clock may have been set back or forward meanwhile: the length is what was measured.
                "ended_ms": started_ms + elapsed_ms,
                "log_sizes": {name: log.offset for name, log in self._logs.items()},
                "log_dropped": sum(log.dropped for log in self._logs.values()),
            },
        )
        # Whoever is told now writes down what he read, on disk: he need not wait for the folder to get there.
        self._send_event("ended")
        exit_record.sync(self._folder)

    def _hold_tree(self) -> "None":
        process_tree.become_subreaper()

    def _outcome(self) -> "tuple[int | None, int | None, bool, str]":
        """Exit code, signal, whether for want of memory, and why it never was the user's program that ran."""
        code, signum = _decode(self._status)
        # A child may have been killed for want of memory, and the program have coped with it.
        return code, signum, bool(code or signum) and self._limits.oom_killed(), ""

    def abandon(self) -> "None":
        """We cannot go on: end the tree and leave. Claimed, unlocked and without a record means lost."""
        while self._main:
            self._kill_all()
            self._reap()
            if self._childless:
                return
            time.sleep(0.01)

    # -- starting ------------------------------------------------------------------------------

    def _start(self) -> "str":
        """Start the user's program. Gives the reason when it could not be started."""
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        what = "enter the folder %s" % self._cwd
        problem = ""
        try:
            os.chdir(self._cwd)
            os.umask(0o022)
            what = "limit the task"
            self._limits.create()
            what = "start %s" % self._argv[0]
            environment = self._environment
            if self._suffixes:
                environment = with_suffixes(environment, self._suffixes)  # type: ignore[arg-type]
            self._main = self._spawn(environment, out_w, err_w)
        except OSError as e:
            problem = "cannot %s: %s" % (what, os.strerror(e.errno or 0))
        except ValueError as e:  # an environment that no program can have
            problem = "cannot %s: %s" % (what, e)
        os.close(out_w)
        os.close(err_w)
        for fd, name in ((out_r, "stdout"), (err_r, "stderr")):
            os.set_blocking(fd, False)
            self._reads[fd] = name
            self._poll.register(fd, select.POLLIN | select.POLLHUP)
        return problem

    def _spawn(self, environment: "dict[bytes, bytes] | dict[str, str]", out: "int", err: "int") -> "int":
        """The program in a session of its own. Spawned, not forked: our memory need not be copied."""
        program, argv = self._argv[0], self._argv
        spawn = getattr(os, "posix_spawn", None)
        # What a task with limits or another account has to do first it can only do as a copy of us.
        if spawn is not None and not self._limits and self._account is None:
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
                        setsigdef=_RESTORED,
                    )
                )
            except NotImplementedError:  # a C library that cannot begin a session when it spawns
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
        told_r, told_w = os.pipe()
        pid = self._cgroup.fork() if self._limits else os.fork()
        if pid == 0:
            code = 1
            try:
                os.setsid()
                if self._limits:
                    self._cgroup.join()
                    self._limits.join()
                signal.set_wakeup_fd(-1)
                for signum in _RESTORED:
                    signal.signal(signum, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(out, 1)
                os.dup2(err, 2)
                if self._account is not None:
                    self._become(self._account)
                os.execve(program, argv, environment)
            except OSError as e:
                code = e.errno or 1
            finally:
                os.write(told_w, b"%d" % code)
                os._exit(127)
        os.close(told_w)
        # Ends at once when the child becomes the program: its end of the pipe closes then.
        problem = os.read(told_r, 16)
        os.close(told_r)
        if problem:
            os.waitpid(pid, 0)
            raise OSError(int(problem), os.strerror(int(problem)))
        return pid

    def _become(self, account: "dict[str, object]") -> "None":
        """Be that account, for good, in the child that becomes its program."""
        if self._sources:
            os.dup2(os.open(self._sources, os.O_RDONLY), SOURCES_FD)
        uid, gid = int(account["uid"]), int(account["gid"])  # type: ignore[call-overload]
        # Else it could not open /dev/stdout, which it can where it began with its own pipes.
        for fd in (1, 2):
            os.fchown(fd, uid, gid)
        os.setgroups(account["groups"])  # type: ignore[arg-type]
        os.setgid(gid)
        os.setuid(uid)

    # -- carrying ------------------------------------------------------------------------------

    def _pump_output(self) -> "None":
        """Until the main process has ended, the rest of its tree is gone, and the pipes are empty."""
        deadline = None  # type: float | None
        # When its time is up; never, without a limit.
        expires = time.monotonic() + self._time_limit_s if self._time_limit_s else None
        stopping = False
        asked = False
        late = False
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
                # Nobody is left to write. What they wrote is in the pipes; a stranger who was handed a
                # descriptor and goes on writing must not keep us waiting.
                for fd in list(self._reads):
                    for _ in range(fcntl.fcntl(fd, _F_GETPIPE_SZ) // _READ + 1):
                        if not self._read(fd):
                            break
                    if fd in self._reads:
                        self._close(fd)
                continue
            now = time.monotonic()
            if not stopping and self._status is None and expires is not None and now >= expires:
                self._timed_out = True
            if not stopping and (self._stop_requested() or self._timed_out):
                stopping = asked = True
                self._signal_tree()
                deadline = now + self._grace_s
            elif stopping and self._status is not None and not late:
                # Whoever was being forked while we asked missed it. Only now, though: what the main
                # process starts before it ends is its way of ending well.
                late = True
                self._signal_tree()
            elif self._status is not None and deadline is None:
                # The main process is gone: what it left gets a moment to end by itself (a `tee` that
                # empties its pipe), then is asked, then killed.
                deadline = now + self._linger_s
            elif deadline is not None and now >= deadline:
                if not asked:
                    asked = True
                    self._signal_tree()
                    deadline = now + self._linger_s
                else:
                    self._kill_all()
                    deadline = now + 0.05

    def _read(self, fd: "int") -> "bool":
        """Carry what the pipe has now. False when it is empty or over."""
        try:
            data = os.read(fd, _READ)
        except OSError as e:
            if e.errno in (errno.EAGAIN, errno.EINTR):
                return False
            raise
        if not data:
            self._close(fd)
            return False
        name = self._reads[fd]
        data = self._maskers[name].feed(data)
        if data:
            self._logs[name].write(data)
            self._merged.feed(name, data)
        return True

    def _close(self, fd: "int") -> "None":
        name = self._reads.pop(fd)
        self._poll.unregister(fd)
        os.close(fd)
        rest = self._maskers[name].flush()
        if rest:
            self._logs[name].write(rest)
            self._merged.feed(name, rest)
        self._merged.end(name)

    def _reap(self) -> "None":
        """Every orphan of the tree is our child, so having no child means that the tree is empty."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                return
            if pid == 0:
                self._childless = False
                return
            if pid == self._main:
                self._status = status

    # -- ending --------------------------------------------------------------------------------

    def _upload_outputs(self) -> "bool":
        """Also of a task that failed. False when there were some and they could not be brought."""
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
        """What the runtime has to say goes where the task's own complaints went."""
        data = self._maskers["stderr"].feed(data) + self._maskers["stderr"].flush()
        if data:
            self._logs["stderr"].write(data)
            self._merged.feed("stderr", data)

    def _stop_requested(self) -> "bool":
        if self._stop is None:
            asked = os.path.join(self._folder, STOP)
            if not os.access(asked, os.F_OK):
                return False
            self._stop = json.loads(claim.read_file(asked).decode())
            self._grace_s = float(self._stop.get("grace_s", self._grace_s))  # type: ignore[arg-type]
        return True

    def _tree_pids(self) -> "list[int]":
        own = os.getpid()
        return sorted(set(self._cgroup.members()).union(process_tree.descendants(own)).difference((own,)))

    def _signal_tree(self) -> "None":
        """Nobody is asked twice: to many programs a second SIGTERM means `at once`."""
        for pid in self._tree_pids():
            if pid not in self._signaled:
                self._signaled.add(pid)
                process_tree.send(pid, signal.SIGTERM)
                process_tree.send(pid, signal.SIGCONT)
        self._note_sent(signal.SIGTERM)

    def _kill_all(self) -> "None":
        self._cgroup.kill_others()
        process_tree.kill_below(os.getpid())
        self._note_sent(signal.SIGKILL)

    def _note_sent(self, signum: "int") -> "None":
        """What the main process may have died of; what only its leftovers were sent is not told."""
        if self._status is None and int(signum) not in self._signals_sent:
            self._signals_sent.append(int(signum))

    def _write_record(self, reserved: "int", what: "dict[str, object]") -> "None":
        for log in self._logs.values():
            log.sync()
        pause = 0.05
        while True:
            try:
                exit_record.write(self._folder, reserved, what)
                return
            except OSError as e:
                if e.errno not in _PASSING:
                    raise
                # Until the end can be told the attempt counts as running: nothing is lost by waiting.
                for log in self._logs.values():
                    log.drop_all_but_newest()
                time.sleep(pause)
                pause = min(pause * 2, 5.0)

    def _send_event(self, what: "str") -> "None":
        """A hint for the server; nobody listening is no problem."""
        if not self._events:
            return
        try:
            # A FIFO: a line this short is written whole or not at all, and thousands wait unread.
            fd = os.open(self._events, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return
        try:
            os.write(fd, ("%s %s\n" % (what, self._attempt)).encode())
        except OSError:
            pass
        finally:
            os.close(fd)


def _retry_until_done(work: "Callable[[], int]") -> "int":
    """Do it when the disk lets us: to give up would only mean to be started again, and again."""
    pause = 0.05
    while True:
        try:
            return work()
        except OSError as e:
            if e.errno not in _PASSING:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 5.0)


def _drain(fd: "int") -> "None":
    try:
        while os.read(fd, 512):
            pass
    except BlockingIOError:
        pass


def _decode(status: "int | None") -> "tuple[int | None, int | None]":
    """Exit code and signal of a wait status; both None when the program never ran."""
    if status is None:
        return None, None
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None
