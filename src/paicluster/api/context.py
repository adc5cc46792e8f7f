"""Context of the routes: everything they may use of the server, by subject. Built once at its start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from starlette.requests import Request

from paicluster.api.connections.exec_sessions import ExecSessions
from paicluster.api.connections.forwarders import Forwarders
from paicluster.api.identity.sign_in_links import SignInLinks
from paicluster.api.jobs.column_cache import ColumnCache
from paicluster.api.jobs.detail_cache import ResponseCache
from paicluster.api.jobs.follow_turns import FollowTurns
from paicluster.api.jobs.job_parser import JobParser
from paicluster.api.jobs.order_cache import OrderCache
from paicluster.api.middleware.audit import AuditLog
from paicluster.api.middleware.policies import HttpPolicies
from paicluster.api.routing.scope import CONTEXT_KEY
from paicluster.auth.sealing import Sealer
from paicluster.auth.ssh_keys import SshKeys
from paicluster.auth.tickets import Tickets
from paicluster.auth.tokens import Identity, Tokens
from paicluster.auth.user_certificates import UserCertificates
from paicluster.config.settings import Settings
from paicluster.engines.interface import LogSource, Node, ReportSink
from paicluster.logs.log_watcher import LogWatcher
from paicluster.metrics.usage_sampler import UsageSampler
from paicluster.remote_storages.remote_changes import RemoteChanges
from paicluster.remote_storages.remote_files import RemoteFiles
from paicluster.remote_storages.storages import StorageConfig
from paicluster.services.admission import Admission
from paicluster.services.event_metric_collector import EventMetricCollector
from paicluster.services.file_service import FileService
from paicluster.services.job_packages import JobPackages
from paicluster.services.metric_collector import MetricCollector
from paicluster.services.quota_reports import QuotaReports
from paicluster.services.source_checkout import SourceCheckouts
from paicluster.services.user_quotas import Quotas
from paicluster.services.virtual_clusters import VirtualClusters
from paicluster.store import Store
from paicluster.store.rows import JobRow

# Searches in logs at a time: each holds the interpreter and a few blocks of memory.
_LOG_SEARCHES = 2
# Processes that read event files for requests at one time.
_EVENT_FILE_READS = 2


class JobController(Protocol):
    """The controller, as far as requests ask it."""

    def reconcile_age(self) -> float:
        """Seconds the current reconcile has taken so far."""

    def degraded_reason(self, framework: str = "") -> str:
        """Why the database cannot be written, and what to do; of a job, why it is quarantined. Else empty."""

    def quarantined(self) -> int:
        """Number of quarantined jobs."""

    def pending_stops(self) -> int:
        """Number of stopped jobs whose stop is not yet in the database."""

    async def stop_without_store(self, job_id: int) -> None:
        """Stop a job's tasks when the database cannot be written."""


class JobRemover(Protocol):
    async def remove_job(self, job_id: int) -> bool:
        """Delete a finished job with its logs and folders; False when it has not finished."""


class Engines(LogSource, Protocol):
    """The engines, as far as requests ask them: each method asks the engine of the attempt."""

    def runs_images(self) -> bool:
        """Whether jobs run in the image they name."""

    def report_sink(self, uid: str) -> ReportSink | None:
        """Sink for the reports of an attempt on a node without a shared file system."""

    def session_command(self, uid: str, *, terminal: bool = False) -> Sequence[str] | None:
        """Command line of the host of a session in an attempt; None if its engine has no sessions."""

    def forward_command(self, uid: str) -> Sequence[str] | None:
        """Command line of the forwarder of an attempt's ports; None if its engine forwards none."""

    def nodes(self) -> Sequence[Node]:
        """The nodes of all engines, as they were last seen."""


class ClusterNodes(Protocol):
    async def current(self) -> Sequence[Node]:
        """The nodes as they are now; also updates the capacity of externally scheduled virtual clusters."""


class SshAccess(Protocol):
    """The cluster's own SSH server."""

    keys: SshKeys

    async def port(self) -> int | None:
        """The port at which it listens, from now on; None if this cluster has none."""


class AppTicket(NamedTuple):
    """Where a browser may open an app of a task once: scheme and port of the server, and the ticket."""

    scheme: str
    port: int
    ticket: str


class AppAccess(Protocol):
    """Ports of the server for the web servers of tasks."""

    async def open(self, identity: Identity, row: JobRow, role: str, index: int, port: int) -> AppTicket:
        """A ticket for a port of a running task."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IdentityContext:
    """Who a caller is: credentials, and the key that seals secrets."""

    tokens: Tokens
    tickets: Tickets
    certificates: UserCertificates
    sealer: Sealer
    # Early OpenPAI clients read without a token.
    anonymous_v1_reads: bool
    sign_in_links: SignInLinks = field(default_factory=SignInLinks)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class JobContext:
    """Submission of jobs, their sources and packages, and how clients watch them."""

    admission: Admission
    parser: JobParser
    # Folder of the uploaded source archives.
    sources: Path
    source_checkouts: SourceCheckouts
    packages: JobPackages
    retention: JobRemover
    detail_cache: ResponseCache
    metrics: MetricCollector
    event_metrics: EventMetricCollector
    column_cache: ColumnCache = field(default_factory=ColumnCache)
    order_cache: OrderCache = field(default_factory=OrderCache)
    log_watcher: LogWatcher = field(default_factory=LogWatcher)
    event_file_turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_EVENT_FILE_READS))
    follow_turns: FollowTurns = field(default_factory=FollowTurns)
    log_search_turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_LOG_SEARCHES))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FileContext:
    """The cluster's own storage, and those of other servers."""

    own: FileService
    # Configurations of all storages, the own one included.
    storages: Sequence[StorageConfig]
    remote_files: RemoteFiles
    remote_changes: RemoteChanges


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CapacityContext:
    """What the cluster has, who may use how much of it, and what is used."""

    nodes: ClusterNodes
    virtual_clusters: VirtualClusters
    # Quotas of users and groups.
    user_quotas: Quotas
    quota_reports: QuotaReports
    usage: UsageSampler


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ConnectionContext:
    """Connections of clients with running tasks. The SSH endpoint and web apps need nothing else."""

    store: Store
    tokens: Tokens
    engines: Engines
    sessions: ExecSessions
    forwarders: Forwarders
    audit: AuditLog | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ServerContext:
    """The server itself: its settings, addresses and limits."""

    version: str
    settings: Settings
    # Host and port of the URL that tasks use.
    netloc: str
    policies: HttpPolicies
    # Set at shutdown.
    closing: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Context:
    store: Store
    controller: JobController
    engines: Engines
    identity: IdentityContext
    jobs: JobContext
    files: FileContext
    capacity: CapacityContext
    connections: ConnectionContext
    server: ServerContext
    ssh: SshAccess
    # None where the settings have no ports for web apps of tasks.
    web_apps: AppAccess | None

    def close_streams(self) -> None:
        """End all streaming responses at shutdown; clients reconnect to the next server."""
        self.server.closing.set()
        self.store.changes.wake_all()


def context(request: Request) -> Context:
    ctx: Context = request.scope[CONTEXT_KEY]
    return ctx
