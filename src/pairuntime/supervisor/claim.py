"""Who owns an attempt. The claim is a file that appears already locked, and at most once."""

import errno
import fcntl
import json
import os
import time

NAME = "claim"

# struct flock of 64-bit Linux: type, whence, start, len, pid.
_FLOCK = "hhqqi"


def read_file(path: "str") -> "bytes":
    """A small file. A copy of the zygote pays for every page it touches, and `open` touches many."""
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


# It cannot change while this process or a copy of it lives.
_BOOT_ID = _read_boot_id()


def boot_id() -> "str":
    return _BOOT_ID.decode()


# What an owner says of itself. Its words need no escaping, and a copy of the zygote does without `json`.
_OWNER = b'{"attempt": "%s", "boot_id": "%s", "pid": %d, "start_time": %d, "claimed_ms": %d}'


def start_time(pid: "int") -> "int":
    """When the process started, in ticks since boot; 0 when there is no such process."""
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
        # Some shared file systems know no locks. The link still decides who owns the attempt; that its owner
        # lives has to be learnt elsewhere there.
        if e.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
            raise


def acquire(folder: "str", attempt: "str") -> "int":
    """Claim the attempt for this process. Gives the locked descriptor, or -1 when someone owns it."""
    pid = os.getpid()
    aside = os.path.join(folder, "claim.%d" % pid)
    fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        # POSIX locks belong to the process: a child does not inherit them, and they end with us.
        _lock(fd)
        os.write(fd, _OWNER % (attempt.encode(), _BOOT_ID, pid, start_time(pid), int(time.time() * 1000)))
        os.link(aside, os.path.join(folder, NAME))
    except OSError as e:
        os.close(fd)
        if e.errno == errno.EEXIST:
            return -1
        raise
    finally:
        os.unlink(aside)
    return fd


def bury(folder: "str", attempt: "str", lost: "str" = "") -> "bool":
    """Make sure an unclaimed attempt is never started. False: someone owns it already.

    ``lost``: what took it away, when it was not we who gave it up.
    """
    aside = os.path.join(folder, "claim.tomb.%s" % os.urandom(8).hex())
    # The folder may be another account's: whatever stands there under this name is not to be written through.
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        owner = {"attempt": attempt, "tombstone": True, "claimed_ms": int(time.time() * 1000), "lost": lost}
        os.write(fd, json.dumps(owner).encode())
        os.link(aside, os.path.join(folder, NAME))
    except OSError as e:
        if e.errno == errno.EEXIST:
            return False
        raise
    finally:
        os.close(fd)
        os.unlink(aside)
    return True


def read(folder: "str") -> "dict[str, object] | None":
    """What the owner wrote, or None when the attempt is unclaimed. Empty: claimed, nobody knows by whom."""
    try:
        with open(os.path.join(folder, NAME), "rb") as f:
            return dict(json.loads(f.read().decode()))
    except FileNotFoundError:
        return None
    except ValueError:  # the machine lost its power before the words were on disk
        return {}


def is_held(folder: "str") -> "bool":
    """Whether the owner of the claim is alive: it holds the lock. Asks without taking it."""
    try:
        fd = os.open(os.path.join(folder, NAME), os.O_RDWR)
    except FileNotFoundError:
        return False
    import struct  # those who hold a claim never ask, and start sooner without

    try:
        query = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, query)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
    finally:
        os.close(fd)
