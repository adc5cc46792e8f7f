"""File locations: ``pai://<cluster>/<storage>/<path>``, ``hdfs://HOST[:PORT]/path``, ``s3://BUCKET/path``,
``az://CONTAINER/path`` (also ``abfs://CONTAINER@ACCOUNT/path``), ``-``, a local path."""

from __future__ import annotations

import os

from paiprotocol.errors import UsageError

PAI, HDFS, S3, AZURE, LOCAL, STREAM = "pai", "hdfs", "s3", "azure", "local", "-"
CLOUD_SCHEMES = {"s3": S3, "s3a": S3, "az": AZURE, "abfs": AZURE, "abfss": AZURE}
"""Schemes of addresses in a cloud, and the kind of storage each one means."""
SELECTED = "0"
"""Storage name that means the selected storage, else the default one."""
USER_NAME = "${PAI_USER_NAME}"


class Location:
    """Parsed location. ``path`` is absolute on a storage; ``is_folder``: it ends in a slash."""

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
        return self.kind in (PAI, HDFS, S3, AZURE)

    @property
    def means_contents(self) -> bool:
        """Whether it ends in ``.`` or ``..``: as with ``cp``, the contents of a folder without its name."""
        return self.text.rstrip("/").rpartition("/")[2] in (".", "..")


def parse_location(text: str) -> Location:
    """Parse a location as typed; text without a scheme is a local path."""
    if not text:
        raise UsageError("The path is empty.")
    if text == STREAM:
        return Location(STREAM, text, text)
    scheme, sep, rest = text.partition("://")
    scheme = scheme.lower()
    if not sep:
        if text.startswith(tuple(f"{scheme}:/" for scheme in (PAI, HDFS, *CLOUD_SCHEMES))):
            # As a local path it would be accepted silently, and the file would not be found on the storage.
            corrected = text.replace(":/", "://", 1)
            raise UsageError(
                f"{text!r} has one slash where an address has two: write {corrected}.",
                hint=f"For a local file with this name, write ./{text}",
            )
        return _local(text)
    if scheme == "file":
        return _local(rest)
    if scheme == PAI:
        cluster, _, rest = rest.partition("/")
        storage, _, path = rest.partition("/")
        if not cluster or not storage:
            raise UsageError(
                f"{text!r} is incomplete: it must name a cluster and a storage.",
                hint="pai://<cluster>/<storage>/<path>; pai list-storages shows them, 0 is the selected one.",
            )
        return Location(
            PAI,
            text,
            normalize_path(path, text),
            cluster=cluster,
            storage=storage,
            is_folder=_has_trailing_slash(path),
        )
    if scheme in (HDFS, "webhdfs"):
        host, _, path = rest.partition("/")
        if not host:
            raise UsageError(f"{text!r} has no host: write hdfs://HOST[:PORT]/path.")
        return Location(
            HDFS, text, normalize_path(path, text), host=host.lower(), is_folder=_has_trailing_slash(path)
        )
    if scheme in CLOUD_SCHEMES:
        host, _, path = rest.partition("/")
        if not host:
            what = "BUCKET" if CLOUD_SCHEMES[scheme] == S3 else "CONTAINER"
            raise UsageError(f"{text!r} has no {what.lower()}: write {scheme}://{what}/path.")
        return Location(
            CLOUD_SCHEMES[scheme],
            text,
            normalize_path(path, text),
            host=host,
            is_folder=_has_trailing_slash(path),
        )
    raise UsageError(
        f"{text!r}: addresses that begin with {scheme}:// are not supported.",
        hint="Use pai://<cluster>/<storage>/<path>, hdfs://HOST[:PORT]/path, s3://BUCKET/path, "
        "az://CONTAINER/path or a local path.",
    )


def normalize_path(path: str, text: str = "") -> str:
    """Absolute path on a storage, without empty components. '..' is an error."""
    parts = [part for part in path.split("/") if part and part != "."]
    if ".." in parts:
        raise UsageError(f"{text or path!r}: a path on a storage must not contain '..'.")
    return "/" + "/".join(parts)


def invalid_name_reason(path: str) -> str:
    """Reason why HDFS rejects a path; empty if it accepts it."""
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


def _has_trailing_slash(path: str) -> bool:
    return path == "" or path.endswith("/")
