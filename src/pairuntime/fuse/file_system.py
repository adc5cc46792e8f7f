"""Interface of a storage that can be mounted. Several threads call it at once; failures are OSErrors."""

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import BinaryIO


class Entry:
    """A file or a folder as a listing shows it."""

    __slots__ = ("is_folder", "mode", "mtime_ns", "name", "size")

    def __init__(
        self, name: "str", is_folder: "bool", size: "int" = 0, mtime_ns: "int" = 0, mode: "int" = 0
    ) -> "None":
        self.name = name
        self.is_folder = is_folder
        self.size = size
        self.mtime_ns = mtime_ns
        self.mode = mode


class OpenFile:
    """A file being read, as it was when it was opened."""

    size = 0
    mtime_ns = 0

    def read(self, offset: "int", length: "int") -> "bytes":
        """Bytes of a range inside the file. Several threads may call it."""
        raise NotImplementedError

    def fileno(self) -> "int":
        """Descriptor with the same bytes; -1 where there is none."""
        return -1

    def close(self) -> "None":
        pass


class FileSystem:
    """Paths are absolute and separated by ``/``; names may have any bytes (surrogateescape)."""

    is_read_only = False

    def status(self, path: "str") -> "Entry | None":
        raise NotImplementedError

    def entries(self, path: "str") -> "list[Entry]":
        raise NotImplementedError

    def open(self, path: "str") -> "OpenFile":
        raise NotImplementedError

    def write(self, path: "str", source: "BinaryIO", mtime_ns: "int", mode: "int") -> "None":
        """Replace a file by the whole content of another one, atomically."""
        raise NotImplementedError

    def make_folder(self, path: "str") -> "None":
        raise NotImplementedError

    def delete_file(self, path: "str") -> "None":
        raise NotImplementedError

    def delete_folder(self, path: "str") -> "None":
        """Delete an empty folder."""
        raise NotImplementedError

    def rename(self, path: "str", target: "str") -> "None":
        """Rename, and replace what is at the target."""
        raise NotImplementedError

    def free_bytes(self) -> "int | None":
        return None
