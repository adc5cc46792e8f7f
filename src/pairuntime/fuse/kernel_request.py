"""One message of the kernel."""

import os

from pairuntime.fuse import wire


class KernelRequest:
    """One message of the kernel. ``body`` is valid until it is answered."""

    __slots__ = ("body", "node_id", "opcode", "pid", "unique")

    def __init__(self, message: "memoryview") -> "None":
        _, self.opcode, self.unique, self.node_id, _, _, self.pid, _, _ = wire.IN_HEADER.unpack_from(message)
        self.body = message[wire.IN_HEADER.size :]

    def name(self, after: "int" = 0) -> "str":
        return os.fsdecode(bytes(self.body[after:]).partition(b"\0")[0])
