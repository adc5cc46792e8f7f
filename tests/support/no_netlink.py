"""Filter of system calls: a process that cannot notice when network interfaces come and go."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct

_SOCKET_CALLS = {"x86_64": 41, "aarch64": 198}
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
# Instructions of the kernel's packet filter, and what a filter may return.
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
# Places in the data that a filter sees: the number of the call, and the low half of its first argument.
_CALL, _FIRST_ARGUMENT = 0, 16

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _instructions(call: int) -> bytes:
    steps = (
        (_LOAD, 0, 0, _CALL),
        (_JUMP_IF_EQUAL, 0, 3, call),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_IF_EQUAL, 0, 1, socket.AF_NETLINK),
        (_RETURN, 0, 0, _FAIL | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    )
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def refuse_netlink() -> None:
    """Sockets of the kind netlink cannot be opened any more by this process and its children."""
    call = _SOCKET_CALLS.get(platform.machine())
    if call is None:
        return
    steps = _instructions(call)
    program = _Program(len(steps) // 8, steps)
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or _libc.prctl(
        _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0
    ):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
