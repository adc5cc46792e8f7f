"""Attempt under Slurm, which may end it and enforces its memory limit; the server runs on another machine."""

import os
import signal
import time

from pairuntime.reports import placement
from pairuntime.slurm import allocation
from pairuntime.supervisor import attempt, claim
from pairuntime.supervisor.limits import Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pairuntime.slurm.gpu_usage import GpuUsage
    from pairuntime.supervisor import process_tree

# Part of one core that reports of usage may take: of a tree of many processes they become rarer.
_MAX_USAGE_SHARE = 0.01
# A task that ends sooner reports only its end: every event is a file that the server has to process.
_START_EVENT_DELAY_S = 0.05
# Before Slurm kills everything: time for the exit record.
_END_RESERVE_S = 1.0
# Flag file of a task in an image: not empty until its container runs.
NOT_STARTED = "not-started"


def refresh(folder: "str") -> "None":
    """Invalidate a shared file system's cache of a folder.

    NFS caches for half a minute and longer that a file does not exist, unless its folder is opened, which
    revalidates it. Other file systems do not need it.
    """
    try:
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))
    except OSError:
        pass


class SlurmAttempt(attempt.Attempt):
    """Supervises one task inside a Slurm allocation."""

    def __init__(self, folder: "str", spec: "dict[str, object]", cgroup: "process_tree.Cgroup") -> "None":
        super(SlurmAttempt, self).__init__(folder, spec, cgroup)
        self._limits = _SlurmMemory()
        # Slurm's time between SIGTERM and SIGKILL.
        self._kill_wait_s = float(spec.get("kill_wait_s", 30))  # type: ignore[arg-type]
        # A stop request comes with a signal; if that is lost, the request is found after this time. Usage is
        # reported as often.
        self._poll_interval_s = float(spec.get("poll_interval_s", 5))  # type: ignore[arg-type]
        self._in_podman = bool(spec.get("cleanup"))
        self._in_image = bool(spec.get("image"))
        # Command that checks whether the node has an image of this name, and the name to pull otherwise.
        self._exists = spec.get("exists")  # type: list[str] | None # type: ignore[assignment]
        self._full_name = str(spec.get("full_name") or "")
        self._signalled = False
        self._signalled_at = 0.0
        self._ended_by_slurm = False
        # Whether to invalidate the file system's cache before the next check.
        self._refresh_due = False
        # Without a shared file system the uploader asks the server first who requested the end.
        self._stop_signal = signal.SIGUSR2 if spec.get("remote") else signal.SIGTERM
        self._start_pending = False
        self._next_usage_s = 0.0
        self._gpu_usage: "GpuUsage | None" = None

    def install_signal_handlers(self) -> "None":
        super(SlurmAttempt, self).install_signal_handlers()
        attempt.set_handler(self._stop_signal, self._on_stop_signal)
        attempt.set_handler(signal.SIGALRM, self._on_timer)

    def _on_stop_signal(self, signum: "int", frame: "object") -> "None":
        if not self._signalled:
            self._signalled_at = time.monotonic()
        self._signalled = self._refresh_due = True

    def _on_timer(self, signum: "int", frame: "object") -> "None":
        """Make the loop check again."""
        self._refresh_due = True
        if self._start_pending:
            self._start_pending = False
            self._write_event_file("started")

    def _has_mount_namespace(self) -> "bool":
        """Whether there is a mount namespace: as root also for containers; no mount outlives a kill."""
        return super(SlurmAttempt, self)._has_mount_namespace() and not self._in_image

    def _is_overdue(self) -> "bool":
        if not self._stop_requested() or not self._ended_by_slurm:
            return False
        return time.monotonic() - self._signalled_at > self._kill_wait_s - _END_RESERVE_S

    def _start(self) -> "str":
        if self._in_image:
            try:
                placement.write(os.path.join(self._folder, NOT_STARTED), "-")
            except OSError:
                pass  # then its exit code is taken as the task's own
            if self._exists and os.spawnve(os.P_WAIT, self._exists[0], self._exists, self._environment):
                self._argv[self._argv.index(self._exists[-1])] = self._full_name
        return super(SlurmAttempt, self)._start()

    def _outcome(self) -> "tuple[int | None, int | None, bool, str]":
        code, signum, oom, problem = super(SlurmAttempt, self)._outcome()
        if code and self._in_image and self._stop is None and not self._timed_out and not self._has_started():
            return None, None, False, self._start_error()
        return code, signum, oom, problem

    def _has_started(self) -> "bool":
        try:
            return not os.stat(os.path.join(self._folder, NOT_STARTED)).st_size
        except OSError:
            return True

    def _start_error(self) -> "str":
        """The error of the container client: a task that never started has written nothing itself."""
        try:
            output = claim.read_file(os.path.join(self._folder, "stderr.0"))
        except OSError:
            output = b""
        return (
            output[-3000:].decode("utf-8", "replace").strip()
            or "the image did not start, without an error message"
        )

    def _stop_requested(self) -> "bool":
        if self._refresh_due:
            self._refresh_due = False
            refresh(self._folder)
            self._report_usage()
        if super(SlurmAttempt, self)._stop_requested():
            return True
        if self._signalled:
            # The server did not request it: the time limit was reached, or the job is preempted.
            self._ended_by_slurm = True
            self._stop = {}
            self._grace_s = max(1.0, min(self._grace_s, self._kill_wait_s - 2))
            return True
        return False

    def _report_usage(self) -> "None":
        """Write what the task has used: the server cannot see the processes of another machine."""
        now_s = time.monotonic()
        if not self._main or now_s < self._next_usage_s:
            return
        # Imported here: short tasks do not need it.
        from pairuntime.reports import usage_file
        from pairuntime.slurm import gpu_usage

        if self._gpu_usage is None:
            self._gpu_usage = gpu_usage.GpuUsage(allocation.gpus(), len(allocation.node_gpus()))
        # With its own: time of processes that have ended is the time of the one that waited for them.
        pids = [os.getpid(), *super(SlurmAttempt, self)._tree_pids()]
        try:
            cost_s = usage_file.write(self._folder, pids, self._gpu_usage.readings())
        except OSError:
            return  # a full disk; nothing depends on it
        self._next_usage_s = now_s + cost_s / _MAX_USAGE_SHARE

    def _tree_pids(self) -> "list[int]":
        """Processes to signal; in a container only the inner ones: its client must end last."""
        pids = super(SlurmAttempt, self)._tree_pids()
        if not self._in_podman:
            return pids
        own = _pid_namespace("self")
        return [pid for pid in pids if _pid_namespace(pid) not in ("", own)] or pids

    def _write_record(self, reserved: "int", record: "dict[str, object]") -> "None":
        if self._ended_by_slurm:
            record = dict(record, stopped=False, ended_by_slurm=True)
        super(SlurmAttempt, self)._write_record(reserved, record)

    def _send_event(self, event: "str") -> "None":
        self._start_pending = event == "started"
        if self._start_pending:
            # Timers are not inherited: the task has none.
            signal.setitimer(signal.ITIMER_REAL, _START_EVENT_DELAY_S, self._poll_interval_s)
        else:
            self._write_event_file(event)

    def _write_event_file(self, event: "str") -> "None":
        """Create a file in a folder that the server lists: every file system shows new entries."""
        if not self._events:
            return
        try:
            path = os.path.join(self._events, "%s.%s" % (self._attempt, event))
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        except OSError:
            pass


def _pid_namespace(pid: "object") -> "str":
    """The PID namespace of a process; empty when it has exited."""
    try:
        return os.readlink("/proc/%s/ns/pid" % pid)
    except OSError:
        return ""


class _SlurmMemory(Limits):
    """The memory cgroup of the Slurm job. Only OOM kills since the start count."""

    def __init__(self) -> "None":
        super(_SlurmMemory, self).__init__()
        self._file = _oom_counter_file()
        self._kills_at_start = _oom_kills(self._file)

    def oom_killed(self) -> "bool":
        return _oom_kills(self._file) > self._kills_at_start


def _oom_counter_file() -> "str":
    """The file in which the kernel counts OOM kills of this memory cgroup; empty where there is none."""
    try:
        own = [line.split(":", 2) for line in _lines("/proc/self/cgroup")]
        mounts = [line.split(" - ") for line in _lines("/proc/self/mountinfo")]
    except OSError:
        return ""
    for left, right in mounts:
        kind = right.split(" ", 1)[0]
        if kind not in ("cgroup", "cgroup2"):
            continue
        mount = left.split()[4]
        for _, controllers, path in own:
            if (
                kind == "cgroup"
                and "memory" in controllers.split(",")
                and "memory" in right.split()[2].split(",")
            ):
                return os.path.join(mount, path.lstrip("/"), "memory.oom_control")
            path_of_events = os.path.join(mount, path.lstrip("/"), "memory.events")
            if kind == "cgroup2" and not controllers and os.path.exists(path_of_events):
                return path_of_events
    return ""


def _lines(path: "str") -> "list[str]":
    """Complete lines. Not with `open`, which is slow and splits text at more than newlines."""
    return os.fsdecode(claim.read_file(path)).split("\n")[:-1]


def _oom_kills(path: "str") -> "int":
    try:
        for line in _lines(path):
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return 0
