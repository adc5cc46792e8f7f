"""Messages of a session, as docs/contributing/exec-and-forward.md describes them.

Control messages are JSON in text frames. Data is in binary frames, after one byte that names the stream.
"""

import json

PROTOCOL = "pai.session.v1"

STDIN = 0
STDOUT = 1
STDERR = 2

# Bytes of stdin that a client may send before the host has acknowledged any of them.
STDIN_WINDOW_BYTES = 1 << 20
# Of one data message.
CHUNK_BYTES = 256 << 10

START = "start"
RESIZE = "resize"
SIGNAL = "signal"
STDIN_END = "stdin-end"
ACK = "ack"
EXIT = "exit"
ERROR = "error"

# Those of RFC 4254, in which death by a signal is reported to SSH clients.
RFC_SIGNALS = tuple("ABRT ALRM FPE HUP ILL INT KILL PIPE QUIT SEGV TERM USR1 USR2".split())
# Those that a client may send.
SIGNALS = (*RFC_SIGNALS, "CONT", "STOP", "TSTP", "WINCH")


def encode(kind: "str", **fields: "object") -> "bytes":
    return json.dumps(dict(fields, type=kind)).encode()


def decode(payload: "bytes") -> "dict[str, object]":
    """The fields of a control message; empty if it is none."""
    try:
        fields = json.loads(payload.decode())
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) and isinstance(fields.get("type"), str) else {}
