"""`paicluster serve`: put the parts together, run until told to stop."""

from __future__ import annotations

import asyncio
import getpass
import json
import logging
import os
import pwd
import re
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TextIO
from urllib.parse import urlsplit

import uvicorn
import uvloop

from openpaisdk._version import __version__
from openpaisdk.errors import ConfigError, StoreError
from paicluster.api.app import Gateway, build
from paicluster.api.context import Context
from paicluster.api.middleware.policies import HttpPolicies
from paicluster.api.middleware.slow_clients import LimitedHttpProtocol, SlowClientReaper, raise_fd_limit
from paicluster.auth import users as accounts
from paicluster.auth.local_admin import TokensWithLocalAdmin
from paicluster.auth.sealing import Sealer
from paicluster.auth.tickets import Tickets
from paicluster.auth.tokens import Tokens, new_token_row
from paicluster.config.cluster_file import is_loopback
from paicluster.config.settings import Settings, shares
from paicluster.controller.launch_spec import LaunchSettings
from paicluster.controller.reconciler import Controller, total_resources
from paicluster.controller.retention import RetentionPolicy, RetentionSweeper
from paicluster.controller.stop_journal import StopJournal
from paicluster.controller.storage_mounts import MountableStorage
from paicluster.engines.interface import Node
from paicluster.engines.process.local_node import detect_node, process_identity
from paicluster.files.ownership import HOMES
from paicluster.logs.log_watcher import LogWatcher
from paicluster.server import shutdown_signals, task_accounts
from paicluster.server.engine_factory import build_engines, external_shares, scheduled_shares
from paicluster.server.home_lock import lock_home
from paicluster.services import storages
from paicluster.services.file_service import open_files
from paicluster.services.virtual_clusters import VirtualClusters
from paicluster.store import Store, users

log = logging.getLogger("paicluster")

_ALLOWED_VARIABLES = ("HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_EMBEDDED_TOKEN = "embedded"


def run(settings: Settings) -> int:
    shutdown_signals.defer()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("alembic", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    home = settings.home
    # Whatever is not opened to others on purpose is closed to them.
    os.umask(0o077)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"The home {home} cannot be made: {error.strerror}.") from error
    with lock_home(home):
        listener = _listen(settings)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_Server(settings, listener).run())
        except OSError as error:
            # A full disk, a lost mount, a limit of the account: nothing a traceback would explain better.
            where = f" ({error.filename})" if error.filename else ""
            raise ConfigError(
                f"The cluster cannot work in {home}: {error.strerror or error}{where}."
            ) from error
    return 0


def _listen(settings: Settings) -> socket.socket:
    if not is_loopback(settings.host) and not settings.tls_cert and not settings.allow_plain_http:
        raise ConfigError(
            f"Listening on {settings.host} without TLS would send passwords in the clear.",
            hint="Give --tls-cert and --tls-key, or say --allow-plain-http if something in front does TLS.",
        )
    if settings.tls_cert:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"The certificate {settings.tls_cert} with the key {settings.tls_key} cannot be used: "
                f"{error.strerror or error}.",
                hint="Both must be PEM files, and the key must be that of the certificate.",
            ) from None
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on {settings.host}:{settings.port}: {error.strerror}.",
            hint="Choose another --port; 0 takes a free one.",
        ) from error
    return listener


async def open_admin_api(settings: Settings, work: Callable[[Gateway], Awaitable[None]]) -> None:
    """The whole API for the administrator's own commands, while no server runs; the caller has the lock."""
    with socket.socket() as nobody:
        await _Server(settings, nobody).run(work)


class _Server:
    def __init__(self, settings: Settings, listener: socket.socket):
        self._settings = settings
        self._listener = listener
        port = listener.getsockname()[1]
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self._authority = f"{host}:{port}"
        self._url = f"{'https' if settings.tls_cert else 'http'}://{self._authority}"
        # What people and tasks are told.
        self._external_url = settings.external_url or self._url
        if settings.external_url is None and settings.host in ("0.0.0.0", "::"):
            self._external_url = self._url.replace(host, _own_address(), 1)

    async def run(self, office: Callable[[Gateway], Awaitable[None]] | None = None) -> None:
        """Until told to stop; with an ``office`` nothing is started, and only that is opened to it."""
        settings, home = self._settings, self._settings.home
        handshake = home / "server.json"
        handshake.unlink(missing_ok=True)
        # Before any thread is there: finding out how trees are held here forks once.
        node = detect_node(
            ip="127.0.0.1" if is_loopback(settings.host) else _own_address(),
            cpu=settings.cpus,
            memory_mb=settings.memory_mb,
            gpus=settings.gpus,
        )
        engines = build_engines(settings, node, lambda: store.read_inline(users.count_users))
        given = scheduled_shares(settings, engines)
        shares(total_resources(engines.scheduled_nodes()), given)
        keys = home / "keys"
        _refuse_lost_database(settings.database_file, keys)
        store = Store.open(settings.database_file)
        if store.read_sync(users.any_given):
            _look_for_keys(keys)
        tokens = TokensWithLocalAdmin.open(store, keys, settings.authentication.session_s)
        sealer = Sealer.from_key_files(keys)
        new = not store.read_sync(users.count_users)
        user, token = self._first_user(store, tokens, sys.stdout if office is None else sys.stderr)
        if new and office is None and not settings.embedded:
            print(f"This is a new cluster, in {home}.", flush=True)
        if office is None:
            task_accounts.check(settings, store.read_sync(users.count_users))
            task_accounts.warn_missing_accounts(
                settings, [one.username for one in store.read_sync(users.list_users)]
            )
        growth = LogWatcher()
        sources = home / "sources"
        launching = LaunchSettings(
            base_environment=_base_environment(),
            rest_server_uri=self._external_url,
            sources=sources,
            keep_submitted_environment=settings.embedded,
            unseal=sealer.unseal,
            job_token=tokens.of_job,
            default_fs_uri=f"hdfs://{urlsplit(self._external_url).netloc}",
            folders=_folders(settings),
        )
        clusters = VirtualClusters(store, lambda: total_resources(engines.scheduled_nodes()), given)
        controller = Controller(
            store,
            engines,
            launching,
            shares=clusters.shares,
            limits=clusters.limits,
            grace_s=settings.grace_s,
            unwritten=StopJournal(home / "stops"),
        )
        clusters.on_change(controller.requeue_unschedulable)

        async def nodes() -> Sequence[Node]:
            await engines.refresh_nodes()
            clusters.resize(external_shares(settings, engines))
            return engines.nodes()

        files = open_files(settings, self._external_url)
        listed = storages.of_settings(settings.storages, self._external_url)
        context = Context(
            store=store,
            tokens=tokens,
            tickets=Tickets.open(keys),
            sealer=sealer,
            logs=engines,
            log_watcher=growth,
            nodes=nodes,
            runs_images=engines.runs_images,
            reports_of=engines.report_sink,
            virtual_clusters=clusters,
            files=files,
            storages=lambda: listed,
            anonymous_v1_reads=settings.authentication.anonymous_v1_reads,
            remove_job=lambda job_id: housekeeping.remove_job(job_id),
            controller_age=controller.pass_age,
            degraded_reason=controller.degraded_reason,
            quarantined_jobs=controller.quarantined,
            unwritten_stops=controller.unwritten_stops,
            stop_now=controller.stop_without_store,
            sources=sources,
            version=f"v{__version__}",
            authority=lambda: urlsplit(self._external_url).netloc,
            external_url=settings.external_url,
            policies=HttpPolicies.open(settings),
        )
        keep = RetentionPolicy(settings.keep_days, settings.keep_jobs, settings.keep_mb)
        housekeeping = RetentionSweeper(
            store,
            engines,
            keep,
            sources,
            first_after_s=settings.clean_after_s,
            on_remove=context.source_checkouts.forget,
        )
        if office is not None:
            try:
                await office(build(context))
            finally:
                context.policies.close()
                files.close()
                growth.close()
                store.close()
            return
        await context.source_checkouts.resume()
        await controller.start()
        clusters.set_external(external_shares(settings, engines))
        housekeeping.start()
        try:
            await self._serve(context, controller, lambda: self._announce(handshake, user, token))
        finally:
            handshake.unlink(missing_ok=True)
            await housekeeping.close()
            await context.source_checkouts.close()
            await controller.close()
            context.policies.close()
            files.close()
            growth.close()
            store.close()

    async def _serve(self, context: Context, controller: Controller, announce: Callable[[], None]) -> None:
        settings = self._settings
        door = build(context)
        config = uvicorn.Config(
            door,
            http=LimitedHttpProtocol,
            ws="none",
            lifespan="off",
            access_log=False,
            # Only now, when what starts tasks is there: they have the limit that we were given.
            limit_concurrency=raise_fd_limit(),
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
            log_config=None,
            date_header=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )
        loop = asyncio.get_running_loop()
        wondering: list[asyncio.Task[None]] = []

        def ready() -> None:
            announce()
            if settings.tls_cert:
                wondering.append(loop.create_task(self._check_certificate_name()))

        server = _Uvicorn(config, ready, context.close_streams)
        patience = SlowClientReaper(server.server_state.connections, settings.limits.slow_client_s)
        idle = None
        if settings.idle_exit_s is not None:
            idle = asyncio.create_task(_leave_when_idle(server, door, controller, settings.idle_exit_s))
        await server.serve(sockets=[self._listener])
        patience.close()
        for task in (*wondering, *([idle] if idle is not None else ())):
            task.cancel()

    async def _check_certificate_name(self) -> None:
        """Whether our certificate is one for the address that tasks are told: else none would come to us."""
        trust = ssl.create_default_context(cadata=self._settings.authority())
        trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._settings.host, self._settings.host)
        port = self._listener.getsockname()[1]
        name = urlsplit(self._external_url).hostname
        try:
            _, writer = await asyncio.open_connection(here, port, ssl=trust, server_hostname=name)
            writer.close()
        except ssl.SSLCertVerificationError as error:
            log.warning(
                "Tasks reach this server at %s, for which its certificate does not hold (%s): "
                "set external-url to an address that it was made for.",
                self._external_url,
                error.verify_message,
            )
        except OSError as error:
            log.warning("Our own certificate could not be tried: %s", error)

    def _first_user(self, store: Store, tokens: Tokens, tell: TextIO) -> tuple[str, str]:
        """Who may log in. The embedded cluster knows one person, whose token is in the handshake file."""
        if not self._settings.embedded:
            password = accounts.ensure_admin(store, os.environ.get("PAICLUSTER_ADMIN_PASSWORD"))
            if password is not None:
                said = f"The user 'admin' was made with the password {password} (shown only now)."
                print(said, file=tell, flush=True)
            return "", ""
        user = re.sub(r"[^\w.-]", "_", _own_name()) or "user"
        if store.read_sync(lambda conn: users.get_user(conn, user)) is None:
            # No password: the token is the only way in, and it is readable by this account alone.
            store.write_sync(lambda conn: users.add_user(conn, user, "!", created_ms=0, admin=True))
        held = store.read_sync(lambda conn: users.list_tokens(conn, user, 0))
        row = next((token for token in held if token.name == _EMBEDDED_TOKEN), None)
        if row is None:
            row = new_token_row(user, "application", name=_EMBEDDED_TOKEN)
            store.write_sync(lambda conn: users.add_token(conn, row))
        return user, tokens.render(row)

    def _announce(self, handshake: Path, user: str, token: str) -> None:
        """The handshake: written aside and renamed, so that whoever sees it sees it whole."""
        what = {
            "url": self._url,
            "certificate": self._settings.tls_cert,
            **process_identity(),
            "version": __version__,
            "user": user,
            "token": token,
        }
        aside = handshake.with_suffix(".aside")
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as f:
            json.dump(what, f)
        aside.rename(handshake)
        log.info("ready at %s", self._url)


class _Uvicorn(uvicorn.Server):
    """uvicorn that waits for the signal to stop instead of looking for it ten times a second."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None], on_stop: Callable[[], None]):
        super().__init__(config)
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._stop_asked = asyncio.Event()
        self._own_loop = asyncio.get_running_loop()

    async def main_loop(self) -> None:
        shutdown_signals.on_shutdown(self.stop)
        if not shutdown_signals.requested():
            self._on_ready()
            await self._stop_asked.wait()
        shutdown_signals.on_shutdown(None)
        # Followers would stay for as long as their jobs; what else is being answered gets its moment.
        self._on_stop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.stop()

    def stop(self) -> None:
        self.should_exit = True
        self._own_loop.call_soon_threadsafe(self._stop_asked.set)


async def _leave_when_idle(server: _Uvicorn, door: Gateway, controller: Controller, after_s: float) -> None:
    """An embedded cluster nobody has used for so long leaves by itself; the next command starts it."""
    while True:
        last = max(door.last_request, controller.idle_since)
        quiet = time.monotonic() - last
        if quiet >= after_s and not controller.busy and not door.open_requests:
            log.info("nobody needed this cluster for %.0f s: leaving", quiet)
            server.stop()
            return
        await asyncio.sleep(max(0.1, min(after_s - quiet, 60.0)) if quiet < after_s else 1.0)


def _refuse_lost_database(file: Path, keys: Path) -> None:
    """A crash of the machine may leave it empty, and a fresh one in its place would forget every job."""
    if keys.is_dir() and file.exists() and not file.stat().st_size:
        raise StoreError(
            f"The cluster's database {file} is empty, though the cluster was used before.",
            hint="Put a backup in its place; or remove it, to begin with a new one.",
        )


def _look_for_keys(keys: Path) -> None:
    """New keys in the place of lost ones would close what the old ones opened, and nobody would know why."""
    if not keys.exists():
        raise ConfigError(
            f"There is no folder {keys}, though the cluster was used before: its keys are lost.",
            hint="Put it back from a backup; or make an empty one, to go on with new keys: then every token "
            "is void, and the secrets of jobs cannot be opened.",
        )
    lost = {"tokens": "every token is void", "sealing": "the secrets of jobs cannot be opened"}
    for name, therefore in lost.items():
        if not (keys / name).exists():
            log.warning("There is no key %s, so a new one is made: %s.", keys / name, therefore)


def _folders(settings: Settings) -> tuple[MountableStorage, ...]:
    """The storages that can be mounted. The first is for whoever names none, if it is everybody's."""
    # Of the cluster's own storage everybody sees what the storage would show him anyway: all of it on a
    # person's own machine, else his home.
    homes = "" if settings.embedded else HOMES
    own = settings.home / "storage"
    if not settings.storages:
        return (MountableStorage(storages.OWN, own, usual=True, own=True, homes=homes),)
    return tuple(
        MountableStorage(
            one.name,
            own if one.path is None else one.path,
            one.share,
            one.read_only,
            usual=place == 0 and not one.groups,
            own=one.kind == "own",
            homes=homes if one.kind == "own" else "",
        )
        for place, one in enumerate(settings.storages)
        if one.kind == "own" or (one.kind == "mount" and one.path is not None)
    )


def _base_environment() -> dict[str, str]:
    """What a task has from its account: an allow-list, so that nothing of the server's leaks into it."""
    found = {name: os.environ[name] for name in _ALLOWED_VARIABLES if name in os.environ}
    home, shell = "/", "/bin/sh"
    try:
        account = pwd.getpwuid(os.getuid())
        home, shell = account.pw_dir, account.pw_shell or shell
    except KeyError:
        pass  # in a container an account may be a number alone
    found.setdefault("HOME", home)
    found.setdefault("USER", _own_name())
    found.setdefault("LOGNAME", found["USER"])
    found.setdefault("SHELL", shell)
    found.setdefault("LANG", "C.UTF-8")
    found["PATH"] = _DEFAULT_PATH
    return found


def _own_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # it has none
        return f"user{os.getuid()}"


def _own_address() -> str:
    """The address other machines reach this one by. Connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
