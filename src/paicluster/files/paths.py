"""Client paths, split into names that are safe to pass to the file system."""

from __future__ import annotations

from paicluster.files.errors import bad_path, no_file

# The folder for the storage's internal files; no client path leads to it.
INTERNAL_FOLDER = ".pai"

MAX_PATH_LENGTH = 8000
MAX_NAME_BYTES = 255
MAX_DEPTH = 250
_NUL = "it contains a NUL character"

Names = tuple[str, ...]


def split_path(path: str) -> Names:
    """Names of an absolute path; the root has none. InvalidPathError for paths that HDFS rejects."""
    if not path.startswith("/"):
        raise bad_path(path, "it must begin with '/'")
    if len(path) > MAX_PATH_LENGTH:
        raise bad_path(path, f"it is longer than {MAX_PATH_LENGTH} characters")
    if "\0" in path:
        raise bad_path(path, _NUL)
    names = tuple(name for name in path.split("/") if name)
    if len(names) > MAX_DEPTH:
        raise bad_path(path, f"it has more than {MAX_DEPTH} levels")
    for name in names:
        check_name(path, name)
    if names and names[0] == INTERNAL_FOLDER:
        raise no_file(path)
    return names


def check_name(path: str, name: str) -> None:
    """Check one name of a path."""
    if name in (".", ".."):
        raise bad_path(path, f"'{name}' is not allowed in a path")
    if ":" in name:
        raise bad_path(path, "a name must not contain ':'")
    if "\0" in name:
        raise bad_path(path, _NUL)
    try:
        size = len(name) if name.isascii() else len(name.encode())
    except UnicodeEncodeError:
        raise bad_path(path, "it is not Unicode text") from None
    if size > MAX_NAME_BYTES:
        raise bad_path(path, f"a name has more than {MAX_NAME_BYTES} bytes")


def join_path(names: Names) -> str:
    return "/" + "/".join(names)
