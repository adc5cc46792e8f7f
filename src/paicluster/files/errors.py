"""Errors of the storage. Clients can act on the codes."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from paiprotocol.errors import Conflict, Forbidden, InvalidParameters, NotFound, PaiError, Unavailable

NO_FILE = "NoFileError"
NOT_ALLOWED = "ForbiddenFileError"
EXISTS = "ConflictFileError"
NOT_EMPTY = "NotEmptyError"
NOT_A_FOLDER = "NotAFolderError"
IS_A_FOLDER = "IsAFolderError"
BAD_PATH = "InvalidPathError"
FULL = "StorageFullError"
QUOTA_EXCEEDED = "QuotaExceededError"
INCOMPLETE = "IncompleteFileError"
UNSUPPORTED = "UnsupportedStorageError"
FAILED = "StorageError"

_NOT_A_FOLDER_SUFFIX = " is a file and not a folder."


def no_file(path: str) -> PaiError:
    return NotFound(f"File does not exist: {path}", code=NO_FILE)


def not_allowed(message: str) -> PaiError:
    return Forbidden(message, code=NOT_ALLOWED)


def exists(path: str, detail: str = "") -> PaiError:
    return Conflict(f"{path} already exists{detail}", code=EXISTS)


def not_empty(path: str) -> PaiError:
    return Conflict(
        f"`{path} is non empty': Directory is not empty", code=NOT_EMPTY, hint="Delete it recursively."
    )


def not_a_folder(path: str) -> PaiError:
    return Conflict(path + _NOT_A_FOLDER_SUFFIX, code=NOT_A_FOLDER)


def path_of_not_a_folder(error: PaiError) -> str:
    return error.message.removesuffix(_NOT_A_FOLDER_SUFFIX)


def is_a_folder(path: str) -> PaiError:
    return Conflict(f"Path is not a file: {path}", code=IS_A_FOLDER)


def bad_path(path: str, reason: str) -> PaiError:
    shown = path if len(path) <= 200 else path[:200] + "…"
    # A response must be valid UTF-8, whatever the path was.
    shown = shown.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    return InvalidParameters(f'Invalid path name "{shown}": {reason}', code=BAD_PATH)


def storage_full(what: str) -> PaiError:
    return Unavailable(f"No space is left on the cluster's storage for {what}.", code=FULL, status=507)


def quota_exceeded(path: str, owner: str, limit: int, needed: int) -> PaiError:
    """A quota of stored bytes has no space for a write."""
    return Unavailable(
        f"The storage quota of {owner} is exceeded: quota = {limit} B but storage needed for {path} = "
        f"{needed} B.",
        code=QUOTA_EXCEEDED,
        status=507,
        hint="Delete files that are no longer needed, or ask an administrator for a larger quota.",
    )


def incomplete(path: str, got: int, announced: int) -> PaiError:
    return InvalidParameters(
        f"Only {got} of {announced} bytes of {path} arrived; nothing was changed.",
        code=INCOMPLETE,
        hint="Send it again.",
    )


def unsupported(message: str) -> PaiError:
    return InvalidParameters(message, code=UNSUPPORTED)


def storage_failure(message: str) -> PaiError:
    return Unavailable(message, code=FAILED)


_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def disk_errors(path: str) -> Iterator[None]:
    """Convert OSError to a `PaiError` about the client's ``path``; the path on the server is never shown."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, path) from error


def from_os_error(error: OSError, path: str) -> PaiError:
    """The `PaiError` that ``disk_errors`` raises."""
    if isinstance(error, FileNotFoundError):
        return no_file(path)
    if isinstance(error, FileExistsError):
        return exists(path)
    if isinstance(error, IsADirectoryError):
        return is_a_folder(path)
    if isinstance(error, NotADirectoryError):
        return not_a_folder(path)
    if error.errno in _DISK_FULL:
        return storage_full(path)
    if error.errno == errno.ENAMETOOLONG:
        return bad_path(path, "a name is too long for the disk")
    if error.errno == errno.ENOTEMPTY:
        return not_empty(path)
    if error.errno == errno.ELOOP:
        return no_file(path)
    return storage_failure(f"The cluster's storage failed on {path}: {error.strerror}.")
