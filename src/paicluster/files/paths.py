"""Paths as clients write them, taken apart into names that are safe to hand to the disk."""

from __future__ import annotations

from paicluster.files.errors import bad_path, no_file

# The folder in which the storage keeps what is its own; no path of a client reaches it.
OWN = ".pai"

LONGEST_PATH = 8000
LONGEST_NAME = 255
DEEPEST = 250
_NUL = "it has a NUL character"

Names = tuple[str, ...]


def names_of(path: str) -> Names:
    """The names along an absolute path; the root has none. What HDFS forbids is refused."""
    if not path.startswith("/"):
        raise bad_path(path, "it must begin with '/'")
    if len(path) > LONGEST_PATH:
        raise bad_path(path, f"it is longer than {LONGEST_PATH} characters")
    if "\0" in path:
        raise bad_path(path, _NUL)
    names = tuple(name for name in path.split("/") if name)
    if len(names) > DEEPEST:
        raise bad_path(path, f"it has more than {DEEPEST} levels")
    for name in names:
        check_name(path, name)
    if names and names[0] == OWN:
        raise no_file(path)
    return names


def check_name(path: str, name: str) -> None:
    """One name of a path, which nothing else need be wrong with."""
    if name in (".", ".."):
        raise bad_path(path, f"'{name}' is not a name; give the path without it")
    if ":" in name:
        raise bad_path(path, "a name may not have a ':'")
    if "\0" in name:
        raise bad_path(path, _NUL)
    try:
        size = len(name) if name.isascii() else len(name.encode())
    except UnicodeEncodeError:
        raise bad_path(path, "it is not Unicode text") from None
    if size > LONGEST_NAME:
        raise bad_path(path, f"a name has more than {LONGEST_NAME} bytes")


def text_of(names: Names) -> str:
    return "/" + "/".join(names)
