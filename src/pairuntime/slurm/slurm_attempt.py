"""A task under Slurm, which may tell it to end and holds it to its memory; the server is elsewhere."""

import os
import signal

from pairuntime.slurm import placement
from pairuntime.supervisor import attempt, claim
from pairuntime.supervisor.limits import Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pairuntime.supervisor import process_tree

# A request to stop comes with a signal; should that get lost, it is found this late.
_LOOK_S = 5.0
# A task that ends sooner has only its end to tell: each word is a file that the server has to look after.
_BRIEF_S = 0.05
# Not empty for as long as nothing of a task in an image has run there.
NOT_STARTED = "not-started"


def refresh(folder: "str") -> "None":
    """Have a shared file system say what is in a folder now.

    NFS remembers for half a minute and longer that a file is not there, unless its folder is opened, which
    makes it ask. Other file systems do not need it.
    """
    try:
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))
    except OSError:
        pass


class SlurmAttempt(attempt.Attempt):
    def __init__(self, folder: "str", spec: "dict[str, object]", cgroup: "process_tree.Cgroup") -> "None":
        super(SlurmAttempt, self).__init__(folder, spec, cgroup)
        self._limits = _OwnMemory()
        # What Slurm leaves between asking and killing.
        self._kill_wait_s = float(spec.get("kill_wait_s", 30))  # type: ignore[arg-type]
        self._boxed = bool(spec.get("cleanup"))
        self._in_image = bool(spec.get("image"))
        # What tells whether the node has an image of this name, and the name by which it is pulled if not.
        self._exists = spec.get("exists")  # type: list[str] | None # type: ignore[assignment]
        self._full_name = str(spec.get("full_name") or "")
        self._told = False
        self._ended_by_slurm = False
        # Whether it is time to ask the file system again for what it may remember as missing.
        self._ask_again = False
        # Where nothing is shared, whoever carries for us finds out first who wants the end.
        self._asks_to_end = signal.SIGUSR2 if spec.get("carried") else signal.SIGTERM
        self._began = False

    def install_signal_handlers(self) -> "None":
        super(SlurmAttempt, self).install_signal_handlers()
        attempt.set_handler(self._asks_to_end, self._hear)
        attempt.set_handler(signal.SIGALRM, self._wake_up)

    def _hear(self, signum: "int", frame: "object") -> "None":
        self._told = self._ask_again = True

    def _wake_up(self, signum: "int", frame: "object") -> "None":
        """The loop looks again."""
        self._ask_again = True
        if self._began:
            self._began = False
            self._leave_note("started")

    def _start(self) -> "str":
        if self._in_image:
            try:
                placement.write(os.path.join(self._folder, NOT_STARTED), "-")
            except OSError:
                pass  # then what it ends with is taken for its own
            if self._exists and os.spawnve(os.P_WAIT, self._exists[0], self._exists, self._environment):
                self._argv[self._argv.index(self._exists[-1])] = self._full_name
        return super(SlurmAttempt, self)._start()

    def _outcome(self) -> "tuple[int | None, int | None, bool, str]":
        code, signum, oom, problem = super(SlurmAttempt, self)._outcome()
        if code and self._in_image and self._stop is None and not self._timed_out and not self._has_begun():
            return None, None, False, self._complaint()
        return code, signum, oom, problem

    def _has_begun(self) -> "bool":
        try:
            return not os.stat(os.path.join(self._folder, NOT_STARTED)).st_size
        except OSError:
            return True

    def _complaint(self) -> "str":
        """Of a task that never began, all that was written is what ran its image has to say."""
        try:
            said = claim.read_file(os.path.join(self._folder, "stderr.0"))
        except OSError:
            said = b""
        return said[-3000:].decode("utf-8", "replace").strip() or "the image did not start, without a word"

    def _stop_requested(self) -> "bool":
        if self._ask_again:
            self._ask_again = False
            refresh(self._folder)
        if super(SlurmAttempt, self)._stop_requested():
            return True
        if self._told:
            # Nobody of ours asked: its time is up, or it must give way.
            self._ended_by_slurm = True
            self._stop = {}
            self._grace_s = max(1.0, min(self._grace_s, self._kill_wait_s - 2))
            return True
        return False

    def _tree_pids(self) -> "list[int]":
        """Of a task in a container only what is inside: those who hold it there would end it too soon."""
        found = super(SlurmAttempt, self)._tree_pids()
        if not self._boxed:
            return found
        own = _pids_of("self")
        return [pid for pid in found if _pids_of(pid) not in ("", own)] or found

    def _write_record(self, reserved: "int", record: "dict[str, object]") -> "None":
        if self._ended_by_slurm:
            record = dict(record, stopped=False, ended_by_slurm=True)
        super(SlurmAttempt, self)._write_record(reserved, record)

    def _send_event(self, event: "str") -> "None":
        self._began = event == "started"
        if self._began:
            # Timers are nobody's inheritance: the task has none.
            signal.setitimer(signal.ITIMER_REAL, _BRIEF_S, _LOOK_S)
        else:
            self._leave_note(event)

    def _leave_note(self, what: "str") -> "None":
        """A file in a folder that the server lists: no file system forgets to show that."""
        if not self._events:
            return
        try:
            path = os.path.join(self._events, "%s.%s" % (self._attempt, what))
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        except OSError:
            pass


def _pids_of(pid: "object") -> "str":
    """The namespace in which a process has its number; empty when it is gone."""
    try:
        return os.readlink("/proc/%s/ns/pid" % pid)
    except OSError:
        return ""


class _OwnMemory(Limits):
    """The memory group that Slurm put us into. Only what was killed since we came is ours."""

    def __init__(self) -> "None":
        super(_OwnMemory, self).__init__()
        self._file = _counter()
        self._before = _killed(self._file)

    def oom_killed(self) -> "bool":
        return _killed(self._file) > self._before


def _counter() -> "str":
    """The file in which the kernel counts what it killed in our memory group; empty where there is none."""
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
            found = os.path.join(mount, path.lstrip("/"), "memory.events")
            if kind == "cgroup2" and not controllers and os.path.exists(found):
                return found
    return ""


def _lines(path: "str") -> "list[str]":
    """Whole ones. By the plain call: `open` takes its time, and lines of text end at more than a newline."""
    return os.fsdecode(claim.read_file(path)).split("\n")[:-1]


def _killed(path: "str") -> "int":
    try:
        for line in _lines(path):
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return 0
