"""Detection of network file systems, where locks, SQLite and inotify cannot be relied on."""

import os

MOUNTS = "/proc/self/mountinfo"

# Other machines write here, and this kernel does not see their writes.
NETWORK_TYPES = (
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "davfs",
    "gluster",
    "gpfs",
    "lustre",
    "nfs",
    "pvfs",
    "smb",
    "weka",
)
LOCAL_FUSE_TYPES = frozenset(
    ("fuseblk", "fuse.fuse-overlayfs", "fuse.ntfs-3g", "fuse.gocryptfs", "fuse.encfs", "fuse.bindfs")
)

_by_device = {}  # type: dict[int, bool]


def is_on_network(path: "str | os.PathLike[str]") -> "bool":
    """Whether a path lies on a network file system; cached by device. False if the path does not exist."""
    try:
        device = os.stat(path).st_dev
    except OSError:
        return False
    if device not in _by_device:
        _by_device[device] = bool(network_type(os.fspath(path)))
    return _by_device[device]


def network_type(path: "str", mounts: "str" = "") -> "str":
    """The type of the network file system a path lies on; empty for a local one.

    ``mounts``: text of /proc/self/mountinfo, read if empty.
    """
    if not mounts:
        try:
            with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as f:
                mounts = f.read()
        except OSError:
            return ""
    path = os.path.realpath(path)
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, rest = left.split(" "), right.split(" ")
        if len(fields) < 5:
            continue
        point = _unescape(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # a later mount on the same point hides earlier ones
            best, kind = point, rest[0]
    is_fuse = kind.startswith("fuse") and kind not in LOCAL_FUSE_TYPES
    return kind if is_fuse or kind.startswith(NETWORK_TYPES) else ""


def _unescape(field: "str") -> "str":
    """A mount point, in which space, tab, newline and backslash are written as octal."""
    if "\\" not in field:
        return field
    for code in ("040", "011", "012", "134"):
        field = field.replace("\\" + code, chr(int(code, 8)))
    return field
