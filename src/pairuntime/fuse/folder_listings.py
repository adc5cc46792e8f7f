"""Listings of folders: what programs read, and answers that are kept for a short time."""

import os
import threading
import time

from pairuntime.fuse import wire
from pairuntime.fuse.file_system import Entry

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Callable

    from pairuntime.fuse.file_system import FileSystem
    from pairuntime.fuse.kernel_request import KernelRequest
    from pairuntime.fuse.node_table import Node, NodeTable

ATTRIBUTES_VALID_S = 1
"""How long the kernel may use a name and its attributes without asking again."""
LISTING_VALID_S = 2.0
"""How long a listing is used: ``ls -l`` asks for every file of a folder, and one list has the answers."""
MAX_LISTINGS = 64
# More than the largest reply has room for.
_MAX_ENTRIES_PER_REPLY = 4096


class FolderListings:
    """Answers the requests that read folders. A folder is shown as it was when a program began to read it."""

    def __init__(
        self, storage: "FileSystem", nodes: "NodeTable", attributes: "Callable[[Node, Entry], bytes]"
    ) -> "None":
        self._storage = storage
        self._nodes = nodes
        self._attributes = attributes
        self._lock = threading.Lock()
        self._recent = {}  # type: dict[str, tuple[float, dict[str, Entry]]]
        self._open = {}  # type: dict[int, list[Entry]]
        self._next_handle = 1

    def recent(self, folder: "str") -> "dict[str, Entry] | None":
        """Entries of a folder by name, if it was listed a moment ago."""
        with self._lock:
            listing = self._recent.get(folder)
            if listing is None or time.monotonic() - listing[0] > LISTING_VALID_S:
                return None
            return listing[1]

    def changed(self, path: "str") -> "None":
        """Discard the listings made before this file or folder changed."""
        with self._lock:
            self._recent.pop(path.rpartition("/")[0] or "/", None)
            self._recent.pop(path, None)

    def opendir(self, request: "KernelRequest") -> "bytes":
        node = self._nodes.get(request.node_id)
        path = self._nodes.existing_path(node)
        entries = self._storage.entries(path)
        self._keep(path, entries)
        staged = {
            child.name: child.staged.entry(child.name)
            for child in self._nodes.staged_below(node)
            if child.staged
        }
        shown = [entry for entry in entries if entry.name not in staged] + list(staged.values())
        with self._lock:
            number = self._next_handle
            self._next_handle += 1
            self._open[number] = shown
        return wire.OPEN_OUT.pack(number, 0, 0)

    def releasedir(self, request: "KernelRequest") -> "None":
        with self._lock:
            self._open.pop(wire.RELEASE_IN.unpack_from(request.body)[0], None)

    def readdir(self, request: "KernelRequest") -> "bytes":
        number, offset, size = wire.READ_IN.unpack_from(request.body)[:3]
        reply = bytearray()
        for i, (name, entry) in enumerate(self._listed(number, offset), offset):
            record = wire.directory_entry(1, i + 1, name, entry.is_folder)
            if len(reply) + len(record) > size:
                break
            reply += record
        return bytes(reply)

    def readdirplus(self, request: "KernelRequest") -> "bytes":
        """Names with their attributes: ``ls -l`` then needs no further request."""
        number, offset, size = wire.READ_IN.unpack_from(request.body)[:3]
        parent = self._nodes.get(request.node_id)
        reply = bytearray()
        for i, (name, entry) in enumerate(self._listed(number, offset), offset):
            if len(reply) + len(wire.NO_ENTRY) + len(wire.directory_entry(1, 0, name, False)) > size:
                break
            if name in (b".", b".."):
                reply += wire.NO_ENTRY
                node_id = 1
            else:
                node = self._nodes.child(parent, entry.name, entry.is_folder)
                node_id = node.id
                reply += wire.entry_reply(node_id, self._attributes(node, entry), ATTRIBUTES_VALID_S)
            reply += wire.directory_entry(node_id, i + 1, name, entry.is_folder)
        return bytes(reply)

    def _keep(self, folder: "str", entries: "list[Entry]") -> "None":
        with self._lock:
            self._recent.pop(folder, None)
            while len(self._recent) >= MAX_LISTINGS:
                del self._recent[next(iter(self._recent))]
            self._recent[folder] = (time.monotonic(), {entry.name: entry for entry in entries})

    def _listed(self, number: "int", offset: "int") -> "list[tuple[bytes, Entry]]":
        """Entries from an offset on, as many as one reply can have."""
        entries = self._open[number]
        dots = [(b".", Entry(".", True)), (b"..", Entry("..", True))][offset:]
        first = max(0, offset - 2)
        return dots + [(os.fsencode(e.name), e) for e in entries[first : first + _MAX_ENTRIES_PER_REPLY]]
