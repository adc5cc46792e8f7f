"""Mounted storages of one task: a process serves each of them, beside the task's own tree.

As root the supervisor has a mount namespace of its own, which the task inherits: no other task sees the
mounts, and the kernel removes them with the last process. Otherwise, and for containers, they are in a folder
of the cluster's home, from which a container gets them; what a killed supervisor leaves there the server
removes.

A process of a mount ends with its standard input, and with nothing else: it outlives no supervisor, and a
signal to all processes of a task (Slurm's) does not take the storages from a task that saves its state. Its
credentials come from there, too, so that they are in no command line and no environment.
"""

import errno
import fcntl
import json
import os
import select
import signal
import stat
import subprocess
import sys
import time

from pairuntime.local_files.replaceable_folder import is_replaceable
from pairuntime.supervisor import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs memory
    from typing import Any, Callable

HOST_FOLDER = "/mnt"
"""Without a container a storage is mounted directly below it, and nowhere else: users choose the path, and
what they store must not take the place of a program or of a setting that another account trusts."""
MOUNTED = b"mounted\n"
ERRORS = "mounts.err"
FILES_LOST_STATUS = 4
"""Exit status of a mount's process that has named files in `ERRORS` which are not on the storage."""
FILES_LOST = "Not all files of the task are in its storages: the lines above say why.\n"

_START_TIMEOUT_S = 120.0
# Longer than a mount takes to complete its uploads.
_STOP_TIMEOUT_S = 75.0
# Once a stop was requested: its user waits for it.
_STOPPED_TIMEOUT_S = 30.0
# A process that waits for the kernel cannot be killed; it must not keep the supervisor, too.
_KILL_TIMEOUT_S = 2.0
_CHECK_INTERVAL_S = 0.1
_END_CHECK_INTERVAL_S = 0.01
_MAX_REPORT_BYTES = 64 << 10
_MAX_SENTENCE_BYTES = 4096
# A supervisor locks its folder of mounts soon after it has created it.
_LOCK_TIMEOUT_S = 60.0
# In a folder of mounts: the name of the machine whose supervisor has them.
_HOST = "host"


class StorageMounts:
    """``spec`` is the part of an attempt's spec: command and environment of the processes, and the mounts."""

    def __init__(
        self,
        spec: "dict[str, Any]",
        attempt_folder: "str",
        host_folder: "str" = HOST_FOLDER,
        stopped_timeout_s: "float" = _STOPPED_TIMEOUT_S,
        kill_timeout_s: "float" = _KILL_TIMEOUT_S,
    ) -> "None":
        self._spec = spec
        self._host_folder = host_folder
        self._stopped_timeout_s = stopped_timeout_s
        self._kill_timeout_s = kill_timeout_s
        self._attempt_folder = attempt_folder
        self._errors_path = os.path.join(attempt_folder, ERRORS)
        self._names = {}  # type: dict[int, str]
        # Each with the mount that it serves.
        self._processes = []  # type: list[tuple[subprocess.Popen[bytes], dict[str, Any]]]
        # Those that have answered.
        self._mounted = set()  # type: set[int]
        self._is_private = False
        # Holds the lock of the folder of the mounts.
        self._lock = -1
        self._places = []  # type: list[str]
        self._has_lost_files = False
        self._messages = []  # type: list[str]

    def mount(self, is_private: "bool", owner: "tuple[int, int]", is_stopped: "Callable[[], bool]") -> "str":
        """Mount all. Returns why that is not possible, else an empty text. ``is_stopped`` ends the wait."""
        self._is_private = is_private
        problem = ""
        if self._spec.get("prefix") and not is_private:
            remove_stale(os.path.dirname(self._spec["folder"]), self._spec["prefix"])
        for mount in self._spec["mounts"]:
            place, problem = self._make_place(mount)
            if problem:
                break
            self._places.append(place)
            problem = self._begin(mount, place, owner)
            if problem:
                break
        problem = problem or self._wait_until_mounted(is_stopped)
        if problem or is_stopped():
            self.unmount(is_stopped)
            self._messages = [problem + "\n"] if problem else []
            self._has_lost_files = False  # there is no task yet
        return problem

    def take_messages(self) -> "list[str]":
        """Lines for the log that were not taken yet."""
        taken, self._messages = self._messages, []
        return taken

    def _make_place(self, mount: "dict[str, Any]") -> "tuple[str, str]":
        """The folder to mount at, which then exists; or why there is none."""
        place, problem = str(mount["folder"]), ""
        if self._is_private:
            place, problem = self._find_private_place(str(mount["target"]))
        if problem:
            sentence = "The storage %s cannot be mounted at %s%s Change its mountPath."
            return "", sentence % (mount["request"]["name"], mount["target"], problem)
        try:
            if self._is_private:
                os.makedirs(place, mode=0o755, exist_ok=True)
                _check_stays(place)
            else:
                if self._lock < 0:
                    os.makedirs(self._spec["folder"], mode=0o700, exist_ok=True)
                    self._lock = _lock(self._spec["folder"])
                    _write_host(self._spec["folder"])
                _make_mount_point(place, self._marker())
        except OSError as e:
            folder = e.filename or place
            return "", "The folder %s cannot be used: %s." % (folder, (e.strerror or str(e)).lower())
        return place, ""

    def _marker(self) -> "str":
        return marker_of(os.path.basename(self._attempt_folder)) if self._spec.get("in_container") else ""

    def _find_private_place(self, target: "str") -> "tuple[str, str]":
        """The path without links of what the user named, or why nothing may be mounted there.

        Exactly this path is mounted at: what was checked must not be another folder a moment later.
        """
        parts = [part for part in target.split("/") if part]
        if "/" + "/".join(parts[:-1]) != self._host_folder or parts[-1] in (".", ".."):
            return "", ": without a container, storages are directly below %s." % self._host_folder
        place = os.path.join(os.path.realpath(self._host_folder), parts[-1])
        if any((path + "/").startswith(place + "/") for path in self._protected_paths()):
            return "", ", where the cluster has its files."
        if place in self._places:
            return "", ", where another storage of the job is."
        try:
            if not stat.S_ISDIR(os.lstat(place).st_mode) or os.listdir(place):
                return "", ": something else is there."
        except FileNotFoundError:
            pass
        except OSError as e:
            return "", ": %s." % (e.strerror or str(e)).lower()
        return place, ""

    def _protected_paths(self) -> "set[str]":
        """Files of the cluster and programs that it runs: no storage takes the place of their folders."""
        paths = [self._attempt_folder, *self._spec.get("protected", ()), *program_paths()]
        # A mount's process may load programs and libraries from there, while another mount exists already.
        for value in self._spec["env"].values():
            paths.extend(path for path in value.split(os.pathsep) if path.startswith("/"))
        return {form for path in paths for form in (os.path.abspath(path), os.path.realpath(path))}

    def _begin(self, mount: "dict[str, Any]", place: "str", owner: "tuple[int, int]") -> "str":
        """Start the process of a mount. Returns why that is not possible, else an empty text."""
        errors = os.open(self._errors_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = subprocess.Popen(
                self._spec["argv"],
                env=self._spec["env"],
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as e:
            sentence = "The storage %s cannot be mounted: %s cannot be started (%s). %s"
            reason = (e.strerror or str(e)).lower()
            values = mount["request"]["name"], self._spec["argv"][0], reason, self._spec.get("hint", "")
            return (sentence % values).rstrip()
        finally:
            os.close(errors)
        shown_at = mount["target"] if self._spec.get("in_container") else place
        request = dict(mount["request"], folder=place, shown_at=shown_at, owner=owner)
        self._names[process.pid] = str(mount["request"]["name"])
        self._processes.append((process, mount))
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            pass  # it has ended already: it says why, or nothing
        return ""

    def _wait_until_mounted(self, is_stopped: "Callable[[], bool]") -> "str":
        ends = time.monotonic() + _START_TIMEOUT_S
        for process, mount in self._processes:
            name = mount["request"]["name"]
            answer = b""
            assert process.stdout is not None
            output = process.stdout.fileno()
            while not answer.endswith(b"\n"):
                if is_stopped():
                    return ""
                if time.monotonic() > ends:
                    return "The storage %s could not be mounted within %d seconds." % (name, _START_TIMEOUT_S)
                if select.select([output], [], [], _CHECK_INTERVAL_S)[0]:
                    data = os.read(output, _MAX_SENTENCE_BYTES)
                    answer += data
                    if not data:
                        break
            if answer != MOUNTED:
                reason = answer.decode("utf-8", "replace").strip() or self._read_errors().strip()[-500:]
                return "The storage %s cannot be mounted: %s" % (
                    name,
                    reason or "its process ended without a message.",
                )
            self._mounted.add(process.pid)
            if not self._is_private and not self._spec.get("in_container"):
                self._messages.append(
                    "The storage %s is mounted at %s, which %s names: only root can mount at %s.\n"
                    % (name, mount["folder"], mount["variable"], mount["target"])
                )
        return ""

    # -- beside the task ---------------------------------------------------------------------------

    def pids(self) -> "set[int]":
        """The processes of the mounts, which are not the task's."""
        pids = set(self._names)
        for pid in self._names:
            pids.update(process_tree.descendants(pid))
        return pids

    def are_only_children(self) -> "bool":
        """Whether this process has no other children."""
        return not set(process_tree.children(os.getpid())).difference(self._names)

    def note_exit(self, pid: "int", status: "int") -> "str":
        """A sentence for the log if the process of a mount has ended on its own; else an empty text."""
        name = self._names.pop(pid, "")
        if not name:
            return ""
        self._has_lost_files = self._has_lost_files or status != 0
        return "The storage %s is not mounted any more: its process ended. Its files cannot be used.\n" % name

    # -- end ---------------------------------------------------------------------------------------

    def unmount(
        self, is_stopped: "Callable[[], bool]", is_overdue: "Callable[[], bool]" = lambda: False
    ) -> "bool":
        """Unmount all, and complete what the task has closed. False if files are lost: messages tell which.

        ``is_stopped``: whether the user waits for the end. ``is_overdue``: whether this process is about to
        be killed.
        """
        for process, _ in self._processes:
            if process.pid not in self._mounted:
                process_tree.send(process.pid, signal.SIGKILL)  # it waits for its server, and has no files
            _close(process.stdin)
        began = time.monotonic()
        while self._note_exits():
            timeout_s = self._stopped_timeout_s if is_stopped() else _STOP_TIMEOUT_S
            if time.monotonic() - began > timeout_s or is_overdue():
                self._kill_processes()
                break
            time.sleep(_END_CHECK_INTERVAL_S)
        for process, _ in self._processes:
            _close(process.stdout)
        self._processes = []
        self._messages.append(self._read_errors())
        if self._lock >= 0:  # without the lock the folder may be another account's
            for place in remove_leftovers(self._spec["folder"], self._marker()):
                self._has_lost_files = True
                self._messages.append("Files are in %s and not on the storage.\n" % place)
            os.close(self._lock)
            self._lock = -1
        if self._has_lost_files:
            self._messages.append(FILES_LOST)
        return not self._has_lost_files

    def _note_exits(self) -> "bool":
        """Note which processes have exited; returns whether others still run."""
        for pid in list(self._names):
            status = _exit_status(pid)
            if status is not None:
                sentence = self.note_exit(pid, status)
                named_files = os.WIFEXITED(status) and os.WEXITSTATUS(status) == FILES_LOST_STATUS
                if status != 0 and not named_files:  # it did not end because its input did
                    self._messages.append(sentence)
        return bool(self._names)

    def _kill_processes(self) -> "None":
        self._has_lost_files = True
        for pid, name in self._names.items():
            self._messages.append("The storage %s did not accept the last files in time.\n" % name)
            process_tree.send(pid, signal.SIGKILL)
        ends = time.monotonic() + self._kill_timeout_s
        running = list(self._names)
        while running and time.monotonic() < ends:
            running = [pid for pid in running if _exit_status(pid) is None]
            time.sleep(_END_CHECK_INTERVAL_S)
        self._names.clear()

    def _read_errors(self) -> "str":
        try:
            with open(self._errors_path, "rb") as f:
                f.seek(max(0, os.fstat(f.fileno()).st_size - _MAX_REPORT_BYTES))
                return f.read().decode("utf-8", "replace")
        except OSError:
            return ""


def set_variables(spec: "dict[str, Any]", environment: "dict[Any, Any]") -> "None":
    """Let the variables of a task without a container name where its storages are.

    The folder exists where the supervisor could not mount at the paths that the task requested.
    """
    if spec.get("in_container"):
        return
    try:
        _check_own(spec["folder"], os.lstat(spec["folder"]))
    except OSError:
        return
    for mount in spec["mounts"]:
        name, place = mount["variable"], mount["folder"]
        if any(isinstance(key, bytes) for key in environment):
            environment[name.encode()] = os.fsencode(place)
        else:
            environment[name] = place


def program_paths() -> "list[str]":
    """Where this process has its programs, which run with its rights."""
    return [path for path in (sys.prefix, sys.base_prefix, sys.executable, *sys.path) if path]


def marker_of(attempt: "str") -> "str":
    """Name of a file in the folder below a mount; a container that sees it does not have the mount."""
    return ".%s.not-mounted" % attempt


def remove_leftovers(folder: "str", marker: "str" = "") -> "list[str]":
    """Unmount and remove what is left of the mounts in this folder; nothing in them is touched.

    Returns the mount points that stay, as something was written to them instead of to their storages.
    """
    from pairuntime.fuse import mount_point

    folder = os.path.realpath(folder)  # as the kernel names it
    mounted = mount_point.mounted_folders()
    try:
        places = [os.path.join(folder, name) for name in os.listdir(folder) if name != _HOST]
    except OSError:
        return []
    for place in places:
        if place in mounted:
            mount_point.detach(place)
        _remove_mount_point(place, marker)
    _remove_folder(folder)
    mounted = mount_point.mounted_folders()
    return [place for place in places if place not in mounted and os.path.isdir(place)]


def remove_stale(parent: "str", prefix: "str") -> "None":
    """Remove what killed supervisors of this account have left on this machine, in folders of this name.

    Those of supervisors that live are locked. Other machines have theirs in the same place if it is on a
    shared file system, where locks may be invisible.
    """
    try:
        names = [name for name in os.listdir(parent) if name.startswith(prefix)]
    except OSError:
        return  # not readable
    for name in names:
        folder = os.path.join(parent, name)
        try:
            if time.time() - os.lstat(folder).st_mtime < _LOCK_TIMEOUT_S:
                continue
            lock = _lock(folder)
        except OSError:
            continue  # its supervisor lives, or it is gone
        try:
            if _is_of_this_host(folder):
                remove_leftovers(folder, marker_of(name[len(prefix) :].split(".")[0]))
        except OSError:
            pass  # unreadable
        finally:
            os.close(lock)


def _lock(folder: "str") -> "int":
    """A descriptor that holds the lock of a folder. OSError: another process has it, or it is not our own."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _check_own(folder, os.fstat(fd))
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _check_own(folder: "str", status: "os.stat_result") -> "None":
    """Raise OSError if another account may change what is in a folder.

    Everyone may create one in a folder such as /tmp, before the supervisor does, and could then put another
    one in the place of a storage.
    """
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "another account has created it", folder)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(errno.EPERM, "other accounts can write to it", folder)


def _check_stays(place: "str") -> "None":
    """Raise OSError if another account may put another folder, or a link, in the place of this one.

    The mount would follow the link; and a storage whose mount point is removed is gone for its task.
    """
    if not stat.S_ISDIR(os.lstat(place).st_mode):
        raise OSError(errno.EPERM, "it is no folder", place)
    if is_replaceable(place):
        raise OSError(errno.EPERM, "every account can replace it", place)


def _write_host(folder: "str") -> "None":
    fd = os.open(os.path.join(folder, _HOST), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, _host_name())
    finally:
        os.close(fd)


def _is_of_this_host(folder: "str") -> "bool":
    """Whether a folder is of this host; an empty one is: its supervisor was killed before it wrote that."""
    try:
        fd = os.open(os.path.join(folder, _HOST), os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return not os.listdir(folder)
    try:
        return os.read(fd, 256) == _host_name()
    finally:
        os.close(fd)


def _host_name() -> "bytes":
    return os.uname()[1].encode()


def _make_mount_point(place: "str", marker: "str") -> "None":
    """Make a mount point. ``marker``: a file in it, for containers; empty: none."""
    os.makedirs(place, mode=0o700, exist_ok=True)
    _check_own(place, os.lstat(place))
    if marker:
        os.close(os.open(os.path.join(place, marker), os.O_WRONLY | os.O_CREAT, 0o444))
        # Users of the image see the marker. Others than root can only mount on what they may write to.
        os.chmod(place, 0o555 if os.geteuid() == 0 else 0o755)


def _remove_mount_point(place: "str", marker: "str") -> "None":
    try:
        if marker and os.path.lexists(os.path.join(place, marker)):
            os.unlink(os.path.join(place, marker))
        os.rmdir(place)
    except OSError:
        pass  # not empty, or not there


def _remove_folder(folder: "str") -> "None":
    """Remove a folder of mounts if no mount point is left in it."""
    try:
        names = os.listdir(folder)
        if names == [_HOST]:
            os.unlink(os.path.join(folder, _HOST))
        os.rmdir(folder)
    except OSError:
        pass  # not empty, or not there


def _exit_status(pid: "int") -> "int | None":
    """The wait status of a child that has exited; None while it runs."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    return status if ended else None


def _close(pipe: "Any") -> "None":
    try:
        pipe.close()
    except OSError:
        pass  # what was buffered for a process that has ended
