"""Samba backend, over smbprotocol: shares of Samba, Windows and Azure Files (SMB 2 and 3)."""

from __future__ import annotations

import errno
import select
import stat
import sys
import threading
from contextlib import closing
from itertools import islice

from openpaisdk.storage.backends.base import (
    CHUNK_BYTES,
    STORAGE_FULL,
    Backend,
    SourceFile,
    TargetFile,
    already_exists_error,
    changed_error,
    content_key,
    partial_name,
    split_ranges,
)
from openpaisdk.storage.backends.connection_pool import with_retries
from openpaisdk.storage.file_info import FileInfo
from paiprotocol.errors import (
    ConfigError,
    Conflict,
    ConnectionFailed,
    Forbidden,
    NotConnected,
    NotFound,
    PaiError,
    Unauthorized,
    UsageError,
)
from pairuntime.transport.http1 import shut_down

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, TypeVar

    from openpaisdk.storage.backends.base import Chunks, Range
    from openpaisdk.storage.file_info import FileStat

    T = TypeVar("T")

DEFAULT_PORT = 445
_GUEST = "guest"
FILE_MODE, FOLDER_MODE = 0o644, 0o755
_FORBIDDEN_CHARACTERS = '\\:*?"<>|' + "".join(map(chr, range(32)))
# Codes of Windows that the library does not translate.
_FULL_STATUSES = (0xC000007F, 0xC0000044)  # disk full, quota exceeded
_DENIED_STATUS = 0xC0000022


class ShareAddress:
    """``//SERVER[:PORT]/SHARE[/path]``."""

    def __init__(self, address: str):
        server, _, rest = address.replace("\\", "/").removeprefix("smb:").strip("/").partition("/")
        self.share, _, self.path = rest.partition("/")
        self.host, _, port = server.partition(":")
        if not self.host or not self.share or (port and not port.isdecimal()):
            raise ConfigError(f"{address!r} is not the address of a share.", hint="Write //SERVER/SHARE.")
        self.port = int(port) if port else DEFAULT_PORT


class SambaBackend(Backend):
    """One share, or a folder of it. Without a user name, as a guest."""

    connect_timeout_s = 10
    """How long the server may take to accept a connection."""
    call_timeout_s: float | None = None
    """How long one call may take; then the connection is dropped, and the call is not repeated. The library
    waits for responses without a limit. None: no limit, and calls are repeated as those of copies are."""

    def __init__(
        self,
        address: ShareAddress,
        username: str,
        password: str,
        *,
        url: str,
        root: str = "",
        read_only: bool = False,
        allows_old_guests: bool = True,
    ):
        """``allows_old_guests``: be a guest also of a server before SMB 3.1.1, which needs a setting of all
        connections of this process."""
        try:
            import smbclient
        except ImportError:
            raise ConfigError(
                "Shares of Samba need the package smbprotocol, which is not installed.",
                hint="Install it: pip install 'openpaisdk[samba]'",
            ) from None
        _wait_with_poll()
        self.url = url
        self._client = smbclient
        self._address = address
        parts = (address.host, address.share, *address.path.split("/"), *root.split("/"))
        self._root = "\\\\" + "\\".join(part for part in parts if part)
        self._read_only = read_only
        self._session: dict[str, Any] = {
            # Never None: the library would use what the account of this process has saved.
            "username": username or _GUEST,
            "password": password if username else "",
            "port": address.port,
            # Not the cache of the library, which every storage of this process would share.
            "connection_cache": _ConnectionCache(f"{address.host.lower()}:{address.port}"),
        }
        if not username:
            # A guest has no key: nothing can be signed or verified with it.
            self._session.update(auth_protocol="ntlm", require_signing=False)
            if allows_old_guests:
                smbclient.ClientConfig(require_secure_negotiate=False)
        # Two threads must not connect at once: the library would keep one of the connections only.
        self._connecting = threading.Lock()
        # Not in the cache yet.
        self._negotiating: Any = None
        self._is_interrupted = False

    # -- requests ------------------------------------------------------------------------------

    def unc_path(self, path: str) -> str:
        return (self._root + path.replace("/", "\\")).rstrip("\\")

    def call(self, path: str, action: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a function of the library; its errors become ours. A lost connection is made again."""

        def run() -> T:
            with _CallDeadline(self, path), self._connecting:
                self._connect()
            if self._is_interrupted:
                # Not an error after which a call is repeated.
                raise PaiError(f"The connections to the storage {self.url} are closed.")
            with _CallDeadline(self, path):
                return action(
                    *arguments, connection_timeout=self.connect_timeout_s, **options, **self._session
                )

        return with_retries(run) if self.call_timeout_s is None else run()

    def _connect(self) -> None:
        """Connect and open a session, unless that was done."""
        from smbprotocol.connection import Connection

        host, cache = self._address.host, self._session["connection_cache"]
        if not cache.is_connected:
            # The library would know it only after the negotiation, and leave its thread and its socket to a
            # server that does not answer.
            self._negotiating = Connection(
                self._client.ClientConfig().client_guid,
                host,
                self._address.port,
                require_signing=self._session.get("require_signing", True),
            )
            try:
                self._negotiating.connect(timeout=self.connect_timeout_s)
                cache[cache.server] = self._negotiating
            except BaseException:
                if self._negotiating.transport is not None:
                    self._negotiating.disconnect(close=False)
                raise
            finally:
                self._negotiating = None
        self._client.register_session(host, connection_timeout=self.connect_timeout_s, **self._session)

    def drop_connection(self) -> None:
        """Let the calls fail that wait for the server; the next one connects again."""
        for connection in (self._negotiating, *self._session["connection_cache"].values()):
            if connection is None:
                continue
            # Not its `close`, which waits until the library has sent what a dead server does not take.
            shut_down(getattr(connection.transport, "_sock", None))

    def interrupt(self) -> None:
        """Let all calls fail, also those that connect now. No more can be made: the program ends."""
        self._is_interrupted = True
        self.drop_connection()

    def error(self, path: str, error: Exception) -> PaiError:
        """An error of the library as a sentence for the user."""
        from smbprotocol import exceptions as smb_errors

        shown = self.display_path(path)
        if isinstance(error, (smb_errors.LogonFailure, smb_errors.SMBAuthenticationError)):
            return Unauthorized(f"The server {self._address.host} rejects the credentials for {self.url}.")
        if isinstance(error, smb_errors.BadNetworkName):
            return UsageError(f"There is no share called {self._address.share!r} at {self._address.host}.")
        if isinstance(error, (smb_errors.SMBConnectionClosed, ConnectionError, TimeoutError)):
            return ConnectionFailed(f"The connection to the storage {self.url} was lost.")
        # The library has no other error for this.
        if isinstance(error, ValueError) and isinstance(error.__cause__, OSError):
            where = f"{self._address.host}:{self._address.port}"
            return NotConnected(f"The server of {self.url} cannot be reached at {where}.")
        if isinstance(error, smb_errors.SMBOSError):
            if error.errno == errno.ENOENT and not path.strip("/"):
                return UsageError(f"There is no {self._root} at {self._address.host}.")
            return _error_of_status(shown, error)
        if isinstance(error, smb_errors.AccessDenied):
            return Forbidden(f"{shown}: permission denied.")
        if isinstance(error, (smb_errors.SMBException, OSError, ValueError)):
            return ConnectionFailed(f"The storage {self.url} failed ({type(error).__name__}).")
        raise error

    # -- backend -------------------------------------------------------------------------------

    def canonical(self, path: str) -> str:
        return self.unc_path(path)

    def invalid_name_reason(self, path: str) -> str:
        bad = sorted(set(path) & set(_FORBIDDEN_CHARACTERS))
        if bad:
            return f"a share has no names with {bad[0] if bad[0].isprintable() else repr(bad[0])}"
        # Windows ignores dots and spaces at the end: such a name may be that of the folder above.
        if any(part and not part.strip(". ") for part in path.split("/")):
            return "a share has no names of dots and spaces alone"
        return ""

    def status(self, path: str) -> FileInfo | None:
        try:
            status = self.call(path, self._client.stat, self.unc_path(path))
        except NotFound:
            return None
        return _file_info(path.rstrip("/").rpartition("/")[2], status)

    def list_folder(self, path: str) -> list[FileInfo]:
        return sorted(self.list_some(path), key=lambda info: info.name)

    def list_some(self, path: str, limit: int | None = None) -> list[FileInfo]:
        """The first entries of a folder, in the order of the server."""

        def scan(folder: str, **session: Any) -> list[FileInfo]:
            with closing(self._client.scandir(folder, **session)) as entries:
                return [
                    FileInfo(
                        entry.name,
                        entry.is_dir(),
                        0 if entry.is_dir() else entry.smb_info.end_of_file,
                        int(entry.smb_info.last_write_time.timestamp()) * 10**9
                        + entry.smb_info.last_write_time.microsecond * 1000,
                        FOLDER_MODE if entry.is_dir() else FILE_MODE,
                    )
                    for entry in islice(entries, limit)
                    if not entry.is_symlink()
                ]

        return self.call(path, scan, self.unc_path(path))

    def names_in_share(self, path: str) -> list[str]:
        """Names that the server has for the last part of a path: it may ignore case, or have short names."""

        def scan(folder: str, name: str, **session: Any) -> list[str]:
            with closing(self._client.scandir(folder, name, **session)) as entries:
                return [entry.name for entry in entries]

        folder, _, name = path.rstrip("/").rpartition("/")
        try:
            return self.call(path, scan, self.unc_path(folder), name)
        except NotFound:
            return []

    def open(self, path: str, file_stat: FileStat | None = None) -> SourceFile:
        return SambaSource(self, path)

    def open_raw(self, path: str, mode: str) -> Any:
        """An unbuffered file of the library. Others may read, replace and delete it meanwhile."""
        return self.call(
            path, self._client.open_file, self.unc_path(path), mode, buffering=0, share_access="rwd"
        )

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """A range of a file, in one call; it is shorter at the end of the file."""

        def read(name: str, **session: Any) -> bytes:
            data = bytearray()
            opened = self._client.open_file(name, "rb", buffering=0, share_access="rwd", **session)
            with opened as file:
                file.seek(offset)
                while len(data) < length and (chunk := file.read(length - len(data))):
                    data += chunk
            return bytes(data)

        return self.call(path, read, self.unc_path(path))

    def create(self, path: str, source_stat: FileStat, key: str, *, overwrite: bool = True) -> TargetFile:
        self.check_writable(path)
        if not overwrite and self.status(path) is not None:
            raise already_exists_error(self.display_path(path))
        return SambaTarget(self, path, source_stat, key, overwrite=overwrite)

    def make_folder(self, path: str) -> None:
        self.check_writable(path)
        self.call(path, self._client.makedirs, self.unc_path(path), exist_ok=True)

    def delete(self, path: str) -> None:
        self.check_writable(path)
        info = self.status(path)
        if info is None:
            raise NotFound(f"{self.display_path(path)}: there is no such file or folder.")
        if not info.is_folder:
            self.delete_file(path)
            return
        for entry in self.list_folder(path):
            self.delete(f"{path.rstrip('/')}/{entry.name}")
        if path.strip("/"):
            self.delete_empty(path)

    def delete_empty(self, path: str) -> None:
        """Delete a folder without entries."""
        self.check_writable(path)
        self.call(path, self._client.rmdir, self.unc_path(path))

    def delete_file(self, path: str) -> None:
        self.check_writable(path)
        self.call(path, self._client.remove, self.unc_path(path))

    def rename(self, path: str, target: str, *, overwrite: bool = True) -> None:
        self.check_writable(path)
        rename = self._client.replace if overwrite else self._client.rename
        self.call(path, rename, self.unc_path(path), self.unc_path(target))

    def publish(self, path: str, partial: str, mtime_ns: int, *, overwrite: bool = True) -> None:
        """Give a complete partial file its time and its name."""
        self.call(path, self._client.utime, self.unc_path(partial), ns=(mtime_ns, mtime_ns))
        self.rename(partial, path, overwrite=overwrite)

    def close_file(self, path: str, file: Any) -> None:
        try:
            with _CallDeadline(self, path):
                file.close()
        except Exception:
            pass  # its connection is lost

    def free_bytes(self, path: str) -> int | None:
        return int(self.call(path, self._client.stat_volume, self.unc_path(path)).actual_available_size)

    def check_writable(self, path: str) -> None:
        if self._read_only:
            raise Forbidden(f"{self.display_path(path)}: the storage is read-only.")


class _CallDeadline:
    """``with _CallDeadline(backend, path):`` ends a call of the library in time and translates its errors."""

    def __init__(self, backend: SambaBackend, path: str):
        self._backend = backend
        self._path = path
        self._has_passed = False
        self._timer: threading.Timer | None = None

    def __enter__(self) -> None:
        if self._backend.call_timeout_s is not None:
            self._timer = threading.Timer(self._backend.call_timeout_s, self._pass)
            self._timer.daemon = True
            self._timer.start()

    def _pass(self) -> None:
        self._has_passed = True
        self._backend.drop_connection()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if isinstance(error, Exception) and not isinstance(error, PaiError):
            if self._has_passed:
                raise ConnectionFailed(f"The storage {self._backend.url} did not answer in time.") from error
            raise self._backend.error(self._path, error) from error


class SambaSource(SourceFile):
    """A file being read. One request at a time: the library has one position for each open file."""

    def __init__(self, backend: SambaBackend, path: str):
        self._backend = backend
        self._path = path
        info = backend.status(path)
        if info is None:
            raise NotFound(f"{backend.display_path(path)}: there is no such file or folder.")
        if info.is_folder:
            raise UsageError(f"{backend.display_path(path)} is a folder and not a file.")
        self.size, self.mtime_ns, self.mode = info.size, info.mtime_ns, info.mode
        self.key = content_key(backend.url, path, self.size, self.mtime_ns)
        self._file = backend.open_raw(path, "rb")
        self._lock = threading.Lock()

    def chunks(self, offset: int, length: int) -> Chunks:
        end = offset + length
        while offset < end:
            data = with_retries(lambda at=offset: self._read(at, min(CHUNK_BYTES, end - at)))  # type: ignore[misc]
            if not data:
                raise changed_error(self._backend.display_path(self._path), "became shorter")
            yield data
            offset += len(data)

    def _read(self, offset: int, length: int) -> bytes:
        with self._lock:
            try:
                with _CallDeadline(self._backend, self._path):
                    self._file.seek(offset)
                    return bytes(self._file.read(length))
            except ConnectionFailed:
                self._file = self._backend.open_raw(self._path, "rb")
                raise

    def check(self) -> None:
        info = self._backend.status(self._path)
        if info is None:
            raise changed_error(self._backend.display_path(self._path), "vanished")
        if (info.size, info.mtime_ns) != (self.size, self.mtime_ns):
            raise changed_error(self._backend.display_path(self._path))

    def close(self) -> None:
        self._backend.close_file(self._path, self._file)


class SambaTarget(TargetFile):
    """A file being written beside its target, which it replaces when it is complete. Ranges come in order, so
    that the size of the partial file tells where an interrupted copy goes on."""

    algorithm = ""
    in_order = True

    def __init__(
        self, backend: SambaBackend, path: str, source_stat: FileStat, key: str, *, overwrite: bool = True
    ):
        self.size, self._mtime_ns, _ = source_stat
        self._backend = backend
        self._path = path
        self._overwrite = overwrite
        folder, _, name = path.rpartition("/")
        self._partial = f"{folder}/{partial_name(name, key)}"
        # Opened by the first range: to ask what is missing changes nothing.
        self._file: Any = None
        self._lock = threading.Lock()

    def missing_ranges(self, max_bytes: int = 0) -> list[Range]:
        info = self._backend.status(self._partial)
        have = info.size if info is not None and 0 < info.size <= self.size else 0
        if have:
            return [(have + at, length) for at, length in split_ranges(self.size - have) if length]
        return split_ranges(self.size)

    def put(
        self, offset: int, length: int, chunks: Callable[[], Chunks], source: SourceFile | None = None
    ) -> None:
        at = offset
        with self._lock:
            if self._file is None:
                self._file = self._backend.open_raw(self._partial, "r+b" if offset else "wb")
            for chunk in chunks():
                rest = memoryview(chunk)
                while rest:
                    with _CallDeadline(self._backend, self._path):
                        self._file.seek(at)
                        written = self._file.write(bytes(rest[:CHUNK_BYTES]))
                    rest = rest[written:]
                    at += written
        if at != offset + length:
            raise changed_error(self._backend.display_path(self._path), "became shorter")

    def finish(self, size: int) -> None:
        self.close()
        # What an interrupted run wrote may be missing, and an error while the file was closed was ignored.
        info = self._backend.status(self._partial)
        if info is None or info.size != size:
            raise ConnectionFailed(
                f"{self._backend.display_path(self._path)} arrived incomplete; the target is unchanged.",
                hint="Run the same command again: it resumes the copy.",
            )
        self._backend.publish(self._path, self._partial, self._mtime_ns, overwrite=self._overwrite)

    def close(self) -> None:
        if self._file is not None:
            self._backend.close_file(self._path, self._file)
            self._file = None

    def abandon(self) -> None:
        self.close()
        try:
            self._backend.delete(self._partial)
        except PaiError:
            pass  # the server may be gone


class _ConnectionCache(dict[str, "Any"]):
    """Connections of a backend, by the addresses of servers as the library writes them. Those to ``server``
    are made by the backend, which can end them: a call that finds such a connection lost fails."""

    def __init__(self, server: str):
        super().__init__()
        self.server = server

    @property
    def is_connected(self) -> bool:
        return self.server in self and self[self.server].transport.connected

    def get(self, key: str, default: Any = None) -> Any:
        if key == self.server and not self.is_connected:
            raise ConnectionResetError
        return super().get(key, default)


class _PollSelect:
    """``select`` for the library: that of the system refuses descriptors above 1023, which a server has."""

    @staticmethod
    def select(readers: list[Any], writers: list[Any], failing: list[Any], timeout_s: float) -> Any:
        # Windows has no poll, and its select accepts all sockets.
        if sys.platform != "win32":
            if len(readers) == 1 and not writers and not failing:
                poll = select.poll()
                poll.register(readers[0], select.POLLIN)
                return (readers if poll.poll(timeout_s * 1000) else []), [], []
        return select.select(readers, writers, failing, timeout_s)


def _wait_with_poll() -> None:
    from smbprotocol import transport

    # Another version may not use select.
    if getattr(transport, "select", None) is select:
        transport.select = _PollSelect


def _file_info(name: str, status: Any) -> FileInfo:
    is_folder = stat.S_ISDIR(status.st_mode)
    return FileInfo(
        name,
        is_folder,
        0 if is_folder else status.st_size,
        status.st_mtime_ns,
        FOLDER_MODE if is_folder else FILE_MODE,
    )


def _error_of_status(shown: str, error: Any) -> PaiError:
    if error.errno == errno.ENOENT:
        return NotFound(f"{shown}: there is no such file or folder.")
    if error.errno == errno.EEXIST:
        return Conflict(f"{shown} exists already.")
    if error.ntstatus in _FULL_STATUSES:
        return PaiError(f"The storage is full: {shown} cannot be written.", code=STORAGE_FULL, status=507)
    if error.ntstatus == _DENIED_STATUS or error.errno in (errno.EACCES, errno.EPERM):
        return Forbidden(f"{shown}: permission denied.")
    return PaiError(f"{shown}: {str(error.strerror).lower()}.")
