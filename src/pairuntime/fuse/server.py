"""Server of one mounted file system: reads the kernel's requests from ``/dev/fuse`` and answers them.

A file that a program writes is staged on this machine and put onto the storage when the program closes it:
other users of the storage see the old file or the whole new one.
"""

import errno
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from pairuntime.fuse import wire
from pairuntime.fuse.file_handle import FileHandle, is_open_in
from pairuntime.fuse.file_system import Entry
from pairuntime.fuse.folder_listings import ATTRIBUTES_VALID_S, FolderListings
from pairuntime.fuse.kernel_request import KernelRequest
from pairuntime.fuse.node_table import NodeTable
from pairuntime.fuse.staged_file import StagedFile

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Callable, Iterator

    from pairuntime.fuse.file_system import FileSystem, OpenFile
    from pairuntime.fuse.node_table import Node

    Handler = Callable[["KernelRequest"], "bytes | None"]

assert sys.platform == "linux"

THREADS = 8
"""Requests that are served at the same time: each may wait for the storage."""
FETCH_THREADS = 8
_BUFFER_BYTES = wire.MAX_WRITE_BYTES + wire.PAGE_BYTES
# When the mount is stopped: for uploads in progress, and for programs to close the files that they write.
_UPLOADS_TIMEOUT_S = 60.0
_OPEN_FILES_TIMEOUT_S = 2.0
_CHECK_INTERVAL_S = 0.05


class Server:
    """Serves requests until the file system is unmounted. ``report`` gets sentences about lost writes.

    ``owner``: user and group of all files; by default those of this process.
    """

    def __init__(
        self,
        storage: "FileSystem",
        device: "int",
        mountpoint: "str",
        report: "Callable[[str], None]",
        owner: "tuple[int, int] | None" = None,
    ) -> "None":
        self._storage = storage
        self._device = device
        self._mountpoint = mountpoint.rstrip("/")
        self._report = report
        self._nodes = NodeTable()
        self._lock = threading.Lock()
        self._files = {}  # type: dict[int, FileHandle]
        self._next_handle = 1
        self._pool = ThreadPoolExecutor(FETCH_THREADS)
        self._uid, self._gid = owner or (os.getuid(), os.getgid())
        self._listings = FolderListings(storage, self._nodes, self._attributes)
        self._ended = threading.Event()
        self._active = 0
        self._handlers = {
            wire.INIT: self._init,
            wire.LOOKUP: self._lookup,
            wire.GETATTR: self._getattr,
            wire.SETATTR: self._setattr,
            wire.MKNOD: self._mknod,
            wire.MKDIR: self._mkdir,
            wire.UNLINK: self._unlink,
            wire.RMDIR: self._rmdir,
            wire.RENAME: self._rename,
            wire.RENAME2: self._rename2,
            wire.OPEN: self._open,
            wire.CREATE: self._create,
            wire.READ: self._read,
            wire.WRITE: self._write,
            wire.FLUSH: self._flush,
            wire.RELEASE: self._release,
            wire.FSYNC: self._nothing,
            wire.FSYNCDIR: self._nothing,
            wire.OPENDIR: self._listings.opendir,
            wire.READDIR: self._listings.readdir,
            wire.READDIRPLUS: self._listings.readdirplus,
            wire.RELEASEDIR: self._listings.releasedir,
            wire.STATFS: self._statfs,
            wire.DESTROY: self._nothing,
        }  # type: dict[int, Handler]
        self._silent = {
            wire.FORGET: self._forget,
            wire.BATCH_FORGET: self._batch_forget,
            wire.INTERRUPT: self._nothing,
        }  # type: dict[int, Handler]

    # -- lifecycle ---------------------------------------------------------------------------------

    def start(self) -> "None":
        for _ in range(THREADS):
            threading.Thread(target=self._serve, daemon=True).start()

    def wait(self, timeout_s: "float | None" = None) -> "bool":
        """Whether the file system was unmounted within that time."""
        return self._ended.wait(timeout_s)

    def finish(self, was_unmounted: "bool") -> "None":
        """Complete the uploads of closed files. Files still open for writing are lost."""
        began = time.monotonic()
        while not was_unmounted and not self._ended.is_set():
            waited = time.monotonic() - began
            has_open_files = any(node.staged and node.staged.is_dirty for node in self._nodes.staged_files())
            if not (has_open_files and waited < _OPEN_FILES_TIMEOUT_S) and not (
                self._active and waited < _UPLOADS_TIMEOUT_S
            ):
                break
            self._ended.wait(_CHECK_INTERVAL_S)
        for node in self._nodes.staged_files():
            path, staged = self._nodes.path(node), node.staged
            if path is None or staged is None or not staged.is_dirty:
                continue
            if not was_unmounted and not self._ended.is_set():
                self._report("%s was still open for writing and is lost." % self._shown(path))
                continue
            # No program has it open, so it is complete: the kernel did not wait for its last close.
            try:
                self._upload(node)
            except OSError as e:
                self._report("%s could not be written: %s." % (self._shown(path), e.strerror or e))

    def _shown(self, path: "str") -> "str":
        return self._mountpoint + path

    def _serve(self) -> "None":
        buffer = bytearray(_BUFFER_BYTES)
        view = memoryview(buffer)
        while True:
            try:
                size = os.readv(self._device, [buffer])
            except OSError as e:
                if e.errno in (
                    errno.EINTR,
                    errno.EAGAIN,
                    errno.ENOENT,
                ):  # ENOENT: the request was interrupted
                    continue
                self._ended.set()  # ENODEV: unmounted
                return
            if size < wire.IN_HEADER.size:
                self._ended.set()
                return
            with self._lock:
                self._active += 1
            try:
                self._answer(KernelRequest(view[:size]))
            finally:
                with self._lock:
                    self._active -= 1

    def _answer(self, request: "KernelRequest") -> "None":
        silent = self._silent.get(request.opcode)
        if silent is not None:
            silent(request)
            return
        error, reply = 0, b""
        handler = self._handlers.get(request.opcode)
        if handler is None:
            error = errno.ENOSYS
        else:
            try:
                reply = handler(request) or b""
            except OSError as e:
                error = e.errno or errno.EIO
            except KeyError:  # a node or a handle that the kernel should not know
                error = errno.ESTALE
            except Exception as e:  # noqa: BLE001 - one request fails, the mount stays
                self._report("A request of the mount failed: %s: %s" % (type(e).__name__, e))
                error = errno.EIO
        header = wire.OUT_HEADER.pack(wire.OUT_HEADER.size + len(reply), -error, request.unique)
        try:
            os.writev(self._device, [header, reply] if reply else [header])
        except OSError:
            pass  # the request was interrupted, or the file system is unmounted

    def _nothing(self, request: "KernelRequest") -> "bytes | None":
        return None

    def _init(self, request: "KernelRequest") -> "bytes":
        return wire.init_reply(bytes(request.body))

    # -- names and attributes ----------------------------------------------------------------------

    def _child_path(self, request: "KernelRequest", name: "str") -> "tuple[Node, str]":
        parent = self._nodes.get(request.node_id)
        return parent, self._nodes.existing_path(parent).rstrip("/") + "/" + name

    def _status(self, path: "str") -> "Entry | None":
        """Attributes, from a recent listing where there is one. That a name is missing is never assumed."""
        folder, _, name = path.rpartition("/")
        listed = self._listings.recent(folder or "/")
        entry = None if listed is None else listed.get(name)
        return entry if entry is not None else self._storage.status(path)

    def _node_entry(self, node: "Node") -> "Entry":
        staged = node.staged
        if staged is not None:
            return staged.entry(node.name)
        entry = self._status(self._nodes.existing_path(node))
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "deleted")
        return entry

    def _lookup_entry(self, parent: "Node", path: "str", name: "str") -> "Entry | None":
        known = self._nodes.known_child(parent, name)
        if known is not None and known.staged is not None:
            return known.staged.entry(name)
        return self._status(path)

    def _entry_reply(self, parent: "Node", name: "str", entry: "Entry") -> "bytes":
        node = self._nodes.child(parent, name, entry.is_folder)
        return wire.entry_reply(node.id, self._attributes(node, entry), ATTRIBUTES_VALID_S)

    def _attributes(self, node: "Node", entry: "Entry") -> "bytes":
        return wire.attributes(node.id, entry, self._uid, self._gid)

    def _attributes_reply(self, node: "Node") -> "bytes":
        return wire.attributes_reply(self._attributes(node, self._node_entry(node)), ATTRIBUTES_VALID_S)

    def _lookup(self, request: "KernelRequest") -> "bytes":
        name = request.name()
        parent, path = self._child_path(request, name)
        entry = self._lookup_entry(parent, path, name)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, path)
        return self._entry_reply(parent, name, entry)

    def _forget(self, request: "KernelRequest") -> "None":
        self._nodes.forget(request.node_id, wire.FORGET_IN.unpack_from(request.body)[0])

    def _batch_forget(self, request: "KernelRequest") -> "None":
        count = wire.BATCH_FORGET_IN.unpack_from(request.body)[0]
        for i in range(count):
            at = wire.BATCH_FORGET_IN.size + i * wire.FORGET_ONE.size
            self._nodes.forget(*wire.FORGET_ONE.unpack_from(request.body, at))

    def _getattr(self, request: "KernelRequest") -> "bytes":
        return self._attributes_reply(self._nodes.get(request.node_id))

    def _setattr(self, request: "KernelRequest") -> "bytes":
        """Size, and the time of a file that is being written: it is uploaded with that time.

        Other changes have no effect: modes and owners are the storage's own, and so is the time of a file
        that no program writes.
        """
        fields = wire.SETATTR_IN.unpack_from(request.body)
        valid, size, mtime_s, mtime_rest = fields[0], fields[3], fields[6], fields[9]
        node = self._nodes.get(request.node_id)
        if valid & wire.SET_SIZE:
            staged = self._stage(node)
            try:
                staged.truncate(size)
                if not valid & wire.SET_FH:
                    self._upload(node)
            finally:
                self._unstage(node)
        if valid & wire.SET_MTIME and node.staged is not None:
            now = valid & wire.SET_MTIME_NOW
            node.staged.set_time(int(time.time() * 10**9) if now else mtime_s * 10**9 + mtime_rest)
        return self._attributes_reply(node)

    # -- changes of folders ------------------------------------------------------------------------

    def _check_writable(self) -> "None":
        if self._storage.is_read_only:
            raise OSError(errno.EROFS, "read-only")

    def _mkdir(self, request: "KernelRequest") -> "bytes":
        name = request.name(wire.MKDIR_IN.size)
        parent, path = self._child_path(request, name)
        self._check_writable()
        if self._storage.status(path) is not None:
            raise FileExistsError(errno.EEXIST, path)
        self._storage.make_folder(path)
        self._listings.changed(path)
        entry = self._storage.status(path) or Entry(name, True, 0, int(time.time() * 10**9), 0o755)
        return self._entry_reply(parent, name, entry)

    def _unlink(self, request: "KernelRequest") -> "None":
        name = request.name()
        parent = self._nodes.get(request.node_id)
        self._check_writable()
        known = self._nodes.known_child(parent, name)
        with self._uploads_stopped(known):
            path = self._child_path(request, name)[1]
            try:
                self._storage.delete_file(path)
            except FileNotFoundError:
                if known is None or known.staged is None:  # else it is only here, not on the storage yet
                    raise
            self._nodes.remove(parent, name)
        self._listings.changed(path)

    @contextmanager
    def _uploads_stopped(self, *nodes: "Node | None") -> "Iterator[None]":
        """Let no upload of these files, or of files below these folders, run while their names change.

        An upload that began under the old name would bring it back. Locks are taken in order of number, so
        that two renames never wait for each other.
        """
        staged = {}  # type: dict[int, StagedFile]
        for node in nodes:
            for written in [] if node is None else self._nodes.staged_within(node):
                if written.staged is not None:
                    staged[written.id] = written.staged
        with ExitStack() as locks:
            for node_id in sorted(staged):
                locks.enter_context(staged[node_id].lock)
            yield

    def _rmdir(self, request: "KernelRequest") -> "None":
        name = request.name()
        parent, path = self._child_path(request, name)
        self._check_writable()
        known = self._nodes.known_child(parent, name)
        if known is not None and self._nodes.staged_below(known):
            raise OSError(errno.ENOTEMPTY, path)
        self._storage.delete_folder(path)
        self._nodes.remove(parent, name)
        self._listings.changed(path)

    def _rename(self, request: "KernelRequest") -> "None":
        self._move(request, wire.RENAME_IN.unpack_from(request.body)[0], 0, wire.RENAME_IN.size)

    def _rename2(self, request: "KernelRequest") -> "None":
        new_parent, flags, _ = wire.RENAME2_IN.unpack_from(request.body)
        self._move(request, new_parent, flags, wire.RENAME2_IN.size)

    def _move(self, request: "KernelRequest", new_parent_id: "int", flags: "int", names_at: "int") -> "None":
        first, second = bytes(request.body[names_at:]).split(b"\0")[:2]
        name, new_name = os.fsdecode(first), os.fsdecode(second)
        parent, new_parent = self._nodes.get(request.node_id), self._nodes.get(new_parent_id)
        self._check_writable()
        if flags & ~wire.RENAME_NOREPLACE:
            raise OSError(errno.EINVAL, "unsupported")
        known = self._nodes.known_child(parent, name)
        with self._uploads_stopped(known, self._nodes.known_child(new_parent, new_name)):
            path = self._child_path(request, name)[1]
            target = self._nodes.existing_path(new_parent).rstrip("/") + "/" + new_name
            self._check_replaceable(parent, path, name, target, flags)
            try:
                self._storage.rename(path, target)
            except FileNotFoundError:
                staged = None if known is None else known.staged
                if staged is None or not staged.is_dirty:
                    raise
                # It is only here yet: its upload replaces the target, which stays if that fails.
            self._nodes.rename(parent, name, new_parent, new_name)
        self._listings.changed(path)
        self._listings.changed(target)

    def _check_replaceable(
        self, parent: "Node", path: "str", name: "str", target: "str", flags: "int"
    ) -> "None":
        existing = self._storage.status(target)
        if existing is None:
            return
        if flags & wire.RENAME_NOREPLACE:
            raise FileExistsError(errno.EEXIST, target)
        moved = self._lookup_entry(parent, path, name)
        if moved is not None and moved.is_folder != existing.is_folder:
            kind = errno.EISDIR if existing.is_folder else errno.ENOTDIR
            raise OSError(kind, target)
        if existing.is_folder:
            self._storage.delete_folder(target)  # an error unless it is empty

    # -- files -------------------------------------------------------------------------------------

    def _add_handle(self, handle: "FileHandle", pid: "int") -> "int":
        handle.opener_pid = pid
        with self._lock:
            number = self._next_handle
            self._next_handle += 1
            self._files[number] = handle
        return number

    def _open(self, request: "KernelRequest") -> "bytes":
        flags, _ = wire.OPEN_IN.unpack_from(request.body)
        node = self._nodes.get(request.node_id)
        if flags & os.O_ACCMODE != os.O_RDONLY:
            self._stage_opened(node, flags)
            number = self._add_handle(FileHandle(node, None, self._pool), request.pid)
            return wire.OPEN_OUT.pack(number, 0, 0)
        if self._share_staged(node) is not None:  # it reads what other programs are writing
            number = self._add_handle(FileHandle(node, None, self._pool), request.pid)
            return wire.OPEN_OUT.pack(number, 0, 0)
        source = self._storage.open(self._nodes.existing_path(node))
        version = (source.size, source.mtime_ns)
        is_unchanged = node.version == version
        if not is_unchanged:
            node.version = version
            self._forget_attributes(node, source)
        number = self._add_handle(FileHandle(node, source, self._pool), request.pid)
        return wire.OPEN_OUT.pack(number, wire.FOPEN_KEEP_CACHE if is_unchanged else 0, 0)

    def _forget_attributes(self, node: "Node", source: "OpenFile") -> "None":
        """Make the kernel ask for the size again, if it may know that of an older version of the file."""
        path = self._nodes.existing_path(node)
        folder, _, name = path.rpartition("/")
        listed = self._listings.recent(folder or "/")
        entry = None if listed is None else listed.get(name)
        if entry is not None and (entry.size, entry.mtime_ns // 10**6) == (
            source.size,
            source.mtime_ns // 10**6,
        ):
            return
        if entry is not None:
            self._listings.changed(path)
        body = wire.INVAL_INODE.pack(node.id, -1, 0)
        header = wire.OUT_HEADER.pack(wire.OUT_HEADER.size + len(body), wire.NOTIFY_INVAL_INODE, 0)
        try:
            os.writev(self._device, [header, body])
        except OSError:
            pass  # the kernel has forgotten it already

    def _create(self, request: "KernelRequest") -> "bytes":
        flags, mode, umask, _ = wire.CREATE_IN.unpack_from(request.body)
        parent, name, node = self._new_file(request, wire.CREATE_IN.size, mode & ~umask, flags)
        number = self._add_handle(FileHandle(node, None, self._pool), request.pid)
        return self._entry_reply(parent, name, self._node_entry(node)) + wire.OPEN_OUT.pack(number, 0, 0)

    def _mknod(self, request: "KernelRequest") -> "bytes":
        mode, _, umask, _ = wire.MKNOD_IN.unpack_from(request.body)
        if mode & 0o170000 not in (0, wire.FILE_TYPE):
            raise OSError(errno.EPERM, "only files and folders")
        parent, name, node = self._new_file(request, wire.MKNOD_IN.size, mode & ~umask, os.O_EXCL)
        try:
            self._upload(node)
            return self._entry_reply(parent, name, self._node_entry(node))
        finally:
            self._unstage(node)

    def _new_file(
        self, request: "KernelRequest", name_at: "int", mode: "int", flags: "int"
    ) -> "tuple[Node, str, Node]":
        """Stage a file that the kernel did not find. If another client has created it since, it is opened."""
        self._check_writable()
        name = request.name(name_at)
        parent, path = self._child_path(request, name)
        known = self._nodes.known_child(parent, name)
        is_staged = known is not None and known.staged is not None
        existing = self._storage.status(path)
        if flags & os.O_EXCL and (existing is not None or is_staged):
            raise FileExistsError(errno.EEXIST, path)
        if existing is not None and existing.is_folder:
            raise IsADirectoryError(errno.EISDIR, path)
        node = self._nodes.child(parent, name, False, count_lookup=False)
        if existing is not None or is_staged:
            self._stage_opened(node, flags)
            return parent, name, node
        staged = StagedFile(mode & 0o777 or 0o644)
        if self._share_staged(node, staged) is not staged:
            staged.close()
        return parent, name, node

    def _stage_opened(self, node: "Node", flags: "int") -> "None":
        """Stage a file that is there, for a program that opens it with these flags."""
        staged = self._stage(node)
        try:
            if flags & os.O_TRUNC:
                staged.truncate(0)
        except BaseException:
            self._unstage(node)
            raise

    def _stage(self, node: "Node") -> "StagedFile":
        """The file's staged content, with one more user."""
        self._check_writable()
        shared = self._share_staged(node)
        if shared is not None:
            return shared
        path = self._nodes.existing_path(node)
        entry = self._status(path)
        staged = StagedFile(entry.mode & 0o777 if entry is not None else 0o644, self._storage.open(path))
        shared = self._share_staged(node, staged)
        if shared is not staged:  # another program was quicker
            staged.close()
        return shared or staged

    def _share_staged(self, node: "Node", new: "StagedFile | None" = None) -> "StagedFile | None":
        """The staged content that a node has, or gets now; its user is counted."""
        with self._nodes.lock:
            if node.staged is None and new is not None:
                node.staged, node.version = new, None
            if node.staged is not None:
                node.staged.handles += 1
            return node.staged

    def _unstage(self, node: "Node") -> "None":
        with self._nodes.lock:
            staged = node.staged
            if staged is None:
                return
            staged.handles -= 1
            if staged.handles:
                return
            node.staged = None
        staged.close()

    def _upload(self, node: "Node") -> "None":
        staged = node.staged
        if staged is None or not staged.is_dirty:
            return
        with staged.lock:  # until it is uploaded, its name stays: see _uploads_stopped
            path = self._nodes.path(node)
            if path is None:
                return  # a deleted file's content is not needed
            staged.upload(self._storage, path)
        self._listings.changed(path)

    def _read(self, request: "KernelRequest") -> "bytes":
        number, offset, size = wire.READ_IN.unpack_from(request.body)[:3]
        return self._files[number].read(offset, size)

    def _write(self, request: "KernelRequest") -> "bytes":
        number, offset, size = wire.WRITE_IN.unpack_from(request.body)[:3]
        staged = self._files[number].node.staged
        if staged is None:
            raise OSError(errno.EBADF, "not open for writing")
        data = request.body[wire.WRITE_IN.size : wire.WRITE_IN.size + size]
        return wire.WRITE_OUT.pack(staged.write(offset, data), 0)

    def _flush(self, request: "KernelRequest") -> "None":
        """A program closes one of its descriptors. What it wrote is uploaded, and it learns of a failure.

        A shell passes one open file to many programs. As long as the process that opened it has it open, it
        is not complete; then the last close uploads it.
        """
        handle = self._files[wire.RELEASE_IN.unpack_from(bytes(request.body[:24]))[0]]
        staged = handle.node.staged
        if staged is None or handle.source is not None or not staged.is_dirty:
            return
        path = self._nodes.path(handle.node)
        if path is not None and not is_open_in({handle.opener_pid, request.pid}, self._shown(path)):
            self._upload(handle.node)

    def _release(self, request: "KernelRequest") -> "None":
        number = wire.RELEASE_IN.unpack_from(request.body)[0]
        with self._lock:
            handle = self._files.pop(number)
        if handle.source is not None:
            handle.close()
            return
        node = handle.node
        try:
            staged = node.staged
            if staged is not None and (staged.handles == 1 or staged.was_written):
                self._upload(node)
        except OSError as e:
            # The last close returned before this: the program gets no error.
            self._report("%s could not be written: %s." % (self._shown(self._nodes.path(node) or ""), e))
        finally:
            self._unstage(node)

    def _statfs(self, request: "KernelRequest") -> "bytes":
        return wire.statfs_reply(self._storage.free_bytes())
