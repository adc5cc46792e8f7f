"""Our errors as OSErrors, which callers of file system interfaces expect."""

from __future__ import annotations

from openpaisdk.errors import Conflict, Forbidden, NotFound, PaiError, UsageError
from openpaisdk.storage.backends.base import not_found_error
from openpaisdk.storage.backends.webhdfs import IS_FOLDER, NO_FILE, NOT_FOLDER

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
