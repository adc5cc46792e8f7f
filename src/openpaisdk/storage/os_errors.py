"""Our errors as OSErrors, which callers of file system interfaces expect."""

from __future__ import annotations

import errno

from openpaisdk.storage.backends.base import STORAGE_FULL, not_found_error
from openpaisdk.storage.backends.webhdfs import IS_FOLDER, NO_FILE, NOT_FOLDER
from paiprotocol.errors import Conflict, Forbidden, NotFound, PaiError, Unauthorized, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

URL_PREFIX = "pai://"


def no_such_file(path: str) -> FileNotFoundError:
    return FileNotFoundError(not_found_error(URL_PREFIX + path.removeprefix(URL_PREFIX).rstrip("/")).message)


class as_oserror:  # noqa: N801 - read as a word: with as_oserror(path)
    """Converts our errors to OSErrors, which fsspec's callers expect."""

    def __init__(self, path: str):
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if isinstance(error, PaiError) and error.code == NO_FILE:
            raise no_such_file(self.path) from error  # a storage names only the path
        if isinstance(error, NotFound) or (isinstance(error, PaiError) and error.status == 404):
            raise FileNotFoundError(error.message) from error
        if isinstance(error, Forbidden):
            raise PermissionError(error.message) from error
        if isinstance(error, PaiError) and error.code == IS_FOLDER:
            raise IsADirectoryError(error.message) from error
        if isinstance(error, PaiError) and error.code == NOT_FOLDER:
            raise NotADirectoryError(error.message) from error
        if isinstance(error, Conflict):
            raise FileExistsError(error.message) from error
        if isinstance(error, PaiError) and not isinstance(error, UsageError):
            raise OSError(error.message) from error


class as_errno:  # noqa: N801 - read as a word: with as_errno(path)
    """Converts our errors to OSErrors with the number that a program expects from a file system."""

    def __init__(self, path: str):
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if isinstance(error, PaiError):
            raise OSError(errno_of(error), error.message, self.path) from error


def errno_of(error: PaiError) -> int:
    """Error number of one of our errors; EIO for those that programs cannot tell apart."""
    if isinstance(error.__context__, OSError) and error.__context__.errno:
        return error.__context__.errno  # of a storage that is a folder of this machine
    if error.code == IS_FOLDER:
        return errno.EISDIR
    if error.code == NOT_FOLDER:
        return errno.ENOTDIR
    if error.code == STORAGE_FULL or error.status == 507:
        return errno.ENOSPC
    if isinstance(error, NotFound) or error.status == 404:
        return errno.ENOENT
    if isinstance(error, (Forbidden, Unauthorized)):
        return errno.EACCES
    if isinstance(error, Conflict):
        return errno.EEXIST
    return errno.EINVAL if isinstance(error, UsageError) else errno.EIO
