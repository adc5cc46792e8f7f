"""Open files, and which processes have one open."""

import os

from pairuntime.fuse.read_ahead import ReadAhead

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from concurrent.futures import ThreadPoolExecutor

    from pairuntime.fuse.file_system import OpenFile
    from pairuntime.fuse.node_table import Node


class FileHandle:
    """An open file. ``reader`` is None where programs write: then the node's staged file has the content."""

    def __init__(self, node: "Node", source: "OpenFile | None", pool: "ThreadPoolExecutor") -> "None":
        self.node = node
        self.source = source
        self.fd = -1 if source is None else source.fileno()
        self.reader = None if source is None or self.fd >= 0 else ReadAhead(source, pool)
        self.opener_pid = 0

    def read(self, offset: "int", length: "int") -> "bytes":
        if self.fd >= 0:
            return os.pread(self.fd, length, offset)
        if self.reader is not None:
            return self.reader.read(offset, length)
        staged = self.node.staged
        return b"" if staged is None else staged.read(offset, length)

    def close(self) -> "None":
        if self.reader is not None:
            self.reader.close()
        if self.source is not None:
            self.source.close()


def is_open_in(pids: "set[int]", path: "str") -> "bool":
    """Whether one of these processes has the file open."""
    # The kernel calls a name deleted also when it looked the name up again since the file was opened.
    names = (path, path + " (deleted)")
    for pid in pids:
        folder = "/proc/%d/fd" % pid
        try:
            for name in os.listdir(folder):
                try:
                    if os.readlink(folder + "/" + name) in names:
                        return True
                except OSError:
                    pass
        except OSError:
            pass  # it has ended, or is another user's
    return False
