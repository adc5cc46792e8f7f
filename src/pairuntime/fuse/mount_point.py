"""Mounting: connects a folder with ``/dev/fuse``, serves it until it is unmounted, cleans up after a kill.

Root mounts by itself; other users need the program ``fusermount``, which every distribution has in its
package fuse or fuse3.
"""

import array
import ctypes
import errno
import os
import signal
import socket
import stat
import subprocess
import sys

from pairuntime.fuse.server import Server

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Callable

    from pairuntime.fuse.file_system import FileSystem

assert sys.platform == "linux"

DEVICE = "/dev/fuse"
MOUNTS = "/proc/self/mountinfo"
CONTAINER_HINT = "In a container, start it with --device %s --cap-add SYS_ADMIN; or copy the files." % DEVICE
KEEP_ALIVE_INTERVAL_S = 300.0
"""An embedded cluster stops when it is idle. While one of its storages is mounted, it gets requests."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MS_RDONLY, _MS_NOSUID, _MS_NODEV = 1, 2, 4
_MNT_DETACH = 2
_FUSE_SETTINGS = "/etc/fuse.conf"
# Waits for the end of its input, which the kernel closes even after a kill -9.
_CLEANUP = """
trap "" TERM INT HUP
read -r _
umount -l "$1" 2>/dev/null || "${2:-true}" -u -z "$1" 2>/dev/null
"""


class MountError(Exception):
    """The folder cannot be mounted, or unmounted. The message is for the user, and so is the ``hint``."""

    def __init__(self, message: "str", hint: "str" = "") -> "None":
        super().__init__(message)
        self.message = message
        self.hint = hint


def check_available() -> "None":
    """Raise where FUSE is not available, before anything else is done."""
    if not os.path.exists(DEVICE):
        raise MountError(
            "This machine has no %s, so nothing can be mounted here." % DEVICE,
            CONTAINER_HINT,
        )
    if os.geteuid() != 0 and not _fusermount():
        raise MountError(
            "Only root can mount without the program fusermount, which was not found.",
            "Install the package fuse3, or copy the files.",
        )
    if os.geteuid() != 0 and not os.access(DEVICE, os.R_OK | os.W_OK):
        raise MountError(
            "Only root may open %s on this machine, so others cannot mount anything." % DEVICE,
            "An administrator can permit it, as most systems do: chmod 666 %s. Or copy the files." % DEVICE,
        )


def check_folder(folder: "str", unmount_command: "str" = "") -> "str":
    """Absolute path of a folder to mount on: it must exist and be empty.

    ``unmount_command``: the caller's own for FUSE mounts; ``umount`` may need root.
    """
    path = os.path.realpath(folder)
    try:
        status = os.stat(path)
    except OSError as e:
        if e.errno == errno.ENOTCONN:
            raise MountError(
                "%s is still mounted by a process that has ended." % folder,
                "Unmount it first: %s %s" % (unmount_command or "umount -l", folder),
            )
        if isinstance(e, FileNotFoundError):
            raise MountError("%s: there is no such folder." % folder, "Create it: mkdir -p %s" % folder)
        raise MountError("%s: %s." % (folder, (e.strerror or str(e)).lower()))
    if not stat.S_ISDIR(status.st_mode):
        raise MountError("%s is a file; a folder is needed to mount on." % folder)
    kind = mounted_folders().get(path)
    if kind is not None:
        command = kind.startswith("fuse") and unmount_command or "umount"
        raise MountError("%s is mounted already." % folder, "Unmount it first: %s %s" % (command, folder))
    try:
        has_entries = bool(os.listdir(path))
    except OSError as e:
        raise MountError("%s: %s." % (folder, (e.strerror or str(e)).lower()))
    if has_entries:
        raise MountError("%s is not empty: a mount would hide its files." % folder, "Name an empty folder.")
    return path


def mounted_folders(kind: "str" = "") -> "dict[str, str]":
    """Folders of this mount namespace on which something is mounted, and its type."""
    types = {}
    with open(MOUNTS, "rb") as f:
        for line in f:
            before, _, after = line.partition(b" - ")
            path = before.split()[4].decode("unicode_escape").encode("latin-1")
            of_type = after.split()[0].decode()
            if not kind or of_type == kind:
                types[os.fsdecode(path)] = of_type
    return types


class Mount:
    """A mounted file system. ``source`` and ``kind`` are what ``mount`` and ``df`` show.

    ``owner``: user and group of all files, instead of this process's. Then every account that can reach the
    folder may use it, and what is left after a kill of this process is up to its starter. ``shown_at``: the
    path under which programs see the folder, where it is another one.
    """

    def __init__(
        self,
        storage: "FileSystem",
        folder: "str",
        source: "str",
        kind: "str",
        owner: "tuple[int, int] | None" = None,
        shown_at: "str" = "",
    ) -> "None":
        self._storage = storage
        self.folder = folder
        self._shown_at = shown_at or folder
        self._owner = owner
        self._cleanup = None  # type: subprocess.Popen[bytes] | None
        shown = _Shown(source, kind, storage.is_read_only, owner is not None)
        self._device = _mount_as_root(folder, shown) if os.geteuid() == 0 else -1
        if self._device < 0:
            self._device = _mount_by_program(folder, shown)
        if owner is not None:
            return
        try:
            self._cleanup = subprocess.Popen(
                ["/bin/sh", "-c", _CLEANUP, "sh", folder, _fusermount()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except BaseException:
            self.detach()
            os.close(self._device)
            raise

    def serve(
        self,
        on_mounted: "Callable[[], None]",
        report: "Callable[[str], None]",
        signals: "tuple[int, ...]" = STOP_SIGNALS,
    ) -> "int":
        """Serve until it is unmounted, or until one of these signals: returns the signal, or 0."""
        server = Server(self._storage, self._device, self._shown_at, report, self._owner)
        stopped_by = []  # type: list[int]

        def stop(number: "int", frame: "object") -> "None":
            stopped_by.append(number)
            raise _Stopped

        before = [signal.signal(number, stop) for number in signals]
        try:
            try:
                server.start()
                on_mounted()
                while not server.wait(KEEP_ALIVE_INTERVAL_S):
                    try:
                        self._storage.status("/")
                    except OSError:
                        pass  # it may be back for the next program that needs it
            except _Stopped:
                for number in signals:
                    signal.signal(number, signal.SIG_IGN)
                self.detach()
            server.finish(was_unmounted=not stopped_by)
        finally:
            self._end_cleanup()
            for i, number in enumerate(signals):
                signal.signal(number, before[i])
        return stopped_by[0] if stopped_by else 0

    def detach(self) -> "None":
        """Unmount at once; programs that have files of it open get errors when this process ends."""
        detach(self.folder)

    def _end_cleanup(self) -> "None":
        if self._cleanup is None:
            return
        # Killed and not woken: the folder may be mounted by another program by now.
        self._cleanup.kill()
        self._cleanup.wait()
        if self._cleanup.stdin is not None:
            self._cleanup.stdin.close()


class _Stopped(Exception):
    pass


class _Shown:
    """The mount options of a file system, as the kernel reads them."""

    def __init__(self, source: "str", kind: "str", is_read_only: "bool", is_for_all: "bool") -> "None":
        self.source = source
        self.kind = kind
        self.is_read_only = is_read_only
        self.is_for_all = is_for_all


def detach(folder: "str") -> "None":
    """Unmount a folder at once, even if programs use it or its process has ended."""
    if not _umount(folder, _MNT_DETACH) and _fusermount():
        _run([_fusermount(), "-u", "-z", "--", folder])


def unmount(folder: "str") -> "None":
    """Unmount a folder. A mount whose process has ended is removed, too; one that is in use is an error."""
    path = os.path.abspath(folder)  # realpath would ask a mount that does not answer
    known = mounted_folders()
    if path not in known:
        path = os.path.realpath(folder)
    if path not in known:
        raise MountError("%s is not mounted." % folder)
    if not known[path].startswith("fuse"):
        raise MountError("%s is not a FUSE mount but %s; it stays mounted." % (folder, known[path]))
    if _umount(path, 0):
        return
    reason = os.strerror(ctypes.get_errno())
    if ctypes.get_errno() != errno.EBUSY and _fusermount():
        reason = _run([_fusermount(), "-u", "--", path])
        if not reason:
            return
    if ctypes.get_errno() == errno.EBUSY or "busy" in reason:
        raise MountError(
            "%s is in use: a program has a file of it open, or works in it." % folder,
            "Close it, and unmount again.",
        )
    raise MountError("%s cannot be unmounted: %s." % (folder, reason.lower()))


def run_in_background(run: "Callable[[Callable[[], None]], int]", report_fd: "int" = 2) -> "int":
    """Run in a process of its own; returns when it has mounted, or with its exit status when it failed.

    ``report_fd`` is its standard error once it has mounted. Called before any thread exists: only
    the calling thread survives a fork.
    """
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(write_end)
        try:
            is_mounted = bool(os.read(read_end, 1))
        except KeyboardInterrupt:
            os.kill(pid, signal.SIGTERM)
            raise
        if is_mounted:
            return 0
        status = os.waitpid(pid, 0)[1]
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1
    status = 1
    try:
        os.close(read_end)
        os.setsid()

        def on_mounted() -> "None":
            null = os.open(os.devnull, os.O_RDWR)
            for number in range(2):
                os.dup2(null, number)
            os.close(null)
            if report_fd != 2:
                os.dup2(report_fd, 2)
                os.close(report_fd)
            os.chdir("/")  # the folder it was started in can be unmounted
            os.write(write_end, b"1")
            os.close(write_end)

        status = run(on_mounted)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


# -- system calls and programs -----------------------------------------------------------------------


def _libc() -> "ctypes.CDLL":
    return ctypes.CDLL(None, use_errno=True)


def _mount_as_root(folder: "str", shown: "_Shown") -> "int":
    """Descriptor of the connection; -1 where root may not mount, as in most containers."""
    try:
        device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except OSError as e:
        raise MountError("%s cannot be opened: %s." % (DEVICE, (e.strerror or str(e)).lower()))
    options = "fd=%d,rootmode=40000,user_id=%d,group_id=%d" % (device, os.getuid(), os.getgid())
    if shown.is_for_all:
        options += ",allow_other"
    flags = _MS_NOSUID | _MS_NODEV | (_MS_RDONLY if shown.is_read_only else 0)
    words = [os.fsencode(word) for word in (shown.source, folder, "fuse." + shown.kind)]
    if _libc().mount(words[0], words[1], words[2], ctypes.c_ulong(flags), options.encode()) == 0:
        return device
    reason = ctypes.get_errno()
    os.close(device)
    if reason == errno.EPERM and _fusermount():
        return -1
    if reason == errno.EPERM:
        raise MountError(
            "This process may not mount file systems.",
            CONTAINER_HINT,
        )
    raise MountError("%s cannot be mounted: %s." % (folder, os.strerror(reason).lower()))


def _umount(folder: "str", flags: "int") -> "bool":
    return bool(_libc().umount2(os.fsencode(folder), flags) == 0)


def _fusermount() -> "str":
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        for name in ("fusermount3", "fusermount"):
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK):
                return path
    return ""


def _mount_by_program(folder: "str", shown: "_Shown") -> "int":
    """``fusermount`` opens the device, mounts it and passes the descriptor back."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    escaped = shown.source.replace("\\", "\\\\").replace(",", "\\,")
    options = "fsname=%s,subtype=%s,nosuid,nodev" % (escaped, shown.kind)
    options += (",ro" if shown.is_read_only else "") + (
        ",allow_other" if shown.is_for_all and _program_allows_others() else ""
    )
    with ours, its:
        process = subprocess.Popen(
            [_fusermount(), "-o", options, "--", folder],
            env=dict(os.environ, _FUSE_COMMFD=str(its.fileno())),
            pass_fds=(its.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        its.close()
        descriptors = array.array("i")
        _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(descriptors.itemsize))
        for _, _, data in ancillary:
            descriptors.frombytes(data[: descriptors.itemsize])
        message = process.communicate()[1].decode("utf-8", "replace").strip()
    if not descriptors:
        reason = message.rpartition(":")[2].strip() or "fusermount gave no reason"
        raise MountError("%s cannot be mounted: %s." % (folder, reason.lower().rstrip(".")))
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def _program_allows_others() -> "bool":
    """Whether root lets other users mount for more accounts than their own."""
    try:
        with open(_FUSE_SETTINGS) as f:
            return any(line.strip() == "user_allow_other" for line in f)
    except OSError:
        return False


def _run(command: "list[str]") -> "str":
    """Error message of a program; empty if it succeeded."""
    done = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    message = done.communicate()[1].decode("utf-8", "replace").strip()
    return "" if done.returncode == 0 else message or "exit status %d" % done.returncode
