"""Typed sections of a cluster's settings. The defaults apply to a cluster without a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

WEEK_S = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Authentication:
    """Section ``authentication``."""

    # Whether v1 clients may read jobs, their config and SSH addresses without a token.
    anonymous_v1_reads: bool = False
    # Whether the storage trusts `user.name` without a token, as HDFS without security does.
    trust_user_name: bool = False
    # Whether every user may create files and folders in the root of the storage.
    open_root: bool = False
    # Lifetime of a login.
    session_s: int = WEEK_S
    # Failed logins per minute before further ones are rejected; None: no limit.
    logins_per_account: int | None = 10
    logins_per_address: int | None = 30


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits per client; None: no limit."""

    body_mb: int = 8
    # All bodies in memory at one time; of one user half of it.
    bodies_mb: int = 128
    sources_mb: int = 4096
    # A connection that makes no progress for this long is closed.
    slow_client_s: float = 60.0
    # Open ones without a user; loopback and trusted proxies are exempt.
    connections_per_address: int | None = 256
    # With requests of one token, from any address.
    connections_per_token: int | None = 2048
    # Per token; without one per address.
    requests_per_minute: int | None = 60_000
    # Per user.
    lists_per_minute: int | None = 6_000
    submissions_per_hour: int | None = 360_000
    # What jobs submit with their own tokens: jobs of jobs of jobs, and for each job.
    submission_depth: int | None = 3
    submissions_per_job: int | None = 1000
    # Processor time for jobs that are large or invalid.
    parse_s_per_minute: int | None = 20


@dataclass(frozen=True, slots=True)
class BackupSettings:
    """Section ``backups``: automatic backups of the database."""

    # None: in the home.
    folder: Path | None = None
    # None: no automatic backups.
    every_s: float | None = 3600.0
    keep_s: float = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class UsageSettings:
    """Section ``usage``: samples of what tasks, nodes and virtual clusters use."""

    # None: no samples.
    every_s: float | None = 5.0
    # Size of the history.
    keep_mb: int = 256


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """A storage. ``kind``: `own` (a folder the cluster serves), `mount` (a path on every machine), `hdfs`
    (an external HDFS at ``url``), `s3` or `azureblob` (``bucket`` in a cloud), `nfs`, `samba` or `azurefile`
    (``network_share`` of a file server)."""

    name: str
    kind: str
    path: Path | None = None
    url: str | None = None
    # True: all users see all of it; False: each user sees the folder of the same name.
    share: bool = True
    read_only: bool = False
    # Groups with access; empty: all users.
    groups: tuple[str, ...] = ()
    bucket: BucketSettings | None = None
    network_share: ShareSettings | None = None
    # Whether a storage on another server is mounted for the jobs that request it.
    mount: bool = True


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """A bucket of S3, or a container of Azure Blob (then ``account`` is set)."""

    name: str
    # Path within the bucket that is the root of the storage.
    prefix: str = ""
    endpoint_url: str = ""
    region: str = ""
    account: str = ""
    # File with the credentials; without one, users have credentials of their own.
    credentials: Path | None = None


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """A share of a file server: ``server`` and ``path`` of NFS, //SERVER/SHARE/path of Samba, the name of a
    share of Azure Files in ``account``."""

    path: str
    server: str = ""
    account: str = ""
    credentials: Path | None = None


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """An engine. ``options``: as written in the file."""

    name: str = "process"
    kind: str = "process"
    options: Mapping[str, object] = field(default_factory=dict)
