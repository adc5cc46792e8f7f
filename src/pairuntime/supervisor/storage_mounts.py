"""Storages that are mounted for one task: a process serves each of them, beside the task's own tree.

As root the supervisor has a mount namespace of its own, which the task inherits: no other task sees the
mounts, and the kernel removes them with the last process. Otherwise, and for containers, they are in a folder
of the cluster's home, from which a container gets them; what a killed supervisor leaves there the server
removes.

A process of a mount ends with its standard input: it outlives no supervisor. Its credentials come from there,
too, so that they are in no command line and no environment.
"""

import json
import os
import select
import signal
import subprocess
import time

from pairuntime.supervisor import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs memory
    from typing import Any, Callable

HOST_FOLDER = "/mnt"
"""Without a container a storage is mounted directly below it, and nowhere else: users choose the path, and
what they store must not take the place of a program or of a setting that another account trusts."""
MOUNTED = b"mounted\n"
ERRORS = "mounts.err"

_START_TIMEOUT_S = 120.0
# Longer than a mount takes to complete its uploads.
_STOP_TIMEOUT_S = 75.0
_CHECK_INTERVAL_S = 0.1
_END_CHECK_INTERVAL_S = 0.01
_MAX_REPORT_BYTES = 64 << 10
_MAX_SENTENCE_BYTES = 4096


class StorageMounts:
    """``spec`` is the part of an attempt's spec: command and environment of the processes, and the mounts."""

    def __init__(self, spec: "dict[str, Any]", attempt_folder: "str") -> "None":
        self._spec = spec
        self._attempt_folder = attempt_folder
        self._errors_path = os.path.join(attempt_folder, ERRORS)
        self._names = {}  # type: dict[int, str]
        # Each with the mount that it serves.
        self._processes = []  # type: list[tuple[subprocess.Popen[bytes], dict[str, Any]]]
        self._is_private = False
        self._messages = []  # type: list[str]

    def mount(self, is_private: "bool", owner: "tuple[int, int]", is_stopped: "Callable[[], bool]") -> "str":
        """Mount all. Returns why that is not possible, else an empty text. ``is_stopped`` ends the wait."""
        self._is_private = is_private
        problem = ""
        for mount in self._spec["mounts"]:
            problem = self._place_problem(mount) or _make_folder(self._place(mount), is_private)
            if problem:
                break
            self._begin(mount, owner)
        problem = problem or self._wait_until_mounted(is_stopped)
        if problem or is_stopped():
            self.unmount()
            self._messages = [problem + "\n"] if problem else []
        return problem

    def _place(self, mount: "dict[str, Any]") -> "str":
        return str(mount["target"] if self._is_private else mount["folder"])

    def set_variables(self, environment: "dict[Any, Any]") -> "None":
        """Let the variables of a task without a container name where its storages are."""
        if self._is_private or self._spec.get("in_container"):
            return
        for mount in self._spec["mounts"]:
            name, place = mount["variable"], mount["folder"]
            if any(isinstance(key, bytes) for key in environment):
                environment[name.encode()] = os.fsencode(place)
            else:
                environment[name] = place

    def take_messages(self) -> "list[str]":
        """Lines for the log that were not taken yet."""
        taken, self._messages = self._messages, []
        return taken

    def _place_problem(self, mount: "dict[str, Any]") -> "str":
        if not self._is_private:
            return ""
        target = os.path.normpath(mount["target"])
        name = mount["request"]["name"]
        if os.path.dirname(target) != HOST_FOLDER or os.path.islink(target):
            return (
                "The storage %s cannot be mounted at %s: without a container, storages are directly "
                "below %s. Change its mountPath." % (name, target, HOST_FOLDER)
            )
        if (os.path.realpath(self._attempt_folder) + "/").startswith(target + "/"):
            return (
                "The storage %s cannot be mounted at %s, where the cluster has its files. "
                "Change its mountPath." % (name, target)
            )
        return ""

    def _begin(self, mount: "dict[str, Any]", owner: "tuple[int, int]") -> "None":
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
        finally:
            os.close(errors)
        place = self._place(mount)
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
            if not self._is_private and not self._spec.get("in_container"):
                self._messages.append(
                    "The storage %s is mounted at %s, which %s names: only root can mount at %s.\n"
                    % (name, mount["folder"], mount["variable"], mount["target"])
                )
        return ""

    # -- beside the task ---------------------------------------------------------------------------

    def pids(self) -> "set[int]":
        """The processes of the mounts, which are not the task's."""
        found = set(self._names)
        for pid in self._names:
            found.update(process_tree.descendants(pid))
        return found

    def are_only_children(self) -> "bool":
        """Whether this process has no other children."""
        return not set(process_tree.children(os.getpid())).difference(self._names)

    def note_exit(self, pid: "int") -> "str":
        """A sentence for the log if the process of a mount has ended on its own; else an empty text."""
        name = self._names.pop(pid, "")
        if not name:
            return ""
        return "The storage %s is not mounted any more: its process ended. Its files cannot be used.\n" % name

    # -- end ---------------------------------------------------------------------------------------

    def unmount(self) -> "None":
        """Unmount all, and complete what the task has closed; messages tell which files are lost."""
        for pid in self._names:
            process_tree.send(pid, signal.SIGTERM)
        ends = time.monotonic() + _STOP_TIMEOUT_S
        while self._names:
            for pid in list(self._names):
                status = _exit_status(pid)
                if status is not None:
                    sentence = self.note_exit(pid)
                    if status != 0:  # it did not end because of the signal
                        self._messages.append(sentence)
                elif time.monotonic() > ends:
                    name = self._names.pop(pid)
                    self._messages.append("The storage %s did not accept the last files in time.\n" % name)
                    process_tree.send(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
            if self._names:
                time.sleep(_END_CHECK_INTERVAL_S)
        for process, _ in self._processes:
            for pipe in (process.stdin, process.stdout):
                _close(pipe)
        self._processes = []
        if not self._is_private:
            remove_leftovers(self._spec["folder"])
        self._messages.append(self._read_errors())

    def _read_errors(self) -> "str":
        try:
            with open(self._errors_path, "rb") as f:
                f.seek(max(0, os.fstat(f.fileno()).st_size - _MAX_REPORT_BYTES))
                return f.read().decode("utf-8", "replace")
        except OSError:
            return ""


def remove_leftovers(folder: "str") -> "None":
    """Unmount and remove what is left of the mounts in this folder; nothing in them is touched."""
    from pairuntime.fuse import mount_point

    mounted = mount_point.mounted_folders()
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for place in [os.path.join(folder, name) for name in names] + [folder]:
        if place in mounted:
            mount_point.detach(place)
        try:
            os.rmdir(place)
        except OSError:
            pass


def _make_folder(place: "str", is_private: "bool") -> "str":
    try:
        os.makedirs(place, mode=0o755 if is_private else 0o700, exist_ok=True)
    except OSError as e:
        return "The folder %s cannot be created: %s." % (place, (e.strerror or str(e)).lower())
    return ""


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
