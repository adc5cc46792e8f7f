"""The sections of a cluster's settings, typed. Each default is what a cluster without a file has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

WEEK_S = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Authentication:
    # Version 1 clients of old read without a token; never ssh information or a job's config.
    anonymous_v1_reads: bool = False
    # In the storage a `user.name` without a token is believed, as in an HDFS without security.
    trust_user_name: bool = False
    # How long a login holds.
    session_s: int = WEEK_S
    # Failed logins a minute before further ones are refused; None sets no limit.
    logins_per_account: int | None = 10
    logins_per_address: int | None = 30


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What one client may ask of the server; None sets no limit."""

    body_mb: int = 8
    sources_mb: int = 4096
    # A client that has not sent its request, or does not take the answer, for so long is let go.
    slow_client_s: float = 60.0
    # By address.
    requests_per_minute: int | None = 60_000
    # By user.
    lists_per_minute: int | None = 6_000
    submissions_per_hour: int | None = 360_000


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """A place for files. ``kind``: `own` (a folder the cluster serves), `mount` (a path that is on every
    machine) or `hdfs` (``url`` of somebody else's)."""

    name: str
    kind: str
    path: Path | None = None
    url: str | None = None
    # Everybody sees the whole of it; else each user the folder of his name.
    share: bool = True
    read_only: bool = False
    # Whose it is; empty: everybody's.
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Where tasks run. ``options`` are those the kind of engine knows, as written in the file."""

    name: str = "process"
    kind: str = "process"
    options: Mapping[str, object] = field(default_factory=dict)
