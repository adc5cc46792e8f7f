"""Object stores over fsspec: file systems, retries and errors that S3 and Azure Blob have in common."""

from __future__ import annotations

from importlib import import_module

from openpaisdk.storage.backends.base import STORAGE_FULL
from openpaisdk.storage.backends.connection_pool import with_retries
from openpaisdk.storage.backends.filesystem_pool import CallInterrupted, FilesystemPool
from openpaisdk.storage.backends.object_store import ObjectStore
from paiprotocol.errors import (
    ConfigError,
    ConnectionFailed,
    Forbidden,
    NotFound,
    PaiError,
    TooManyRequests,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from typing import Any, TypeVar

    T = TypeVar("T")


class FsspecStore(ObjectStore):
    """Object store whose requests an asynchronous file system of fsspec sends.

    Subclasses make the file systems and explain the errors of their libraries.
    """

    service: str
    """The cloud, as messages call it."""
    package: str
    """The fsspec implementation; ``extra`` of this distribution installs it."""
    extra: str
    call_timeout_s: float | None = None
    """How long one call may take; then none is retried. None: calls are retried as those of copies are."""

    def __init__(self, url: str, root: str = "", *, read_only: bool = False):
        super().__init__(url, root, read_only=read_only)
        try:
            self.library = import_module(self.package)
        except ImportError:
            raise ConfigError(
                f"Addresses on {self.service} need the package {self.package}, which is not installed.",
                hint=f"Install it: pip install 'openpaisdk[{self.extra}]'",
            ) from None
        self._pool = FilesystemPool(self.make_filesystem, self.close_filesystem)

    def make_filesystem(self, loop: asyncio.AbstractEventLoop) -> Any:
        """A new file system that uses this event loop and does not retry: nested retries would multiply."""
        raise NotImplementedError

    async def close_filesystem(self, filesystem: Any) -> None:
        """Close the connections of a file system, in its event loop."""
        raise NotImplementedError

    def error(self, error: Exception, key: str) -> PaiError:
        """An error of the store's libraries as a sentence for the user; what is a bug is raised again."""
        raise NotImplementedError

    def object_url(self, key: str) -> str:
        """Address of an object, for messages."""
        raise NotImplementedError

    def call(self, action: Callable[[Any], Awaitable[T]], key: str = "") -> T:
        """The result of a coroutine that gets a file system; ``key`` names the object in errors."""

        def run() -> T:
            try:
                return self._pool.call(action, self.call_timeout_s)
            except CallInterrupted:
                raise ConnectionFailed(f"The storage {self.url} did not answer in time.") from None
            except Exception as e:
                raise self.error(e, key) from e

        return with_retries(run) if self.call_timeout_s is None else run()

    def close_connections(self, *, cancels_calls: bool = False) -> None:
        """Close all connections, those in use after their calls; see `FilesystemPool.close`."""
        self._pool.close(cancels_calls=cancels_calls)

    def error_of_status(self, status: int, code: str, key: str, retry_after: str = "") -> PaiError:
        """The error of a response whose code says no more than its HTTP status."""
        shown = self.object_url(key) if key else self.url
        if status in (429, 503):
            return TooManyRequests(
                f"The storage {self.url} throttles requests ({status}).",
                retry_after_s=float(retry_after) if retry_after.isdecimal() else 0.0,
                hint="Run the same command again later: it resumes the copy.",
            )
        if status == 507:
            return PaiError(f"The storage is full: {shown} cannot be written.", code=STORAGE_FULL, status=507)
        if status == 404:
            return NotFound(f"{shown}: there is no such file or folder.")
        if status in (401, 403):
            return Forbidden(
                f"{shown}: access denied.",
                hint="Ask the owner of the storage to grant these credentials access.",
            )
        if status >= 500:
            return ConnectionFailed(f"The storage {self.url} failed ({status} {code}).")
        return PaiError(f"{shown}: the storage rejected the request ({code or status}).")
