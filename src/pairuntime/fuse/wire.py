"""Messages of the kernel's FUSE protocol, version 7.31: numbers and layouts, nothing else.

The layouts are those of ``linux/fuse.h``; all numbers are in the machine's own byte order.
"""

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from pairuntime.fuse.file_system import Entry

MAJOR, MINOR = 7, 31
OLDEST_MINOR = 23  # Linux 3.15: the replies have had these layouts since then
ROOT_ID = 1
MAX_WRITE_BYTES = 1 << 20
PAGE_BYTES = 4096

# fmt: off
(LOOKUP, FORGET, GETATTR, SETATTR, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, OPEN, READ, WRITE, STATFS, RELEASE,
 FSYNC, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, FSYNCDIR, CREATE, INTERRUPT, DESTROY, BATCH_FORGET,
 READDIRPLUS, RENAME2) = (
    1, 2, 3, 4, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18,
    20, 25, 26, 27, 28, 29, 30, 35, 36, 38, 42,
    44, 45)
# fmt: on
NOTIFY_INVAL_INODE = 2

# Capabilities. The kernel uses those that both sides name.
ASYNC_READ = 1 << 0
ATOMIC_O_TRUNC = 1 << 3
BIG_WRITES = 1 << 5
AUTO_INVAL_DATA = 1 << 12
DO_READDIRPLUS = 1 << 13
READDIRPLUS_AUTO = 1 << 14
PARALLEL_DIROPS = 1 << 18
MAX_PAGES = 1 << 22
_WANTED = (ASYNC_READ | ATOMIC_O_TRUNC | BIG_WRITES | AUTO_INVAL_DATA | DO_READDIRPLUS | READDIRPLUS_AUTO) | (
    PARALLEL_DIROPS | MAX_PAGES
)

FOPEN_KEEP_CACHE = 1 << 1

# Fields that a SETATTR sets.
SET_SIZE, SET_ATIME, SET_MTIME, SET_FH, SET_MTIME_NOW = 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 8

RENAME_NOREPLACE = 1

FOLDER_TYPE, FILE_TYPE = 0o040000, 0o100000

IN_HEADER = struct.Struct("=IIQQIIIHH")
OUT_HEADER = struct.Struct("=IiQ")
INIT_IN = struct.Struct("=IIII")
_INIT_OUT = struct.Struct("=IIIIHHIIHHII24x")
_ATTRIBUTES = struct.Struct("=QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("=QQQQII")
_ATTRIBUTES_OUT = struct.Struct("=QII")
GETATTR_IN = struct.Struct("=IIQ")
SETATTR_IN = struct.Struct("=IIQQQQQQIIIIIIII")
MKDIR_IN = struct.Struct("=II")
MKNOD_IN = struct.Struct("=IIII")
RENAME_IN = struct.Struct("=Q")
RENAME2_IN = struct.Struct("=QII")
OPEN_IN = struct.Struct("=II")
CREATE_IN = struct.Struct("=IIII")
OPEN_OUT = struct.Struct("=QII")
RELEASE_IN = struct.Struct("=QIIQ")
READ_IN = WRITE_IN = struct.Struct("=QQIIQII")
WRITE_OUT = struct.Struct("=II")
FORGET_IN = struct.Struct("=Q")
BATCH_FORGET_IN = struct.Struct("=II")
FORGET_ONE = struct.Struct("=QQ")
_STATFS = struct.Struct("=QQQQQIII28x")
_DIRENT = struct.Struct("=QQII")
INVAL_INODE = struct.Struct("=Qqq")


def init_reply(body: "bytes") -> "bytes":
    """Response to the first message. An older kernel is an error."""
    major, minor, read_ahead, flags = INIT_IN.unpack_from(body)
    if major < MAJOR or (major == MAJOR and minor < OLDEST_MINOR):
        raise OSError(71, "the kernel's FUSE protocol %d.%d is too old" % (major, minor))
    pages = MAX_WRITE_BYTES // PAGE_BYTES
    return _INIT_OUT.pack(
        MAJOR, MINOR, read_ahead, flags & _WANTED, 64, 48, MAX_WRITE_BYTES, 1, pages, 0, 0, 0
    )


def attributes(node_id: "int", entry: "Entry", uid: "int", gid: "int") -> "bytes":
    kind = FOLDER_TYPE if entry.is_folder else FILE_TYPE
    mode = kind | (entry.mode & 0o777 or (0o755 if entry.is_folder else 0o644))
    seconds, rest = divmod(max(0, entry.mtime_ns), 10**9)
    blocks = (entry.size + 511) // 512
    links = 2 if entry.is_folder else 1
    times = (seconds, seconds, seconds, rest, rest, rest)
    return _ATTRIBUTES.pack(node_id, entry.size, blocks, *times, mode, links, uid, gid, 0, PAGE_BYTES, 0)


def attributes_reply(packed: "bytes", valid_s: "int") -> "bytes":
    return _ATTRIBUTES_OUT.pack(valid_s, 0, 0) + packed


def entry_reply(node_id: "int", packed: "bytes", valid_s: "int") -> "bytes":
    return _ENTRY.pack(node_id, 0, valid_s, valid_s, 0, 0) + packed


NO_ENTRY = _ENTRY.pack(0, 0, 0, 0, 0, 0) + bytes(_ATTRIBUTES.size)


def statfs_reply(free_bytes: "int | None") -> "bytes":
    # A storage that does not tell looks empty and large: programs refuse to write to a full one.
    free = (1 << 50 if free_bytes is None else free_bytes) // PAGE_BYTES
    return _STATFS.pack(max(free, 1), free, free, 1 << 30, 1 << 30, PAGE_BYTES, 255, PAGE_BYTES)


def directory_entry(node_id: "int", next_offset: "int", name: "bytes", is_folder: "bool") -> "bytes":
    kind = (FOLDER_TYPE if is_folder else FILE_TYPE) >> 12
    return _DIRENT.pack(node_id, next_offset, len(name), kind) + name + bytes(-len(name) % 8)
