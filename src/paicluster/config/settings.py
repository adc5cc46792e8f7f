"""Settings of one server."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paicluster.config.sections import (
    Authentication,
    BackupSettings,
    EngineSettings,
    RequestLimits,
    StorageSettings,
    UsageSettings,
)
from paicluster.scheduler.resource_requests import Resources
from paiprotocol.errors import ConfigError, UsageError

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings from cluster.yaml and the options of `paicluster serve`."""

    home: Path
    host: str = "127.0.0.1"
    port: int = 9186
    # Of the SSH endpoint. 0: a free one, which later servers use again; None: no endpoint.
    ssh_port: int | None = 0
    # Of web apps of tasks, one for each that is open. 0: any free one; empty: none.
    app_ports: range = range(1)
    tls_cert: str | None = None
    tls_key: str | None = None
    allow_plain_http: bool = False
    # Address for users and tasks, if it differs from the listening address.
    external_url: str | None = None
    # CA certificates of that address, if not the server's own: of a reverse proxy.
    external_ca: str | None = None
    # CORS: origins whose pages may use the API.
    cors_origins: tuple[str, ...] = ()
    # Reverse proxies whose X-Forwarded-For, -Proto and -Host are trusted.
    trusted_proxies: tuple[str, ...] = ()
    # Database file, if not in the home.
    database: Path | None = None
    # Of a database of PostgreSQL, instead of the file.
    database_url: str | None = None
    database_password_file: Path | None = None
    cpus: int | None = None
    memory_mb: int | None = None
    gpus: int | None = None
    grace_s: float = 10.0
    # Quotas of the virtual clusters except `default`, which has the rest.
    virtual_clusters: Mapping[str, Resources] = field(default_factory=dict)
    # By virtual cluster, the name of the engine that runs its jobs; those not named use the first.
    engine_of: Mapping[str, str] = field(default_factory=dict)
    engines: tuple[EngineSettings, ...] = (EngineSettings(),)
    storages: tuple[StorageSettings, ...] = ()
    authentication: Authentication = field(default_factory=Authentication)
    limits: RequestLimits = field(default_factory=RequestLimits)
    backups: BackupSettings = field(default_factory=BackupSettings)
    usage: UsageSettings = field(default_factory=UsageSettings)
    # Unix accounts of users, where the names differ.
    accounts: Mapping[str, str] = field(default_factory=dict)
    # Run all users' tasks under the server's account: they can read each other's files.
    allow_shared_account: bool = False
    # Retention of finished jobs; None: no limit.
    keep_days: float | None = 30.0
    keep_jobs: int | None = 100_000
    keep_mb: int | None = None
    # Delay of the first retention sweep after a start.
    clean_after_s: float = 60.0
    # Whether tasks are limited to the cores and memory they requested, where this machine supports it.
    enforce_limits: bool = False
    # The embedded cluster: one user, on this machine.
    embedded: bool = False
    idle_exit_s: float | None = None

    @property
    def database_file(self) -> Path:
        return self.database or self.home / "cluster.db"

    @property
    def backup_folder(self) -> Path:
        return self.backups.folder or self.home / "database-backups"

    def ca_certificates(self) -> str:
        """Certificates by which tasks verify the server, besides those their system trusts."""
        file = self.external_ca or self.tls_cert
        # Only the certificates: the same file may contain the private key.
        return "\n".join(_CERTIFICATE.findall(Path(file).read_text())) if file else ""

    def check(self) -> Settings:
        if not 0 <= self.port <= 65535:
            raise UsageError(f"{self.port} is not a port: use a number from 0 to 65535.")
        for name, value in (("--cpus", self.cpus), ("--memory-mb", self.memory_mb), ("--gpus", self.gpus)):
            if value is not None and value < 0:
                raise UsageError(f"{name} cannot be negative.")
        if not 0 <= self.grace_s < math.inf:
            raise UsageError("--grace is a number of seconds, 0 or more.")
        kept = (("--keep-days", self.keep_days), ("--keep-jobs", self.keep_jobs), ("--keep-mb", self.keep_mb))
        for name, limit in kept:
            if limit is not None and not 0 <= limit < math.inf:
                raise UsageError(f"{name} is a number, 0 or more.")
        home = str(self.home)
        if any(c < " " or c == "\x7f" or "\ud800" <= c <= "\udfff" for c in home):
            raise UsageError(f"The path of the home {home!r} is not plain text: choose another folder.")
        if not self.host:
            raise UsageError("--host must name an address to listen on.")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise UsageError("TLS needs both --tls-cert and --tls-key.")
        for file in (self.tls_cert, self.tls_key, self.external_ca):
            if file and not Path(file).is_file():
                raise UsageError(f"There is no file {file}.")
        return self


_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")
_SHARE = re.compile(r"([A-Za-z0-9_]+)=(\d+),(\d+),(\d+)")


def virtual_clusters(texts: Sequence[str]) -> dict[str, Resources]:
    """``NAME=GPUS,CORES,MEMORY_MB``, each once."""
    resources: dict[str, Resources] = {}
    for text in texts:
        match = _SHARE.fullmatch(text)
        if match is None:
            raise UsageError(f"A virtual cluster is given as NAME=GPUS,CORES,MEMORY_MB, not as {text!r}.")
        name = match[1]
        if name in resources or name == DEFAULT:
            raise UsageError(f"The virtual cluster {name} is given twice; 'default' always has the rest.")
        resources[name] = Resources(int(match[3]), int(match[4]), int(match[2]))
    return resources


def shares(total: Resources, configured: Mapping[str, Resources]) -> dict[str, Resources]:
    """Quota of every virtual cluster; `default` has what the others leave."""
    rest = total
    for resources in configured.values():
        rest = rest.minus(resources)
    if min(rest) < 0:
        raise ConfigError(
            "The virtual clusters together exceed the cluster's resources.",
            hint=f"The cluster has {total.gpu} GPUs, {total.cpu} cores and {total.memory_mb} MB.",
        )
    return {DEFAULT: rest, **configured}
