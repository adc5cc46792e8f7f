"""Composition root: builds every part of a cluster from its settings."""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import pwd
import re
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from openpaisdk._version import __version__
from openpaisdk.errors import ConfigError, StoreError
from paicluster.api.context import Context
from paicluster.api.job_parser import JobParser
from paicluster.api.middleware.policies import HttpPolicies
from paicluster.auth import users as accounts
from paicluster.auth.passwords import NO_PASSWORD
from paicluster.auth.sealing import Sealer
from paicluster.auth.ssh_keys import SshKeys
from paicluster.auth.tickets import Tickets
from paicluster.auth.tokens import Tokens, TokensWithLocalAdmin, new_token_row
from paicluster.auth.user_certificates import UserCertificates
from paicluster.config.cluster_file import is_loopback
from paicluster.config.settings import Settings, shares
from paicluster.config.settings_view import render_settings
from paicluster.controller.allocations import Allocations
from paicluster.controller.launch_spec import LaunchSettings
from paicluster.controller.reconciler import Controller, total_resources
from paicluster.controller.retention import RetentionPolicy, RetentionSweeper
from paicluster.controller.stop_journal import StopJournal
from paicluster.controller.storage_credentials import CloudStorage
from paicluster.controller.storage_mounts import MountableStorage
from paicluster.engines.interface import Node
from paicluster.engines.process.local_node import detect_node
from paicluster.engines.router import EngineRouter
from paicluster.files.ownership import HOMES
from paicluster.logs.log_watcher import LogWatcher
from paicluster.metrics.usage_history import UsageHistory
from paicluster.metrics.usage_sampler import UsageSampler
from paicluster.scheduler.resource_requests import MINIMUM, NO_MINIMUM
from paicluster.server.backup_schedule import BackupSchedule
from paicluster.server.engine_factory import build_engines, external_shares, scheduled_shares
from paicluster.services import storages
from paicluster.services.file_service import open_file_service
from paicluster.services.quotas import Quotas
from paicluster.services.storage_counter import StorageCounter
from paicluster.services.virtual_clusters import VirtualClusters
from paicluster.services.work_journal import WorkJournal
from paicluster.ssh.endpoint import SshEndpoint
from paicluster.store import Store, users
from paicluster.web_apps.endpoint import Tls, WebApps

log = logging.getLogger("paicluster")

_ALLOWED_VARIABLES = ("HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_EMBEDDED_TOKEN = "embedded"

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


@dataclass(frozen=True, slots=True)
class EmbeddedLogin:
    """User and token of the embedded cluster, for the handshake file; empty on other clusters."""

    user: str = ""
    token: str = ""


class Cluster:
    """All parts of one cluster. The API works without `start`; the controller runs only after it."""

    def __init__(
        self,
        settings: Settings,
        urls: ServerUrls,
        engines: EngineRouter,
        controller: Controller,
        retention: RetentionSweeper,
        backups: BackupSchedule,
        context: Context,
        login: EmbeddedLogin,
        is_new: bool,
        storage_counter: StorageCounter,
        ssh: SshEndpoint,
        web_apps: WebApps | None,
    ) -> None:
        self.settings = settings
        self.urls = urls
        self.engines = engines
        self.controller = controller
        self.context = context
        self.store = context.store
        self.login = login
        self.is_new = is_new
        self._retention = retention
        self._backups = backups
        self._started = False
        self.storage_counter = storage_counter
        self._ssh = ssh
        self._web_apps = web_apps

    async def start(self) -> None:
        """Resume source checkouts, adopt running jobs, schedule new ones."""
        self.context.work_journal.open()
        await self.context.source_checkouts.resume()
        await self.controller.start()
        self.storage_counter.start()
        self.context.virtual_clusters.set_external(external_shares(self.settings, self.engines))
        self._retention.start()
        self._backups.start()
        self._ssh.resume()
        await self.context.usage.start()
        self._started = True

    async def close(self) -> None:
        """Close all parts. Tasks keep running; the next server adopts them."""
        await self._ssh.close()
        if self._web_apps is not None:
            self._web_apps.close()
        if self._started:
            await self.context.usage.close()
            await self._retention.close()
            await self.storage_counter.close()
            await self._backups.close()
            await self.context.source_checkouts.close()
            await self.controller.close()
            self.context.work_journal.close()
        self.context.user_quotas.close()
        await self.context.job_parser.close()
        self.context.policies.close()
        self.context.files.close()
        self.context.remote_files.close()
        self.context.remote_changes.close()
        self.context.log_watcher.close()
        self.store.close()


def build(settings: Settings, port: int = 0, *, notices: TextIO | None = None) -> Cluster:
    """Build a cluster's parts, inside a running event loop; the caller holds the home's lock.

    ``port``: where the server listens. The generated password of a new administrator goes to ``notices``, or
    else stderr, as soon as it is stored, so that no later failure can lose it.
    """
    home, keys = settings.home, settings.home / "keys"
    # What a server that crashed left behind.
    (home / HANDSHAKE).unlink(missing_ok=True)
    urls = ServerUrls.of(settings, port)
    # Before any thread exists: detecting how process trees are controlled on this machine forks once.
    node = detect_node(
        ip="127.0.0.1" if is_loopback(settings.host) else _own_address(),
        cpu=settings.cpus,
        memory_mb=settings.memory_mb,
        gpus=settings.gpus,
    )
    engines = build_engines(settings, node, lambda: store.read_inline(users.count_users))
    configured = scheduled_shares(settings, engines)
    shares(total_resources(engines.scheduled_nodes()), configured)
    _check_database_not_empty(settings.database_file, keys)
    store = Store.open(settings.database_file)
    credentials = _open_credentials(settings, store, notices or sys.stderr)
    tokens, sealer = credentials.tokens, credentials.sealer
    virtual_clusters = VirtualClusters(
        store,
        lambda: total_resources(engines.scheduled_nodes()),
        configured,
        lambda: Allocations().node_capacity(engines.scheduled_nodes()),
    )
    files = open_file_service(settings, urls.external)
    quotas = Quotas(store, files.storage.usage)
    minimum = MINIMUM if settings.enforce_limits else NO_MINIMUM
    work_journal = WorkJournal(home / "work-in-progress")
    controller = Controller(
        store,
        engines,
        _launch_settings(settings, urls, sealer, tokens),
        quotas=virtual_clusters.quotas,
        max_capacities=virtual_clusters.max_capacities,
        user_quotas=quotas.limits,
        minimum=minimum,
        grace_s=settings.grace_s,
        stop_journal=StopJournal(home / "pending-stops"),
        work_journal=work_journal,
    )
    virtual_clusters.on_change(controller.requeue_unschedulable)
    quotas.running = controller.running
    quotas.on_change(controller.requeue_unschedulable)

    async def nodes() -> Sequence[Node]:
        await engines.refresh_nodes()
        virtual_clusters.resize(external_shares(settings, engines))
        return engines.nodes()

    usage = _usage_sampler(settings, engines, controller, virtual_clusters)
    storage_configs = storages.of_settings(settings.storages, urls.external)
    context = Context(
        store=store,
        tokens=tokens,
        tickets=Tickets.open(keys),
        sealer=sealer,
        certificates=UserCertificates(store, keys),
        logs=engines,
        log_watcher=LogWatcher(),
        nodes=nodes,
        runs_images=engines.runs_images,
        reports_of=engines.report_sink,
        session_command=engines.session_command,
        forward_command=engines.forward_command,
        ssh=lambda: ssh,
        web_apps=lambda: web_apps,
        settings=lambda: render_settings(settings),
        virtual_clusters=virtual_clusters,
        user_quotas=quotas,
        minimum=minimum,
        files=files,
        storages=lambda: storage_configs,
        anonymous_v1_reads=settings.authentication.anonymous_v1_reads,
        remove_job=lambda job_id: retention.remove_job(job_id),
        controller_age=controller.reconcile_age,
        degraded_reason=controller.degraded_reason,
        quarantined_jobs=controller.quarantined,
        pending_stops=controller.pending_stops,
        stop_now=controller.stop_without_store,
        sources=home / "sources",
        version=f"v{__version__}",
        authority=lambda: urlsplit(urls.external).netloc,
        external_url=settings.external_url,
        policies=HttpPolicies.open(settings),
        work_journal=work_journal,
        usage=usage,
        # The embedded cluster has one user.
        job_parser=JobParser(None if settings.embedded else settings.limits.parse_s_per_minute),
    )

    async def remove_elsewhere(job_ids: Sequence[int]) -> None:
        await context.source_checkouts.remove(job_ids)
        await asyncio.to_thread(usage.history.remove_jobs, job_ids)

    ssh = SshEndpoint(context, SshKeys.open(keys), settings.host, settings.ssh_port, home / "ssh-port")
    web_apps = _web_apps(settings, context)
    retention = RetentionSweeper(
        store,
        engines,
        RetentionPolicy(settings.keep_days, settings.keep_jobs, settings.keep_mb),
        home / "sources",
        initial_delay_s=settings.clean_after_s,
        clock_file=home / "last-time-seen",
        on_remove=remove_elsewhere,
    )
    storage_counter = StorageCounter(files.storage, store, home / "sources")
    quotas.count_storage = storage_counter.ensure_counted
    quotas.on_change(storage_counter.on_limits_changed)
    backups = BackupSchedule(
        settings.database_file,
        settings.backup_folder,
        settings.backups,
        initial_delay_s=settings.clean_after_s,
    )
    return Cluster(
        settings,
        urls,
        engines,
        controller,
        retention,
        backups,
        context,
        credentials.login,
        credentials.is_new,
        storage_counter,
        ssh,
        web_apps,
    )


@dataclass(frozen=True, slots=True)
class _Credentials:
    """What the server issues tokens and seals with. ``is_new``: it had no users before this start."""

    tokens: Tokens
    sealer: Sealer
    login: EmbeddedLogin
    is_new: bool


def _open_credentials(settings: Settings, store: Store, notices: TextIO) -> _Credentials:
    """Open the keys, and create the first user of a new cluster."""
    keys = settings.home / "keys"
    if store.read_sync(users.any_issued):
        _check_keys(keys)
    tokens = TokensWithLocalAdmin.open(store, keys, settings.authentication.session_s)
    sealer = Sealer.from_key_files(keys)
    is_new = not store.read_sync(users.count_users)
    storages.check_names(settings.storages, is_new=is_new)
    login = _embedded_login(store, tokens) if settings.embedded else EmbeddedLogin()
    if not settings.embedded:
        _ensure_admin(store, notices)
    return _Credentials(tokens, sealer, login, is_new)


def _web_apps(settings: Settings, context: Context) -> WebApps | None:
    """None: the settings have no ports for them."""
    if not settings.app_ports:
        return None
    tls = Tls(settings.tls_cert, settings.tls_key) if settings.tls_cert and settings.tls_key else None
    return WebApps(context, settings.host, settings.app_ports, tls, settings.limits.slow_client_s)


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


def _launch_settings(settings: Settings, urls: ServerUrls, sealer: Sealer, tokens: Tokens) -> LaunchSettings:
    return LaunchSettings(
        base_environment=_base_environment(),
        rest_server_uri=urls.external,
        sources=settings.home / "sources",
        keep_submitted_environment=settings.embedded,
        unseal=sealer.unseal,
        job_token=tokens.of_job,
        default_fs_uri=f"hdfs://{urlsplit(urls.external).netloc}",
        folders=_mountable_storages(settings),
        cloud_storages=_cloud_storages(settings),
        serves_ssh=settings.ssh_port is not None and find_spec("asyncssh") is not None,
    )


def _ensure_admin(store: Store, notices: TextIO) -> None:
    password = accounts.ensure_admin(store, os.environ.get("PAICLUSTER_ADMIN_PASSWORD"))
    if password is not None:
        message = f"Created user 'admin' with password {password} (shown only once)."
        print(message, file=notices, flush=True)


def _embedded_login(store: Store, tokens: Tokens) -> EmbeddedLogin:
    """The only user of an embedded cluster, created on first start, with a token for the handshake file."""
    user = re.sub(r"[^\w.-]", "_", _account_name()) or "user"
    if store.read_sync(lambda conn: users.get_user(conn, user)) is None:
        # No password: the token is the only credential, and only this account can read it.
        store.write_sync(lambda conn: users.add_user(conn, user, NO_PASSWORD, created_ms=0, admin=True))
    rows = store.read_sync(lambda conn: users.list_tokens(conn, user, 0))
    row = next((token for token in rows if token.name == _EMBEDDED_TOKEN), None)
    if row is None:
        row = new_token_row(user, "application", name=_EMBEDDED_TOKEN)
        store.write_sync(lambda conn: users.add_token(conn, row))
    return EmbeddedLogin(user, tokens.render(row))


def _check_database_not_empty(file: Path, keys: Path) -> None:
    """A machine crash may leave an empty file; replacing it by a new database would lose every job."""
    if keys.is_dir() and file.exists() and not file.stat().st_size:
        raise StoreError(
            f"The cluster's database {file} is empty, though the cluster was used before.",
            hint="Restore it from a backup; or remove it to start with a new one.",
        )


def _check_keys(keys: Path) -> None:
    """New keys in place of lost ones would invalidate tokens and secrets without an explanation."""
    if not keys.exists():
        raise ConfigError(
            f"The folder {keys} is missing, though the cluster was used before: its keys are lost.",
            hint="Restore it from a backup; or create an empty one to continue with new keys: then every "
            "token is invalid, and the secrets of jobs cannot be decrypted.",
        )
    effects = {"tokens": "every token is invalid", "sealing": "the secrets of jobs cannot be decrypted"}
    for name, effect in effects.items():
        if not (keys / name).exists():
            log.warning("The key %s is missing; creating a new one: %s.", keys / name, effect)


def _mountable_storages(settings: Settings) -> tuple[MountableStorage, ...]:
    """The storages that can be mounted. The first is the default of a job, unless it is limited to groups."""
    # Of the cluster's own storage a task sees what its user may see: all of it on the embedded cluster,
    # elsewhere the user's home folder.
    homes = "" if settings.embedded else HOMES
    own = settings.home / "storage"
    if not settings.storages:
        return (MountableStorage(storages.OWN, own, default=True, own=True, homes=homes),)
    return tuple(
        MountableStorage(
            storage.name,
            own if storage.path is None else storage.path,
            storage.share,
            storage.read_only,
            default=number == 0 and not storage.groups,
            own=storage.kind == "own",
            homes=homes if storage.kind == "own" else "",
        )
        for number, storage in enumerate(settings.storages)
        if storage.kind == "own" or (storage.kind == "mount" and storage.path is not None)
    )


def _cloud_storages(settings: Settings) -> tuple[CloudStorage, ...]:
    """The storages of other servers. Credentials that cannot be read are an error of the settings."""
    found = []
    for number, storage in enumerate(settings.storages):
        remote = storages.remote_of(storage)
        if remote is not None:
            remote.secrets()
            found.append(
                CloudStorage(
                    storage.name,
                    remote.url,
                    remote.task_environment,
                    storage.share,
                    storage.kind,
                    remote.data_with_secrets,
                    remote.has_credentials,
                    storage.read_only,
                    mounted=storage.mount,
                    default=number == 0 and not storage.groups,
                )
            )
    return tuple(found)


def _base_environment() -> dict[str, str]:
    """Variables a task gets from its account: an allow-list, so that none of the server's leak into it."""
    environment = {name: os.environ[name] for name in _ALLOWED_VARIABLES if name in os.environ}
    home, shell = "/", "/bin/sh"
    try:
        account = pwd.getpwuid(os.getuid())
        home, shell = account.pw_dir, account.pw_shell or shell
    except KeyError:
        pass  # in a container a uid may have no account
    environment.setdefault("HOME", home)
    environment.setdefault("USER", _account_name())
    environment.setdefault("LOGNAME", environment["USER"])
    environment.setdefault("SHELL", shell)
    environment.setdefault("LANG", "C.UTF-8")
    environment["PATH"] = _DEFAULT_PATH
    return environment


def _account_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the uid has no account
        return f"user{os.getuid()}"


def _own_address() -> str:
    """The address other machines reach this one by. Connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
