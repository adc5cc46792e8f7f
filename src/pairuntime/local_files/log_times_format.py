"""Format of the file with the times of a task's log: written beside the log, read by the server.

A header and entries of the same size. An entry has a time and, for each stream, the length of its log at that
time: what follows, up to the next entry, was written then or, at most the precision in the header, later.
"""

NAME = "log-times"
STREAMS = ("all", "stdout", "stderr")
MAX_ENTRIES = 16384
ENTRY_BYTES = 32

_MAGIC = b"logtime1"
_NUMBER_BYTES = 8


def header(precision_ms: "int") -> "bytes":
    return (_MAGIC + _number(precision_ms)).ljust(ENTRY_BYTES, b"\0")


def precision_of(data: "bytes") -> "int":
    """The precision in a header; 0 if the file has no valid one."""
    if len(data) < ENTRY_BYTES or not data.startswith(_MAGIC):
        return 0
    return max(0, _read(data, 1))


def entry(time_ms: "int", offsets: "list[int]") -> "bytes":
    """``offsets``: in the order of the streams."""
    return b"".join(map(_number, [time_ms] + offsets))


def time_of(data: "bytes") -> "int":
    """The time of an entry, in milliseconds since 1970. The file may be damaged: any number is possible."""
    return _read(data, 0)


def offset_of(data: "bytes", stream: "str") -> "int":
    """The offset in an entry; any number is possible."""
    return _read(data, 1 + STREAMS.index(stream))


def entries_of(data: "bytes", stream: "str") -> "list[tuple[int, int]]":
    """Time and offset of each whole entry; any numbers are possible."""
    import struct  # supervisors never call this, and start sooner without it

    offset_at = 1 + STREAMS.index(stream)
    whole = data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]
    return [(numbers[0], numbers[offset_at]) for numbers in struct.iter_unpack("<4q", whole)]


def _number(value: "int") -> "bytes":
    return value.to_bytes(_NUMBER_BYTES, "little", signed=True)


def _read(data: "bytes", index: "int") -> "int":
    at = index * _NUMBER_BYTES
    return int.from_bytes(data[at : at + _NUMBER_BYTES], "little", signed=True)
