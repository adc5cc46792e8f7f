"""The exit record: written aside, on disk, then renamed. Its presence is the end of the attempt."""

import json
import os

NAME = "exit.json"
_ASIDE = "exit.aside"
_RESERVED = 4096


def reserve(folder: "str") -> "int":
    """Take the room for the record now, so that a full disk cannot keep the end from being told."""
    fd = os.open(os.path.join(folder, _ASIDE), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.posix_fallocate(fd, 0, _RESERVED)
    except OSError:
        pass
    return fd


def write(folder: "str", fd: "int", record: "dict[str, object]") -> "None":
    data = json.dumps(record).encode()
    os.pwrite(fd, data, 0)
    os.ftruncate(fd, len(data))
    os.fsync(fd)
    os.rename(os.path.join(folder, _ASIDE), os.path.join(folder, NAME))


def sync(folder: "str") -> "None":
    """See to it that the record is still there under its name should the machine lose its power."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # whoever read it has removed it already
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
            return dict(json.loads(f.read().decode()))
    except FileNotFoundError:
        return None
