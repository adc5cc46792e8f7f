"""What the storage says no with. The codes are those a client can act on."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from openpaisdk.errors import Conflict, Forbidden, InvalidParameters, NotFound, PaiError, Unavailable

NO_FILE = "NoFileError"
NOT_ALLOWED = "ForbiddenFileError"
EXISTS = "ConflictFileError"
NOT_EMPTY = "NotEmptyError"
NOT_A_FOLDER = "NotAFolderError"
IS_A_FOLDER = "IsAFolderError"
BAD_PATH = "InvalidPathError"
FULL = "StorageFullError"
CUT = "IncompleteFileError"
UNSUPPORTED = "UnsupportedStorageError"
FAILED = "StorageError"

_NO_FOLDER = " is a file and not a folder."


def no_file(path: str) -> PaiError:
    return NotFound(f"File does not exist: {path}", code=NO_FILE)


def not_allowed(sentence: str) -> PaiError:
    return Forbidden(sentence, code=NOT_ALLOWED)


def exists(path: str, as_what: str = "") -> PaiError:
    return Conflict(f"{path} already exists{as_what}", code=EXISTS)


def not_empty(path: str) -> PaiError:
    return Conflict(
        f"`{path} is non empty': Directory is not empty", code=NOT_EMPTY, hint="Delete it with what is in it."
    )


def not_a_folder(path: str) -> PaiError:
    return Conflict(path + _NO_FOLDER, code=NOT_A_FOLDER)


def path_of_no_folder(error: PaiError) -> str:
    return error.message.removesuffix(_NO_FOLDER)


def is_a_folder(path: str) -> PaiError:
    return Conflict(f"Path is not a file: {path}", code=IS_A_FOLDER)


def bad_path(path: str, why: str) -> PaiError:
    shown = path if len(path) <= 200 else path[:200] + "…"
    # What cannot be said in UTF-8 cannot be answered either.
    shown = shown.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    return InvalidParameters(f'Invalid path name "{shown}": {why}', code=BAD_PATH)


def full(what: str) -> PaiError:
    return Unavailable(f"No space is left on the cluster's storage for {what}.", code=FULL, status=507)


def cut(path: str, got: int, announced: int) -> PaiError:
    return InvalidParameters(
        f"Only {got} of {announced} bytes of {path} arrived; nothing was changed.",
        code=CUT,
        hint="Send it again.",
    )


def unsupported(sentence: str) -> PaiError:
    return InvalidParameters(sentence, code=UNSUPPORTED)


def failed(sentence: str) -> PaiError:
    return Unavailable(sentence, code=FAILED)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def disk_errors(path: str) -> Iterator[None]:
    """Whatever the disk says, as a sentence about ``path``, never about where it lies on the server."""
    try:
        yield
    except OSError as error:
        raise of_disk(error, path) from error


def of_disk(error: OSError, path: str) -> PaiError:
    """What ``disk_errors`` raises."""
    if isinstance(error, FileNotFoundError):
        return no_file(path)
    if isinstance(error, FileExistsError):
        return exists(path)
    if isinstance(error, IsADirectoryError):
        return is_a_folder(path)
    if isinstance(error, NotADirectoryError):
        return not_a_folder(path)
    if error.errno in _FULL:
        return full(path)
    if error.errno == errno.ENAMETOOLONG:
        return bad_path(path, "a name is too long for the disk")
    if error.errno == errno.ENOTEMPTY:
        return not_empty(path)
    if error.errno == errno.ELOOP:
        return no_file(path)
    return failed(f"The cluster's storage cannot do this with {path}: {error.strerror}.")
