"""Mount namespaces: what is mounted for a task is seen by its processes only, and ends with the last one."""

import ctypes
import os

_CLONE_NEWNS = 0x00020000
_MS_REC, _MS_SLAVE = 1 << 14, 1 << 19


def enter_own() -> "bool":
    """Give this process a mount namespace of its own. False: its account may not."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        return False
    # What is mounted on the machine later appears here too; what is mounted here appears nowhere else.
    if libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True


def join(pid: "int") -> "None":
    """Enter the mount namespace of a process, if it has another one. OSError where that is not allowed."""
    path = "/proc/%d/ns/mnt" % pid
    if os.readlink(path) == os.readlink("/proc/self/ns/mnt"):
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(fd, _CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(fd)
