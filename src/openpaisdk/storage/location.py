"""Where a file is: ``pai://<cluster>/<storage>/<path>``, ``hdfs://HOST[:PORT]/path``, ``-``, a local path."""

from __future__ import annotations

import os

from openpaisdk.errors import UsageError

PAI, HDFS, LOCAL, STREAM = "pai", "hdfs", "local", "-"
SELECTED = "0"
"""The storage's name that means: the selected one, or else the first."""
USER_NAME = "${PAI_USER_NAME}"


class Location:
    """An address, taken apart. ``path`` is absolute on a storage; ``is_folder``: a slash was at its end."""

    __slots__ = ("cluster", "host", "is_folder", "kind", "path", "storage", "text")

    def __init__(
        self,
        kind: str,
        text: str,
        path: str,
        *,
        cluster: str = "",
        storage: str = "",
        host: str = "",
        is_folder: bool = False,
    ):
        self.kind = kind
        self.text = text
        self.path = path
        self.cluster = cluster
        self.storage = storage
        self.host = host
        self.is_folder = is_folder

    @property
    def is_remote(self) -> bool:
        return self.kind in (PAI, HDFS)

    @property
    def means_contents(self) -> bool:
        """Whether it ends in ``.`` or ``..``: to ``cp`` that is what a folder holds, without its name."""
        return self.text.rstrip("/").rpartition("/")[2] in (".", "..")


def parse_location(text: str) -> Location:
    """Take apart what a person typed; what is not an address is a path on this machine."""
    if not text:
        raise UsageError("An empty path leads nowhere.")
    if text == STREAM:
        return Location(STREAM, text, text)
    scheme, sep, rest = text.partition("://")
    scheme = scheme.lower()
    if not sep:
        if text.startswith((f"{PAI}:/", f"{HDFS}:/")):
            # As a path it would be taken without a word, and the file be looked for elsewhere in vain.
            there = text.replace(":/", "://", 1)
            raise UsageError(
                f"{text!r} has one slash where an address has two: write {there}.",
                hint=f"A file of this machine that is called so is ./{text}",
            )
        return _local(text)
    if scheme == "file":
        return _local(rest)
    if scheme == PAI:
        cluster, _, rest = rest.partition("/")
        storage, _, path = rest.partition("/")
        if not cluster or not storage:
            raise UsageError(
                f"{text!r} is not whole: it must name a cluster and a storage.",
                hint="pai://<cluster>/<storage>/<path>; pai list-storages shows them, 0 is the selected one.",
            )
        return Location(
            PAI, text, clean(path, text), cluster=cluster, storage=storage, is_folder=_ends_in_slash(path)
        )
    if scheme in (HDFS, "webhdfs"):
        host, _, path = rest.partition("/")
        if not host:
            raise UsageError(f"{text!r} names no host: write hdfs://HOST[:PORT]/path.")
        return Location(HDFS, text, clean(path, text), host=host.lower(), is_folder=_ends_in_slash(path))
    raise UsageError(
        f"{text!r}: pai knows no addresses that begin with {scheme}://.",
        hint="It knows pai://<cluster>/<storage>/<path>, hdfs://HOST[:PORT]/path and paths on this machine.",
    )


def clean(path: str, text: str = "") -> str:
    """A path on a storage: absolute, without empty parts. One that climbs is refused."""
    parts = [part for part in path.split("/") if part and part != "."]
    if ".." in parts:
        raise UsageError(f"{text or path!r}: a path on a storage cannot climb with '..'.")
    return "/" + "/".join(parts)


def problem_of_name(path: str) -> str:
    """Why HDFS would not have a path; empty when it would."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "it is not UTF-8"
    if ":" in path:
        return "it has a colon"
    if "\0" in path:
        return "it has a zero byte"
    if any(len(part.encode()) > 255 for part in path.split("/")):
        return "a part of it is longer than 255 bytes"
    return ""


def _local(text: str) -> Location:
    path = os.path.expanduser(text)
    return Location(LOCAL, text, path, is_folder=path.endswith((os.sep, "/")))


def _ends_in_slash(path: str) -> bool:
    return path == "" or path.endswith("/")
