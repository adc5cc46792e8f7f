"""Schema of cluster.yaml: every key, its type, and a sentence of documentation."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from paicluster.engines.registry import ENGINE_KINDS
from paicluster.engines.setting_types import NAME, RESOURCES, Number
from paiprotocol.jobs.schema_nodes import (
    Bool,
    Choice,
    Fields,
    Int,
    ListOf,
    MappingOf,
    Node,
    Nullable,
    Text,
    Variant,
)

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
_DURATION = re.compile(r"(\d{1,9})([smhd])")


class Duration(Node):
    """Seconds as an integer, or a number with a unit."""

    expected = 'a time such as "90s", "12h" or "7d"'

    def accepts(self, value: Any) -> bool:
        if type(value) is int:
            return 0 < value < 10**9
        return isinstance(value, str) and _DURATION.fullmatch(value) is not None and seconds(value) > 0


def seconds(value: Any) -> int:
    """A duration of the file in seconds."""
    match = _DURATION.fullmatch(str(value))
    return int(match[1]) * _UNITS[match[2]] if match else int(value)


class Url(Node):
    """A URL."""

    def __init__(self, doc: str = "", *, schemes: tuple[str, ...] = ("http", "https"), origin: bool = False):
        super().__init__(doc)
        self._schemes = schemes
        self._origin = origin
        example = f"{schemes[-1]}://pai.example.com"
        self.expected = f'an origin such as "{example}"' if origin else f'an address such as "{example}"'

    def accepts(self, value: Any) -> bool:
        if not isinstance(value, str) or re.search(r"\s", value):
            return False
        try:
            parts = urlsplit(value)
            _ = parts.port
        except ValueError:
            return False
        is_valid = (
            parts.scheme in self._schemes and bool(parts.hostname) and not parts.query and not parts.fragment
        )
        return is_valid and not parts.username and (not self._origin or not parts.path)

    def suggest(self, value: Any) -> str:
        if isinstance(value, str) and "://" not in value:
            return f"write {self._schemes[-1]}:// before it"
        return "leave out what follows the port" if self._origin and isinstance(value, str) else ""


class UnixAccountField(Node):
    """A Unix account: its name, its uid, or uid and gid."""

    expected = 'an account: its name, or numbers as in "1001:1001"'

    def accepts(self, value: Any) -> bool:
        if type(value) is int:
            return 0 <= value < 2**32 - 1
        return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.][A-Za-z0-9_.:$-]*", value) is not None


_LIMIT = Nullable(Int(minimum=1))


def engine_node() -> Variant:
    return Variant(
        "type",
        {
            kind.name: Fields(
                {"type": Choice(kind.name), "name": NAME, **kind.options_schema}, required=("type",)
            )
            for kind in ENGINE_KINDS.values()
        },
        "Where tasks run.",
    )


class EngineOrName(Node):
    """An engine by its type alone, or with its options."""

    expected = f"one of {', '.join(ENGINE_KINDS)}, or a mapping with the type and its options"

    def __init__(self, doc: str = ""):
        super().__init__(doc)
        self._kind = Choice(*ENGINE_KINDS)
        self._section = engine_node()

    def accepts(self, value: Any) -> bool:
        return self._kind.accepts(value) if isinstance(value, str) else self._section.accepts(value)

    def explain(self, value: Any, path: Any, problems: Any) -> None:
        if isinstance(value, str):
            self._kind.explain(value, path, problems)
        elif isinstance(value, dict):
            self._section.explain(value, path, problems)
        else:
            super().explain(value, path, problems)


_STORAGE_COMMON: dict[str, Node] = {
    "name": NAME,
    "share": Bool("Whether all users see all of it; otherwise each user sees the folder of the same name."),
    "read-only": Bool(),
    "groups": ListOf(NAME, "Groups with access; all users by default."),
}
_FOLDER = Text(pattern=r"\S.*", form="a path")
_BUCKET = Text(pattern=r"[A-Za-z0-9][A-Za-z0-9._-]*", form="a name")
_BUCKET_COMMON: dict[str, Node] = {
    **_STORAGE_COMMON,
    "prefix": Text("Path within the bucket that is the root of the storage."),
    "endpoint-url": Url(),
    "credentials": Text("File with the credentials of the storage.", pattern=r"\S.*", form="a path"),
    "mount": Bool("Whether it is mounted for the jobs that request it."),
}

_SHARE_COMMON: dict[str, Node] = {
    **_STORAGE_COMMON,
    "credentials": _BUCKET_COMMON["credentials"],
    "mount": _BUCKET_COMMON["mount"],
}

_SECTIONS: dict[str, Node] = {
    "home": _FOLDER,
    "listen": Fields(
        {
            "host": Text(pattern=r"\S+", form="an address or a name"),
            "port": Int(minimum=0, maximum=65535),
            "ssh-port": Nullable(Int(minimum=0, maximum=65535)),
            "app-ports": Nullable(
                Text(pattern=r"\d{1,5}-\d{1,5}", form="a range of ports, as 9400-9499"),
            ),
            "external-url": Nullable(Url()),
            "external-ca": Nullable(_FOLDER),
            "tls": Nullable(
                Fields({"certificate": _FOLDER, "key": _FOLDER}, required=("certificate", "key"))
            ),
            "allow-plain-http": Bool(),
            "cors-origins": ListOf(Url(origin=True)),
            "trusted-proxies": ListOf(
                Text(pattern=r"[0-9A-Fa-f.:]+(/\d{1,3})?", form="an address, or a network as 10.0.0.0/8")
            ),
        }
    ),
    "database": Text(
        "File of the database, or the address of one of PostgreSQL.", pattern=r"\S.*", form="a path"
    ),
    "database-password-file": Nullable(_FOLDER),
    "engine": EngineOrName(),
    "engines": ListOf(engine_node(), min_items=1),
    "virtual-clusters": MappingOf(Nullable(Fields({**RESOURCES, "engine": NAME})), key=NAME),
    "storages": ListOf(
        Variant(
            "type",
            {
                "own": Fields(
                    {"type": Choice("own"), "path": _FOLDER, **_STORAGE_COMMON}, required=("type", "name")
                ),
                "mount": Fields(
                    {"type": Choice("mount"), "path": _FOLDER, **_STORAGE_COMMON},
                    required=("type", "name", "path"),
                ),
                "hdfs": Fields(
                    {
                        "type": Choice("hdfs"),
                        "url": Url(schemes=("http", "https", "hdfs")),
                        **_STORAGE_COMMON,
                    },
                    required=("type", "name", "url"),
                ),
                "s3": Fields(
                    {"type": Choice("s3"), "bucket": _BUCKET, "region": _BUCKET, **_BUCKET_COMMON},
                    required=("type", "name", "bucket"),
                ),
                "azureblob": Fields(
                    {"type": Choice("azureblob"), "container": _BUCKET, "account": _BUCKET, **_BUCKET_COMMON},
                    required=("type", "name", "container", "account"),
                ),
                "nfs": Fields(
                    {
                        "type": Choice("nfs"),
                        "server": Text(pattern=r"[A-Za-z0-9_.:-]+", form="an address or a name"),
                        "path": Text(pattern=r"/.*", form="a path that begins with /"),
                        **_STORAGE_COMMON,
                        "mount": _BUCKET_COMMON["mount"],
                    },
                    required=("type", "name", "server", "path"),
                ),
                "samba": Fields(
                    {
                        "type": Choice("samba"),
                        "address": Text(pattern=r"//[^/\s]+/[^/].*", form="//SERVER/SHARE, or a path in it"),
                        **_SHARE_COMMON,
                    },
                    required=("type", "name", "address"),
                ),
                "azurefile": Fields(
                    {
                        "type": Choice("azurefile"),
                        "share-name": _BUCKET,
                        "account": _BUCKET,
                        **_SHARE_COMMON,
                    },
                    required=("type", "name", "share-name", "account"),
                ),
            },
        )
    ),
    "authentication": Fields(
        {
            "anonymous-v1-reads": Bool(),
            "trust-user-name": Bool(),
            "open-root": Bool(),
            "session-lifetime": Duration(),
            "failed-logins-per-account": _LIMIT,
            "failed-logins-per-address": _LIMIT,
        }
    ),
    "limits": Fields(
        {
            "body-mb": Int(minimum=1, maximum=1024),
            "bodies-mb": Int(minimum=16),
            "sources-mb": Int(minimum=1),
            "slow-client": Duration(),
            "connections-per-address": _LIMIT,
            "connections-per-token": _LIMIT,
            "requests-per-minute": _LIMIT,
            "lists-per-minute": _LIMIT,
            "submissions-per-hour": _LIMIT,
            "submission-depth": Nullable(Int(minimum=0)),
            "submissions-per-job": _LIMIT,
            "parse-seconds-per-minute": _LIMIT,
        }
    ),
    "retention": Fields(
        {
            "days": Nullable(Number()),
            "jobs": Nullable(Int(minimum=0)),
            "files-mb": Nullable(Int(minimum=0)),
        }
    ),
    "backups": Fields(
        {"folder": Text(), "every": Nullable(Duration()), "keep": Duration()},
    ),
    "usage": Fields({"every": Nullable(Duration()), "keep-mb": Int(minimum=1)}),
    "accounts": MappingOf(UnixAccountField(), key=Text(pattern=r"[\w.-]+", form="the name of a user")),
    "allow-shared-account": Bool(),
}
# A section in which everything is commented out is null.
CLUSTER = Fields({name: Nullable(node) for name, node in _SECTIONS.items()})
