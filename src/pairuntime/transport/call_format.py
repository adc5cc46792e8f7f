"""Files of a function that runs as a job: its calls, and the result of each of them.

A file of calls has the pickled function once, and the pickled arguments of each call, so that a task reads
only its own. The result of a call is one line of JSON, followed by the pickled value.
"""

import json
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any, Callable

CALLS_MAGIC = b"PAICALL1"
RESULT_MAGIC = b"PAIRES1\n"
_COUNT = struct.Struct("<Q")
_RANGE = struct.Struct("<QQ")
_HEAD_BYTES = len(CALLS_MAGIC) + _COUNT.size
FIRST_READ_BYTES = 64 << 10
"""Read first: small files are complete after this."""

# The kinds of what a call refers to, which a pickled call names instead of containing it.
RESULT_OF_CALL = "result"
STORED_VALUE = "value"

# How a call ended.
DONE = "done"
RAISED = "raised"
OTHER_PYTHON = "other-python"
ENDED = "ended"
"""The process of the call ended before the call did: killed, out of time or of memory."""
DEPENDENCY_FAILED = "dependency-failed"
"""The call was not made: one of its arguments is the result of a call that has none."""
CANCELLED = "cancelled"

CANCELLED_CLAIM = b"cancelled"
"""What a client writes that claims a call so that no task runs it."""


class FormatError(Exception):
    """The file is not what it should be."""


# Files of the calls of an array, below the folder of the job.


def claims_folder(job_folder: "str") -> "str":
    return job_folder + "/claims"


def claim_path(job_folder: "str", index: "int") -> "str":
    return "%s/%d" % (claims_folder(job_folder), index)


def results_folder(job_folder: "str") -> "str":
    return job_folder + "/results"


def shared_result(job_folder: "str", index: "int") -> "str":
    return "%s/%d.pickle" % (results_folder(job_folder), index)


def shared_checkpoint(job_folder: "str", index: "int") -> "str":
    return "%s/checkpoints/%d.pickle" % (job_folder, index)


def process_file(index: "int") -> "str":
    """File in the working folder of a task: the number of the process that makes a call."""
    return ".pai/call-%d.pid" % index


def log_mark(index: "int | None") -> "str":
    """What precedes the output of a call in the log of a task with several; None: what follows the last."""
    return "\n--- no more calls ---\n" if index is None else "\n--- call %d ---\n" % index


def pack_calls(function: "bytes", calls: "list[bytes]") -> "bytes":
    """The file of calls: a table of ranges, the function, the arguments of each call."""
    offset = _HEAD_BYTES + _RANGE.size * (1 + len(calls))
    table = []
    for blob in [function] + calls:
        table.append(_RANGE.pack(offset, len(blob)))
        offset += len(blob)
    return b"".join([CALLS_MAGIC, _COUNT.pack(len(calls))] + table + [function] + calls)


def read_call(read: "Callable[[int, int], bytes]", index: "int") -> "tuple[bytes, bytes]":
    """The function and the arguments of one call; ``read`` returns a range of the file."""
    start = read(0, FIRST_READ_BYTES)

    def part(offset: "int", length: "int") -> "bytes":
        data = start[offset : offset + length]
        return data if len(data) == length else read(offset, length)

    if start[: len(CALLS_MAGIC)] != CALLS_MAGIC or len(start) < _HEAD_BYTES:
        raise FormatError("The file of the call is damaged, or was written by another version.")
    (count,) = _COUNT.unpack(start[len(CALLS_MAGIC) : _HEAD_BYTES])
    if index >= count:
        raise FormatError("There is no call with the number %d: the file has %d." % (index, count))
    ranges = [_RANGE.unpack(part(_HEAD_BYTES + _RANGE.size * i, _RANGE.size)) for i in (0, 1 + index)]
    function, arguments = (part(offset, length) for offset, length in ranges)
    return function, arguments


def pack_result(status: "str", payload: "bytes", **fields: "Any") -> "list[bytes]":
    """The file of a result, in parts: a large payload is not copied."""
    head = dict(fields, status=status, size=len(payload))
    return [RESULT_MAGIC + json.dumps(head).encode() + b"\n", payload]


def read_result(data: "bytes") -> "tuple[dict[str, Any], memoryview]":
    """The fields and the pickled value of a result."""
    end = data.find(b"\n", len(RESULT_MAGIC))
    if not data.startswith(RESULT_MAGIC) or end < 0:
        raise FormatError("The file of the result is damaged, or was written by another version.")
    return dict(json.loads(data[len(RESULT_MAGIC) : end].decode())), memoryview(data)[end + 1 :]
