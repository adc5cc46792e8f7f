"""The exit record: written to a staging file, synced, then renamed. Its presence means the attempt ended."""

import json
import os

from pairuntime.supervisor.claim import MAX_RECORD_BYTES

NAME = "exit.json"
_STAGING = "exit.staging"
_RESERVED_BYTES = 4096


def decode_status(status: "int | None") -> "tuple[int | None, int | None]":
    """Exit code and signal of a wait status; both None if the program never ran."""
    if status is None:
        return None, None
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None


def reserve(folder: "str") -> "int":
    """Allocate the space of the record at the start, so that a full disk cannot prevent it at the end."""
    fd = os.open(os.path.join(folder, _STAGING), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.posix_fallocate(fd, 0, _RESERVED_BYTES)
    except OSError:
        pass
    return fd


def write(folder: "str", fd: "int", record: "dict[str, object]") -> "None":
    data = json.dumps(record).encode()
    os.pwrite(fd, data, 0)
    os.ftruncate(fd, len(data))
    os.fsync(fd)
    os.rename(os.path.join(folder, _STAGING), os.path.join(folder, NAME))


def sync(folder: "str") -> "None":
    """Sync the folder, so that the record keeps its name after a power failure."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # the server has read the record and removed the folder already
        return
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)


def read(folder: "str") -> "dict[str, object] | None":
    try:
        with open(os.path.join(folder, NAME), "rb") as f:
            return dict(json.loads(f.read(MAX_RECORD_BYTES).decode()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError):  # not written by a supervisor
        return None
