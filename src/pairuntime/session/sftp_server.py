"""SFTP server, version 3: serves the files of a task on standard input and output.

For `sftp`, `scp` and editors that connect by SSH. The server of the cluster sends the source of this module
to a Python in the task, so that images need no server of their own: it imports no other module of ours.
"""

import errno
import os
import stat
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Callable

_VERSION = 3
# OpenSSH's own limit of a packet; larger ones are refused before they are read.
_MAX_PACKET_BYTES = 256 << 10
# Of one read or write: a packet without its head.
_MAX_DATA_BYTES = _MAX_PACKET_BYTES - 1024
# Type and number of a request.
_HEAD_BYTES = 5
# Open files and folders of one client: below the usual limit of a process, 1024.
_MAX_HANDLES = 900
# Entries of a folder in one reply.
_MAX_NAMES = 100

_INIT, _VERSION_REPLY = 1, 2
_OPEN, _CLOSE, _READ, _WRITE, _LSTAT, _FSTAT, _SETSTAT, _FSETSTAT = 3, 4, 5, 6, 7, 8, 9, 10
_OPENDIR, _READDIR, _REMOVE, _MKDIR, _RMDIR, _REALPATH, _STAT = 11, 12, 13, 14, 15, 16, 17
_RENAME, _READLINK, _SYMLINK = 18, 19, 20
_STATUS, _HANDLE, _DATA, _NAME, _ATTRS = 101, 102, 103, 104, 105
_EXTENDED, _EXTENDED_REPLY = 200, 201

_OK, _EOF, _NO_SUCH_FILE, _PERMISSION_DENIED, _FAILURE, _BAD_MESSAGE, _UNSUPPORTED = 0, 1, 2, 3, 4, 5, 8

_READ_FLAG, _WRITE_FLAG, _APPEND, _CREATE, _TRUNCATE, _EXCLUSIVE = 1, 2, 4, 8, 16, 32

_HAS_SIZE, _HAS_OWNER, _HAS_PERMISSIONS, _HAS_TIMES, _HAS_EXTENDED = 1, 2, 4, 8, 0x80000000

_EXTENSIONS = (
    (b"posix-rename@openssh.com", b"1"),
    (b"statvfs@openssh.com", b"2"),
    (b"fstatvfs@openssh.com", b"2"),
    (b"hardlink@openssh.com", b"1"),
    (b"fsync@openssh.com", b"1"),
    (b"lsetstat@openssh.com", b"1"),
    (b"limits@openssh.com", b"1"),
    (b"expand-path@openssh.com", b"1"),
)


class _Status(Exception):
    """A status reply, instead of the data that the request asks for."""

    def __init__(self, code: "int", message: "str") -> "None":
        super().__init__(message)
        self.code = code


class _Packet:
    """The fields of a request, read one after the other."""

    def __init__(self, data: "bytes") -> "None":
        self._data = data
        self._at = 0

    def _take(self, size: "int") -> "bytes":
        part = self._data[self._at : self._at + size]
        if len(part) != size:
            raise _Status(_BAD_MESSAGE, "The packet is too short.")
        self._at += size
        return part

    def byte(self) -> "int":
        return self._take(1)[0]

    def uint32(self) -> "int":
        return int.from_bytes(self._take(4), "big")

    def uint64(self) -> "int":
        return int.from_bytes(self._take(8), "big")

    def string(self) -> "bytes":
        return self._take(self.uint32())

    def path(self) -> "bytes":
        """A path; the empty one is the current folder."""
        path = self.string()
        if b"\0" in path:
            raise _Status(_NO_SUCH_FILE, "A path has no zero bytes.")
        return path or b"."

    def attributes(self) -> "_Attributes":
        return _Attributes(self)


class _Attributes:
    """Attributes that a request sets; None for those that it leaves alone."""

    def __init__(self, packet: "_Packet") -> "None":
        flags = packet.uint32()
        self.size = packet.uint64() if flags & _HAS_SIZE else None
        self.owner = (packet.uint32(), packet.uint32()) if flags & _HAS_OWNER else None
        self.permissions = packet.uint32() & 0o7777 if flags & _HAS_PERMISSIONS else None
        self.times = (packet.uint32(), packet.uint32()) if flags & _HAS_TIMES else None
        if flags & _HAS_EXTENDED:
            for _ in range(packet.uint32()):
                packet.string()
                packet.string()

    def apply(self, target: "bytes | int", *, follow: "bool" = True) -> "None":
        """Set them on a path or an open file."""
        if self.size is not None:
            os.truncate(target, self.size)
        if self.permissions is not None:
            os.chmod(target, self.permissions, follow_symlinks=follow)
        if self.times is not None:
            os.utime(target, self.times, follow_symlinks=follow)
        if self.owner is not None:
            os.chown(target, self.owner[0], self.owner[1], follow_symlinks=follow)


class _Folder:
    """An open folder whose entries are read in pieces."""

    def __init__(self, path: "bytes") -> "None":
        self.path = path
        self._entries = iter([b".", b"..", *os.listdir(path)])

    def next_names(self) -> "list[tuple[bytes, os.stat_result]]":
        names = []
        for name in self._entries:
            try:
                names.append((name, os.lstat(os.path.join(self.path, name))))
            except OSError:
                continue  # removed meanwhile
            if len(names) == _MAX_NAMES:
                break
        return names


class SftpServer:
    """Answers requests in the order in which they come, as every client accepts it."""

    def __init__(self, source: "BinaryIO", target: "BinaryIO") -> "None":
        self._source = source
        self._target = target
        self._handles = {}  # type: dict[bytes, int | _Folder]
        self._next_handle = 0
        self._requests: "dict[int, Callable[[_Packet], bytes | None]]" = {
            _OPEN: self._open,
            _CLOSE: self._close,
            _READ: self._read,
            _WRITE: self._write,
            _LSTAT: lambda packet: _attributes(os.lstat(packet.path())),
            _STAT: lambda packet: _attributes(os.stat(packet.path())),
            _FSTAT: lambda packet: _attributes(os.fstat(self._file(packet))),
            _SETSTAT: lambda packet: self._set(packet.path(), packet),
            _FSETSTAT: lambda packet: self._set(self._file(packet), packet),
            _OPENDIR: self._open_folder,
            _READDIR: self._read_folder,
            _REMOVE: lambda packet: os.unlink(packet.path()),
            _MKDIR: self._make_folder,
            _RMDIR: lambda packet: os.rmdir(packet.path()),
            _REALPATH: lambda packet: _path_reply(os.path.realpath(packet.path())),
            _RENAME: self._rename,
            _READLINK: lambda packet: _path_reply(os.readlink(packet.path())),
            # OpenSSH has the arguments in this order, against the draft, and all clients follow it.
            _SYMLINK: lambda packet: os.symlink(packet.path(), packet.path()),
            _EXTENDED: self._extended,
        }

    def serve(self) -> "None":
        """Serve until the client closes its end."""
        while True:
            head = self._source.read(4)
            size = int.from_bytes(head, "big")
            if len(head) < 4 or not 0 < size <= _MAX_PACKET_BYTES:
                return
            body = self._source.read(size)
            if len(body) < size:
                return
            if len(body) < _HEAD_BYTES:
                return  # there is no number to answer to
            reply = self._reply(_Packet(body))
            self._target.write(len(reply).to_bytes(4, "big") + reply)
            self._target.flush()

    def _reply(self, packet: "_Packet") -> "bytes":
        kind = packet.byte()
        if kind == _INIT:
            extensions = b"".join(_string(name) + _string(value) for name, value in _EXTENSIONS)
            return bytes((_VERSION_REPLY,)) + _uint32(_VERSION) + extensions
        number = _uint32(packet.uint32())
        try:
            handle = self._requests.get(kind)
            if handle is None:
                raise _Status(_UNSUPPORTED, "This server does not have that operation.")
            reply = handle(packet) or _status(_OK, "")
        except _Status as e:
            reply = _status(e.code, str(e))
        except (OSError, OverflowError, ValueError) as e:
            reply = _status(_code_of(e), getattr(e, "strerror", None) or str(e))
        return reply[:1] + number + reply[1:]

    # -- handles -------------------------------------------------------------------------------

    def _check_handles(self) -> "None":
        if len(self._handles) >= _MAX_HANDLES:
            raise _Status(_FAILURE, "Too many files are open.")

    def _new_handle(self, opened: "int | _Folder") -> "bytes":
        self._next_handle += 1
        name = b"%d" % self._next_handle
        self._handles[name] = opened
        return bytes((_HANDLE,)) + _string(name)

    def _handle(self, name: "bytes") -> "int | _Folder":
        if name not in self._handles:
            raise _Status(_FAILURE, "The handle is not open.")
        return self._handles[name]

    def _file(self, packet: "_Packet") -> "int":
        opened = self._handle(packet.string())
        if not isinstance(opened, int):
            raise _Status(_FAILURE, "The handle is that of a folder.")
        return opened

    def _open(self, packet: "_Packet") -> "bytes":
        self._check_handles()
        path, wanted, attributes = packet.path(), packet.uint32(), packet.attributes()
        flags = {_READ_FLAG: os.O_RDONLY, _WRITE_FLAG: os.O_WRONLY}.get(
            wanted & (_READ_FLAG | _WRITE_FLAG), os.O_RDWR
        )
        for flag, meaning in (
            (_APPEND, os.O_APPEND),
            (_CREATE, os.O_CREAT),
            (_TRUNCATE, os.O_TRUNC),
            (_EXCLUSIVE, os.O_EXCL),
        ):
            flags |= meaning if wanted & flag else 0
        permissions = 0o666 if attributes.permissions is None else attributes.permissions
        # A pipe without a writer must not block all other requests.
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, permissions)
        return self._new_handle(fd)

    def _close(self, packet: "_Packet") -> "None":
        name = packet.string()
        opened = self._handle(name)
        del self._handles[name]
        if isinstance(opened, int):
            os.close(opened)

    # -- files ---------------------------------------------------------------------------------

    def _read(self, packet: "_Packet") -> "bytes":
        fd, offset, size = self._file(packet), packet.uint64(), packet.uint32()
        data = os.pread(fd, min(size, _MAX_DATA_BYTES), offset)
        if not data:
            raise _Status(_EOF, "")
        return bytes((_DATA,)) + _string(data)

    def _write(self, packet: "_Packet") -> "None":
        fd, offset, data = self._file(packet), packet.uint64(), packet.string()
        while data:
            written = os.pwrite(fd, data, offset)
            data, offset = data[written:], offset + written

    def _set(self, target: "bytes | int", packet: "_Packet") -> "None":
        packet.attributes().apply(target)

    def _rename(self, packet: "_Packet") -> "None":
        old, new = packet.path(), packet.path()
        if os.path.lexists(new):
            # Version 3 never replaces; posix-rename does.
            raise _Status(_FAILURE, "The target exists.")
        os.rename(old, new)

    # -- folders -------------------------------------------------------------------------------

    def _open_folder(self, packet: "_Packet") -> "bytes":
        self._check_handles()
        return self._new_handle(_Folder(packet.path()))

    def _read_folder(self, packet: "_Packet") -> "bytes":
        folder = self._handle(packet.string())
        if not isinstance(folder, _Folder):
            raise _Status(_FAILURE, "The handle is not that of a folder.")
        names = folder.next_names()
        if not names:
            raise _Status(_EOF, "")
        entries = [
            _string(name) + _string(_long_name(name, status)) + _stat(status) for name, status in names
        ]
        return bytes((_NAME,)) + _uint32(len(entries)) + b"".join(entries)

    def _make_folder(self, packet: "_Packet") -> "None":
        path, attributes = packet.path(), packet.attributes()
        os.mkdir(path, 0o777 if attributes.permissions is None else attributes.permissions)

    # -- extensions ----------------------------------------------------------------------------

    def _extended(self, packet: "_Packet") -> "bytes | None":
        name = packet.string()
        if name == b"posix-rename@openssh.com":
            os.rename(packet.path(), packet.path())
        elif name == b"hardlink@openssh.com":
            os.link(packet.path(), packet.path())
        elif name == b"fsync@openssh.com":
            os.fsync(self._file(packet))
        elif name == b"lsetstat@openssh.com":
            path = packet.path()
            packet.attributes().apply(path, follow=False)
        elif name == b"statvfs@openssh.com":
            return _file_system(os.statvfs(packet.path()))
        elif name == b"fstatvfs@openssh.com":
            return _file_system(os.fstatvfs(self._file(packet)))
        elif name == b"limits@openssh.com":
            limits = (_MAX_PACKET_BYTES, _MAX_DATA_BYTES, _MAX_DATA_BYTES, _MAX_HANDLES)
            return bytes((_EXTENDED_REPLY,)) + struct.pack(">4Q", *limits)
        elif name == b"expand-path@openssh.com":
            return _path_reply(os.path.realpath(os.path.expanduser(packet.path())))
        else:
            raise _Status(_UNSUPPORTED, "This server does not have that extension.")
        return None


def _uint32(number: "int") -> "bytes":
    return (number & 0xFFFFFFFF).to_bytes(4, "big")


def _string(data: "bytes") -> "bytes":
    return _uint32(len(data)) + data


def _status(code: "int", message: "str") -> "bytes":
    text = message.encode("utf-8", "surrogateescape")
    return bytes((_STATUS,)) + _uint32(code) + _string(text) + _string(b"")


def _code_of(error: "Exception") -> "int":
    number = getattr(error, "errno", None)
    if number in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
        return _NO_SUCH_FILE
    return _PERMISSION_DENIED if number in (errno.EACCES, errno.EPERM) else _FAILURE


def _stat(status: "os.stat_result") -> "bytes":
    flags = _HAS_SIZE | _HAS_OWNER | _HAS_PERMISSIONS | _HAS_TIMES
    return b"".join(
        (
            _uint32(flags),
            (status.st_size & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big"),
            _uint32(status.st_uid),
            _uint32(status.st_gid),
            _uint32(status.st_mode),
            _uint32(int(status.st_atime)),
            _uint32(int(status.st_mtime)),
        )
    )


def _attributes(status: "os.stat_result") -> "bytes":
    return bytes((_ATTRS,)) + _stat(status)


def _path_reply(path: "bytes") -> "bytes":
    return bytes((_NAME,)) + _uint32(1) + _string(path) + _string(path) + _uint32(0)


def _long_name(name: "bytes", status: "os.stat_result") -> "bytes":
    """An entry as `ls -l` prints it; `sftp` shows it as it is."""
    changed = time.strftime("%b %d %Y", time.localtime(status.st_mtime))
    line = "%s %4d %-8d %-8d %12d %s " % (
        stat.filemode(status.st_mode),
        status.st_nlink,
        status.st_uid,
        status.st_gid,
        status.st_size,
        changed,
    )
    return line.encode() + name


def _file_system(status: "os.statvfs_result") -> "bytes":
    numbers = (
        status.f_bsize,
        status.f_frsize,
        status.f_blocks,
        status.f_bfree,
        status.f_bavail,
        status.f_files,
        status.f_ffree,
        status.f_favail,
        0,  # the id of the file system
        status.f_flag & 3,  # read-only, and no set-user-id
        status.f_namemax,
    )
    return bytes((_EXTENDED_REPLY,)) + struct.pack(">11Q", *numbers)


if __name__ == "__main__":
    try:
        SftpServer(sys.stdin.buffer, sys.stdout.buffer).serve()
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # the client has gone
