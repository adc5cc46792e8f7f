"""The claim of an attempt: a file that appears already locked, and at most once."""

import errno
import fcntl
import json
import os
import time

NAME = "claim"

# struct flock of 64-bit Linux: type, whence, start, len, pid.
_FLOCK = "hhqqi"


MAX_RECORD_BYTES = 1 << 20
"""A claim or an exit record that is longer was not written by a supervisor."""


def read_file(path: "str") -> "bytes":
    """Content of a small file. A forked supervisor pays for every page it writes, and `open` writes many."""
    fd = os.open(path, os.O_RDONLY)
    try:
        parts = []  # type: list[bytes]
        while True:
            part = os.read(fd, 1 << 16)
            if not part:
                return parts[0] if len(parts) == 1 else b"".join(parts)
            parts.append(part)
    finally:
        os.close(fd)


def _read_boot_id() -> "bytes":
    try:
        return read_file("/proc/sys/kernel/random/boot_id").strip()
    except OSError:
        return b""


# Constant for the life of this process and its forks.
_BOOT_ID = _read_boot_id()


def boot_id() -> "str":
    return _BOOT_ID.decode()


# Content of a claim. The values need no escaping, so a supervisor does without `json`.
_OWNER = b'{"attempt": "%s", "boot_id": "%s", "pid": %d, "start_time": %d, "claimed_ms": %d}'


def start_time(pid: "int") -> "int":
    """Start time of a process in ticks since boot; 0 if there is no such process."""
    try:
        data = read_file("/proc/%d/stat" % pid)
    except OSError:
        return 0
    # The command name may hold spaces and parentheses: fields are counted after the last ')'.
    return int(data[data.rindex(b")") + 2 :].split()[19])


def _lock(fd: "int") -> "None":
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX)
    except OSError as e:
        # Some shared file systems have no locks. The link still decides who owns the attempt; whether the
        # owner is alive has to be found out otherwise.
        if e.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
            raise


def acquire(folder: "str", attempt: "str") -> "int":
    """Claim the attempt for this process. Returns the locked descriptor, or -1 if it is claimed already."""
    pid = os.getpid()
    staging = os.path.join(folder, "claim.%d" % pid)
    fd = os.open(staging, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        # POSIX locks belong to the process: a child does not inherit them, and they end with us.
        _lock(fd)
        os.write(fd, _OWNER % (attempt.encode(), _BOOT_ID, pid, start_time(pid), int(time.time() * 1000)))
        os.link(staging, os.path.join(folder, NAME))
    except OSError as e:
        os.close(fd)
        if e.errno == errno.EEXIST:
            return -1
        raise
    finally:
        os.unlink(staging)
    return fd


def bury(folder: "str", attempt: "str", lost: "str" = "") -> "bool":
    """Write a tombstone, so that an unclaimed attempt is never started. False: it is claimed already.

    ``lost``: the loss reason, if it was not the server that stopped the attempt.
    """
    staging = os.path.join(folder, "claim.tomb.%s" % os.urandom(8).hex())
    # The folder may belong to another account: a link that was planted under this name must not be followed.
    fd = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        owner = {"attempt": attempt, "tombstone": True, "claimed_ms": int(time.time() * 1000), "lost": lost}
        os.write(fd, json.dumps(owner).encode())
        os.link(staging, os.path.join(folder, NAME))
    except OSError as e:
        if e.errno == errno.EEXIST:
            return False
        raise
    finally:
        os.close(fd)
        os.unlink(staging)
    return True


def read(folder: "str") -> "dict[str, object] | None":
    """Content of the claim; None if unclaimed, empty if claimed but unreadable."""
    try:
        with open(os.path.join(folder, NAME), "rb") as f:
            return dict(json.loads(f.read(MAX_RECORD_BYTES).decode()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError):  # a power failure before the content was on disk
        return {}


def is_held(folder: "str") -> "bool":
    """Whether the owner of the claim is alive: it holds the lock. Tested without taking it."""
    try:
        fd = os.open(os.path.join(folder, NAME), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return is_locked(fd)
    finally:
        os.close(fd)


def is_locked(fd: "int") -> "bool":
    """Whether the lock of an open claim is held."""
    import struct  # supervisors never call this, and start sooner without it

    query = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    result = fcntl.fcntl(fd, fcntl.F_GETLK, query)
    return bool(struct.unpack(_FLOCK, result)[0] != fcntl.F_UNLCK)
