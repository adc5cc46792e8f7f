"""Composition root: builds every part of a cluster from its settings, each from parts that exist already."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from paicluster.api.connections.exec_sessions import ExecSessions, session_limits
from paicluster.api.connections.forwarders import Forwarders
from paicluster.api.context import (
    CapacityContext,
    ConnectionContext,
    Context,
    FileContext,
    IdentityContext,
    JobContext,
    ServerContext,
)
from paicluster.api.jobs.detail_cache import ResponseCache
from paicluster.api.jobs.job_parser import JobParser
from paicluster.api.middleware.policies import HttpPolicies
from paicluster.api.v2.job_summaries import render_summary
from paicluster.auth.ssh_keys import SshKeys
from paicluster.auth.tickets import Tickets
from paicluster.auth.user_certificates import UserCertificates
from paicluster.config.cluster_file import is_loopback
from paicluster.config.settings import Settings, shares
from paicluster.controller.allocation_records import EmptyNodes
from paicluster.controller.reconciler import Controller, total_resources
from paicluster.controller.retention import RetentionPolicy, RetentionSweeper
from paicluster.controller.stop_journal import StopJournal
from paicluster.engines.interface import Node
from paicluster.engines.process.local_node import detect_node
from paicluster.engines.registry import check_job_options
from paicluster.engines.router import EngineRouter
from paicluster.metrics.usage_history import UsageHistory
from paicluster.metrics.usage_sampler import UsageSampler
from paicluster.remote_storages import storages
from paicluster.remote_storages.remote_changes import RemoteChanges
from paicluster.remote_storages.remote_files import RemoteFiles
from paicluster.scheduler.resource_requests import MINIMUM, NO_MINIMUM
from paicluster.server.available_memory import available_memory_mb
from paicluster.server.backup_schedule import BackupSchedule
from paicluster.server.credentials import Credentials, open_credentials
from paicluster.server.engine_factory import build_engines, external_shares, scheduled_shares
from paicluster.server.launch_settings import launch_settings
from paicluster.server.task_accounts import UserCount
from paicluster.services.admission import Admission
from paicluster.services.event_metric_collector import EventMetricCollector
from paicluster.services.file_service import open_file_service
from paicluster.services.job_packages import JobPackages
from paicluster.services.metric_collector import MetricCollector
from paicluster.services.quota_reports import QuotaReports
from paicluster.services.source_checkout import SourceCheckouts
from paicluster.services.storage_counter import StorageCounter
from paicluster.services.user_quotas import Quotas
from paicluster.services.virtual_clusters import VirtualClusters
from paicluster.services.work_journal import WorkJournal
from paicluster.ssh.endpoint import SshEndpoint
from paicluster.store import Store
from paicluster.store.address import DatabaseAddress
from paicluster.store.job_origins import SubmissionLimits
from paicluster.web_apps.endpoint import Tls, WebApps
from paiprotocol._version import __version__
from paiprotocol.errors import StoreError

# File of a home in which a running server announces its address.
HANDSHAKE = "server.json"


@dataclass(frozen=True, slots=True)
class ServerUrls:
    """``listen``: the address the server listens on. ``external``: the one users and tasks are given."""

    listen: str
    external: str

    @classmethod
    def of(cls, settings: Settings, port: int) -> ServerUrls:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        listen = f"{'https' if settings.tls_cert else 'http'}://{host}:{port}"
        external = settings.external_url or listen
        if settings.external_url is None and settings.host in ("0.0.0.0", "::"):
            external = listen.replace(host, _own_address(), 1)
        return cls(listen, external)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _BackgroundParts:
    """Parts that work by themselves from start to shutdown; no request asks them for anything."""

    work_journal: WorkJournal
    retention: RetentionSweeper
    storage_counter: StorageCounter
    backups: BackupSchedule | None
    ssh: SshEndpoint
    web_apps: WebApps | None


class Cluster:
    """All parts of one cluster. The API works without `start`; the controller runs only after it."""

    def __init__(
        self,
        settings: Settings,
        urls: ServerUrls,
        engines: EngineRouter,
        controller: Controller,
        context: Context,
        credentials: Credentials,
        background: _BackgroundParts,
    ) -> None:
        self.settings = settings
        self.urls = urls
        self.engines = engines
        self.controller = controller
        self.context = context
        self.store = context.store
        self.login = credentials.login
        self.is_new = credentials.is_new
        self._background = background
        self._started = False

    async def start(self) -> None:
        """Resume source checkouts, adopt running jobs, schedule new ones."""
        context, background = self.context, self._background
        background.work_journal.open()
        await context.jobs.source_checkouts.resume()
        await context.jobs.packages.start()
        # Before the controller's own listener, which plans with the new quotas.
        self.engines.on_capacity_change(
            lambda: context.capacity.virtual_clusters.resize(external_shares(self.settings, self.engines))
        )
        await self.controller.start()
        context.jobs.metrics.start()
        context.jobs.event_metrics.start()
        background.storage_counter.start()
        context.capacity.virtual_clusters.set_external(external_shares(self.settings, self.engines))
        background.retention.start()
        if background.backups is not None:
            background.backups.start()
        background.ssh.resume()
        await context.capacity.usage.start()
        self._started = True

    async def close(self) -> None:
        """Close all parts. Tasks keep running; the next server adopts them."""
        context, background = self.context, self._background
        await background.ssh.close()
        if background.web_apps is not None:
            background.web_apps.close()
        if self._started:
            await context.capacity.usage.close()
            await background.retention.close()
            await background.storage_counter.close()
            if background.backups is not None:
                await background.backups.close()
            await context.jobs.source_checkouts.close()
            await context.jobs.packages.close()
            await self.controller.close()
            background.work_journal.close()
        await context.jobs.metrics.close()
        await context.jobs.event_metrics.close()
        context.capacity.user_quotas.close()
        await context.jobs.parser.close()
        context.server.policies.close()
        context.files.own.close()
        context.files.remote_files.close()
        context.files.remote_changes.close()
        context.jobs.log_watcher.close()
        self.store.close()


class _ClusterNodes:
    """Nodes of all engines; asking for them updates what depends on them."""

    def __init__(self, settings: Settings, engines: EngineRouter, virtual_clusters: VirtualClusters) -> None:
        self._settings = settings
        self._engines = engines
        self._virtual_clusters = virtual_clusters

    async def current(self) -> Sequence[Node]:
        await self._engines.refresh_nodes()
        self._virtual_clusters.resize(external_shares(self._settings, self._engines))
        return self._engines.nodes()


def build(settings: Settings, port: int = 0, *, notices: TextIO | None = None) -> Cluster:
    """Build a cluster's parts, inside a running event loop; the caller holds the home's lock.

    ``port``: where the server listens. The generated password of a new administrator goes to ``notices``, or
    else stderr, as soon as it is stored, so that no later failure can lose it.
    """
    # What a server that crashed left behind.
    (settings.home / HANDSHAKE).unlink(missing_ok=True)
    urls = ServerUrls.of(settings, port)
    user_count = UserCount()
    engines = _engines(settings, user_count)
    store = _open_store(settings)
    user_count.read_from(store)
    credentials = open_credentials(settings, store, notices or sys.stderr)
    identity = _identity(settings, store, credentials)
    files = FileContext(
        open_file_service(settings, urls.external),
        storages.of_settings(settings.storages, urls.external),
        RemoteFiles(),
        RemoteChanges(settings.home),
    )
    store.changes.subscribe_tokens(files.own.transfers.fd_server.end_sessions)
    virtual_clusters = _virtual_clusters(settings, store, engines)
    quotas = Quotas(store, files.own.storage.usage)
    work_journal = WorkJournal(settings.home / "work-in-progress")
    controller = _controller(settings, urls, store, engines, identity, virtual_clusters, quotas, work_journal)
    virtual_clusters.on_change(controller.requeue_unschedulable)
    quotas.on_change(controller.requeue_unschedulable)
    storage_counter = StorageCounter(files.own.storage, store, _sources(settings))
    quotas.on_change(storage_counter.on_limits_changed)
    capacity = CapacityContext(
        _ClusterNodes(settings, engines, virtual_clusters),
        virtual_clusters,
        quotas,
        QuotaReports(store, quotas, controller, storage_counter),
        _usage_sampler(settings, engines, controller, virtual_clusters),
    )
    checkouts = SourceCheckouts(files.own.storage, store, _sources(settings), work_journal)
    packages = JobPackages(files.own, store, settings.home / "unclaimed-packages")
    retention = _retention(settings, store, engines, checkouts, packages, capacity.usage.history)
    metrics = MetricCollector(store, engines.log_folder, controller.running_uids)
    controller.on_tasks_ended(metrics.finish)
    jobs = _jobs(settings, store, engines, identity, files, capacity, checkouts, packages, retention, metrics)
    policies = HttpPolicies.open(settings)
    connections = _connections(store, engines, identity, policies)
    ssh = SshEndpoint(
        connections,
        SshKeys.open(settings.home / "keys"),
        settings.host,
        settings.ssh_port,
        settings.home / "ssh-port",
    )
    web_apps = _web_apps(settings, connections)
    server = ServerContext(f"v{__version__}", settings, urlsplit(urls.external).netloc, policies)
    context = Context(
        store, controller, engines, identity, jobs, files, capacity, connections, server, ssh, web_apps
    )
    background = _BackgroundParts(work_journal, retention, storage_counter, _backups(settings), ssh, web_apps)
    return Cluster(settings, urls, engines, controller, context, credentials, background)


def _sources(settings: Settings) -> Path:
    """Folder of the uploaded source archives."""
    return settings.home / "sources"


def _engines(settings: Settings, user_count: UserCount) -> EngineRouter:
    """The engines. Raises ConfigError for virtual clusters that exceed this machine."""
    # Before any thread exists: detecting how process trees are controlled on this machine forks once.
    node = detect_node(
        ip="127.0.0.1" if is_loopback(settings.host) else _own_address(),
        cpu=settings.cpus,
        memory_mb=settings.memory_mb,
        gpus=settings.gpus,
    )
    engines = build_engines(settings, node, user_count)
    shares(total_resources(engines.scheduled_nodes()), scheduled_shares(settings, engines))
    return engines


def _open_store(settings: Settings) -> Store:
    keys = settings.home / "keys"
    if settings.database_url is not None:
        address = DatabaseAddress(
            settings.database_url, settings.database_password_file, may_create=not keys.is_dir()
        )
        return Store.open(address, render_summary)
    _check_database_not_empty(settings.database_file, keys)
    return Store.open(settings.database_file, render_summary)


def _check_database_not_empty(file: Path, keys: Path) -> None:
    """A machine crash may leave an empty file; replacing it by a new database would lose every job."""
    if keys.is_dir() and file.exists() and not file.stat().st_size:
        raise StoreError(
            f"The cluster's database {file} is empty, though the cluster was used before.",
            hint="Restore it from a backup; or remove it to start with a new one.",
        )


def _identity(settings: Settings, store: Store, credentials: Credentials) -> IdentityContext:
    keys = settings.home / "keys"
    return IdentityContext(
        credentials.tokens,
        Tickets.open(keys),
        UserCertificates(store, keys),
        credentials.sealer,
        settings.authentication.anonymous_v1_reads,
    )


def _virtual_clusters(settings: Settings, store: Store, engines: EngineRouter) -> VirtualClusters:
    return VirtualClusters(
        store,
        lambda: total_resources(engines.scheduled_nodes()),
        scheduled_shares(settings, engines),
        EmptyNodes(engines.scheduled_nodes),
    )


def _controller(
    settings: Settings,
    urls: ServerUrls,
    store: Store,
    engines: EngineRouter,
    identity: IdentityContext,
    virtual_clusters: VirtualClusters,
    quotas: Quotas,
    work_journal: WorkJournal,
) -> Controller:
    return Controller(
        store,
        engines,
        launch_settings(settings, urls.external, identity.sealer, identity.tokens),
        quotas=virtual_clusters.quotas,
        max_capacities=virtual_clusters.max_capacities,
        user_quotas=quotas.limits,
        minimum=MINIMUM if settings.enforce_limits else NO_MINIMUM,
        grace_s=settings.grace_s,
        stop_journal=StopJournal(settings.home / "pending-stops"),
        work_journal=work_journal,
    )


def _usage_sampler(
    settings: Settings, engines: EngineRouter, controller: Controller, virtual_clusters: VirtualClusters
) -> UsageSampler:
    return UsageSampler(
        UsageHistory(settings.home / "usage.db", settings.usage.keep_mb << 20),
        engines.usage,
        controller.running_tasks,
        lambda: virtual_clusters.quotas,
        settings.usage.every_s,
    )


def _jobs(
    settings: Settings,
    store: Store,
    engines: EngineRouter,
    identity: IdentityContext,
    files: FileContext,
    capacity: CapacityContext,
    checkouts: SourceCheckouts,
    packages: JobPackages,
    retention: RetentionSweeper,
    metrics: MetricCollector,
) -> JobContext:
    limits = settings.limits
    admission = Admission(
        store,
        identity.sealer,
        _sources(settings),
        capacity.virtual_clusters,
        capacity.user_quotas,
        files.storages,
        checkouts,
        files.own,
        check_job_options,
        engines.runs_images,
        MINIMUM if settings.enforce_limits else NO_MINIMUM,
        SubmissionLimits(limits.submission_depth, limits.submissions_per_job),
    )
    detail_cache = ResponseCache()
    store.changes.subscribe(detail_cache.invalidate)
    # The embedded cluster has one user.
    parser = JobParser(None if settings.embedded else limits.parse_s_per_minute)
    events = EventMetricCollector(store, engines.log_folder)
    return JobContext(
        admission, parser, _sources(settings), checkouts, packages, retention, detail_cache, metrics, events
    )


def _retention(
    settings: Settings,
    store: Store,
    engines: EngineRouter,
    checkouts: SourceCheckouts,
    packages: JobPackages,
    usage: UsageHistory,
) -> RetentionSweeper:
    async def remove_elsewhere(job_ids: Sequence[int]) -> None:
        await checkouts.remove(job_ids)
        await packages.remove(job_ids)
        await asyncio.to_thread(usage.remove_jobs, job_ids)

    return RetentionSweeper(
        store,
        engines,
        RetentionPolicy(settings.keep_days, settings.keep_jobs, settings.keep_mb),
        _sources(settings),
        initial_delay_s=settings.clean_after_s,
        clock_file=settings.home / "last-time-seen",
        on_remove=remove_elsewhere,
    )


def _backups(settings: Settings) -> BackupSchedule | None:
    """None: a database server has backups of its own."""
    if settings.database_url is not None:
        return None
    return BackupSchedule(
        settings.database_file,
        settings.backup_folder,
        settings.backups,
        initial_delay_s=settings.clean_after_s,
    )


def _connections(
    store: Store, engines: EngineRouter, identity: IdentityContext, policies: HttpPolicies
) -> ConnectionContext:
    per_user, total = session_limits(available_memory_mb())
    sessions = ExecSessions(identity.tokens, max_per_user=per_user, max_total=total)
    return ConnectionContext(store, identity.tokens, engines, sessions, Forwarders(sessions), policies.audit)


def _web_apps(settings: Settings, connections: ConnectionContext) -> WebApps | None:
    """None: the settings have no ports for them."""
    if not settings.app_ports:
        return None
    tls = Tls(settings.tls_cert, settings.tls_key) if settings.tls_cert and settings.tls_key else None
    return WebApps(connections, settings.host, settings.app_ports, tls, settings.limits.slow_client_s)


def _own_address() -> str:
    """The address other machines reach this one by. Connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
