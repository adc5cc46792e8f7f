"""Numbers by which the kernel names files and folders, and the paths they stand for at the moment."""

import errno
import threading

from pairuntime.fuse.wire import ROOT_ID

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from pairuntime.fuse.staged_file import StagedFile


class Node:
    """A file or folder that the kernel knows. ``parent`` is None for the root and for deleted ones."""

    __slots__ = ("children", "id", "is_folder", "lookups", "name", "parent", "staged", "version")

    def __init__(self, node_id: "int", parent: "Node | None", name: "str", is_folder: "bool") -> "None":
        self.id = node_id
        self.parent = parent
        self.name = name
        self.is_folder = is_folder
        self.children = {}  # type: dict[str, Node]
        self.lookups = 0
        # Content that programs are writing; None while it is only on the storage.
        self.staged: "StagedFile | None" = None
        # Size and time of the content that the kernel may have in its page cache.
        self.version: "tuple[int, int] | None" = None


class NodeTable:
    """All nodes. A node lives until the kernel has forgotten every lookup of it."""

    def __init__(self) -> "None":
        self.lock = threading.RLock()
        self.root = Node(ROOT_ID, None, "", True)
        self._nodes = {ROOT_ID: self.root}
        self._next_id = ROOT_ID + 1

    def get(self, node_id: "int") -> "Node":
        return self._nodes[node_id]

    def child(self, parent: "Node", name: "str", is_folder: "bool", count_lookup: "bool" = True) -> "Node":
        """The node of a name, created if there is none."""
        with self.lock:
            node = parent.children.get(name)
            if node is not None and node.is_folder != is_folder:
                self._detach(node)  # a file replaced a folder on the storage, or the other way round
                node = None
            if node is None:
                node = Node(self._next_id, parent, name, is_folder)
                self._next_id += 1
                self._nodes[node.id] = node
                parent.children[name] = node
            if count_lookup:
                node.lookups += 1
            return node

    def known_child(self, parent: "Node", name: "str") -> "Node | None":
        return parent.children.get(name)

    def path(self, node: "Node") -> "str | None":
        """Absolute path; None if the file was deleted."""
        with self.lock:
            parts = []
            while node.parent is not None:
                parts.append(node.name)
                node = node.parent
            if node is not self.root:
                return None
            return "/" + "/".join(reversed(parts))

    def existing_path(self, node: "Node") -> "str":
        path = self.path(node)
        if path is None:
            raise FileNotFoundError(errno.ENOENT, "deleted")
        return path

    def forget(self, node_id: "int", count: "int") -> "None":
        with self.lock:
            node = self._nodes.get(node_id)
            if node is None or node is self.root:
                return
            node.lookups -= count
            if node.lookups <= 0 and not node.children and node.staged is None:
                self._detach(node)
                del self._nodes[node_id]

    def remove(self, parent: "Node", name: "str") -> "None":
        """Remove a deleted name; its node stays as long as the kernel uses it."""
        with self.lock:
            node = parent.children.get(name)
            if node is not None:
                self._detach(node)

    def rename(self, parent: "Node", name: "str", new_parent: "Node", new_name: "str") -> "None":
        with self.lock:
            self.remove(new_parent, new_name)
            node = parent.children.pop(name, None)
            if node is not None:
                node.parent, node.name = new_parent, new_name
                new_parent.children[new_name] = node

    def staged_files(self) -> "list[Node]":
        with self.lock:
            return [node for node in self._nodes.values() if node.staged is not None]

    def staged_below(self, folder: "Node") -> "list[Node]":
        """Files of one folder that are being written, and may not be on the storage yet."""
        with self.lock:
            return [node for node in folder.children.values() if node.staged is not None]

    def staged_within(self, node: "Node") -> "list[Node]":
        """Files that are being written: the node itself, or those at any depth below it."""
        with self.lock:
            staged, remaining = [], [node]
            while remaining:
                current = remaining.pop()
                remaining += current.children.values()
                if current.staged is not None:
                    staged.append(current)
            return staged

    @staticmethod
    def _detach(node: "Node") -> "None":
        if node.parent is not None and node.parent.children.get(node.name) is node:
            del node.parent.children[node.name]
        node.parent = None
