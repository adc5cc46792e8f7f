"""The life of one supervisor: claim, start, carry the output, end the tree, write the record.

It is single-threaded and small: it is forked from the zygote, and what it touches becomes private
memory. Anything large (the environment) is read in the child that becomes the user's program.
"""

import errno
import json
import os
import select
import signal
import time

from pairuntime.supervisor import claim, record, tree
from pairuntime.supervisor.masking import Masker
from pairuntime.supervisor.merging import Merged
from pairuntime.supervisor.segments import Log

SPEC = "spec.json"
STOP = "stop"

_READ = 65536
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def _ignore(signum: "int", frame: "object") -> "None":
    """Signals only wake the loop; what happened is looked up, not remembered."""


def supervise(folder: "str") -> "int":
    """Run the attempt in this folder, unless someone else has it. Gives this process's exit status."""
    with open(os.path.join(folder, SPEC), "rb") as f:
        spec = json.loads(f.read().decode())
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_r, False)
    os.set_blocking(wake_w, False)
    signal.set_wakeup_fd(wake_w)
    for signum in _HANDLED:
        signal.signal(signum, _ignore)
    lock = claim.take(folder, spec["attempt"])
    if lock < 0:
        return 3
    _Attempt(folder, spec, wake_r).run()
    return 0


class _Attempt:
    def __init__(self, folder: "str", spec: "dict[str, object]", wake: "int") -> "None":
        self._folder = folder
        self._attempt = str(spec["attempt"])
        self._argv = spec["argv"]  # type: list[str] # type: ignore[assignment]
        self._cwd = str(spec["cwd"])
        self._events = str(spec.get("events") or "")
        self._grace_s = float(spec.get("grace_s", 10))  # type: ignore[arg-type]
        self._linger_s = float(spec.get("linger_s", 0.5))  # type: ignore[arg-type]
        self._wake = wake
        group = spec.get("tree") or {}  # type: dict[str, str] # type: ignore[assignment]
        self._cgroup = tree.Cgroup(group.get("mode", tree.PROC), group.get("path", ""))
        limit = int(spec.get("log_limit", 512 << 20))  # type: ignore[call-overload]
        segment = int(spec.get("log_segment", 64 << 20))  # type: ignore[call-overload]
        secrets = [str(s).encode() for s in spec.get("mask", ())]  # type: ignore[attr-defined]
        self._logs = {name: Log(folder, name, limit, segment) for name in ("stdout", "stderr", "all")}
        self._merged = Merged(self._logs["all"])
        self._maskers = {name: Masker(secrets) for name in ("stdout", "stderr")}
        self._reads = {}  # type: dict[int, str]
        self._poll = select.poll()
        self._main = 0
        self._status = None  # type: int | None
        self._childless = False
        self._stop = None  # type: dict[str, object] | None
        self._signals_sent = []  # type: list[int]

    def run(self) -> "None":
        reserved = record.reserve(self._folder)
        started_ms = int(time.time() * 1000)
        started = time.monotonic()
        tree.become_subreaper()
        self._poll.register(self._wake, select.POLLIN)
        error = "" if self._stop_requested() else self._start()
        self._tell("started")
        if self._main:
            self._carry()
        elapsed_ms = int((time.monotonic() - started) * 1000)
        code, signum = _decode(self._status)
        self._write_record(
            reserved,
            {
                "attempt": self._attempt,
                "exit_code": code,
                "signal": signum,
                "start_error": error,
                "stopped": self._stop is not None,
                "signals_sent": self._signals_sent,
                "started_ms": started_ms,
                "elapsed_ms": elapsed_ms,
                # The clock may have been set back or forward meanwhile: the length is what was measured.
                "ended_ms": started_ms + elapsed_ms,
                "log_sizes": {name: log.offset for name, log in self._logs.items()},
                "log_dropped": sum(log.dropped for log in self._logs.values()),
            },
        )
        self._cgroup.remove()
        self._tell("ended")

    # -- starting ------------------------------------------------------------------------------

    def _start(self) -> "str":
        """Start the user's program. Gives the reason when it could not be started."""
        self._cgroup.make()
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        told_r, told_w = os.pipe()
        pid = self._cgroup.fork()
        if pid == 0:
            self._become_program(out_w, err_w, told_w)
        for fd in (out_w, err_w, told_w):
            os.close(fd)
        problem = b""
        while True:  # ends at once when the child becomes the program: the descriptor closes on exec
            part = os.read(told_r, 4096)
            if not part:
                break
            problem += part
        os.close(told_r)
        self._main = pid
        for fd, name in ((out_r, "stdout"), (err_r, "stderr")):
            os.set_blocking(fd, False)
            self._reads[fd] = name
            self._poll.register(fd, select.POLLIN | select.POLLHUP)
        return problem.decode("utf-8", "replace")

    def _become_program(self, out: "int", err: "int", told: "int") -> "None":
        """In the child: never returns."""
        what = "prepare"
        try:
            tree.die_with_parent()
            os.setsid()
            signal.set_wakeup_fd(-1)
            for signum in _HANDLED + (signal.SIGPIPE,):
                signal.signal(signum, signal.SIG_DFL)
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.dup2(out, 1)
            os.dup2(err, 2)
            what = "join the task's cgroup"
            self._cgroup.join()
            what = "read its environment"
            environment = {}  # type: dict[str, str]
            for name in ("env.shared.json", "env.json"):
                try:
                    with open(os.path.join(self._folder, name), "rb") as f:
                        environment.update(json.loads(f.read().decode()))
                except FileNotFoundError:
                    pass
            what = "enter the folder %s" % self._cwd
            os.chdir(self._cwd)
            os.umask(0o022)
            what = "start %s" % self._argv[0]
            os.execvpe(self._argv[0], self._argv, environment)
        except OSError as e:
            os.write(told, ("cannot %s: %s" % (what, os.strerror(e.errno or 0))).encode())
        except BaseException as e:
            os.write(told, ("cannot %s: %r" % (what, e)).encode())
        os._exit(127)

    # -- carrying ------------------------------------------------------------------------------

    def _carry(self) -> "None":
        """Until the main process has ended, the rest of its tree is gone, and the pipes are empty."""
        deadline = None  # type: float | None
        asked = False
        while not (self._status is not None and self._childless and not self._reads):
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            for fd, _ in self._poll.poll(None if timeout is None else int(timeout * 1000) + 1):
                if fd == self._wake:
                    _drain(self._wake)
                else:
                    self._read(fd)
            self._reap()
            if self._status is not None and self._childless:
                # Nobody is left to write. A descriptor passed to a stranger must not keep us waiting.
                for fd in list(self._reads):
                    while self._read(fd):
                        pass
                    if fd in self._reads:
                        self._close(fd)
                continue
            now = time.monotonic()
            if not asked and self._stop_requested():
                asked = True
                self._signal_all(signal.SIGTERM)
                deadline = now + self._grace_s
            elif self._status is not None and deadline is None:
                # The main process is gone: what it left gets a moment to end by itself (a `tee` that
                # empties its pipe), then is asked, then killed.
                deadline = now + self._linger_s
            elif deadline is not None and now >= deadline:
                if not asked and signal.SIGTERM not in self._signals_sent:
                    self._signal_all(signal.SIGTERM)
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

    def _stop_requested(self) -> "bool":
        if self._stop is None:
            try:
                with open(os.path.join(self._folder, STOP), "rb") as f:
                    self._stop = json.loads(f.read().decode())
            except FileNotFoundError:
                return False
            self._grace_s = float(self._stop.get("grace_s", self._grace_s))  # type: ignore[arg-type]
        return True

    def _everyone(self) -> "list[int]":
        return sorted(set(self._cgroup.members()).union(tree.descendants(os.getpid())))

    def _signal_all(self, signum: "int") -> "None":
        for pid in self._everyone():
            tree.send(pid, signum)
            tree.send(pid, signal.SIGCONT)
        self._signals_sent.append(int(signum))

    def _kill_all(self) -> "None":
        self._cgroup.kill()
        for pid in tree.descendants(os.getpid()):
            tree.send(pid, signal.SIGKILL)
        if int(signal.SIGKILL) not in self._signals_sent:
            self._signals_sent.append(int(signal.SIGKILL))

    def _write_record(self, reserved: "int", what: "dict[str, object]") -> "None":
        for log in self._logs.values():
            log.sync()
        pause = 0.05
        while True:
            try:
                record.write(self._folder, reserved, what)
                return
            except OSError as e:
                if e.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS):
                    raise
                # Until the end can be told the attempt counts as running: nothing is lost by waiting.
                for log in self._logs.values():
                    log.drop_all_but_newest()
                time.sleep(pause)
                pause = min(pause * 2, 5.0)

    def _tell(self, what: "str") -> "None":
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
