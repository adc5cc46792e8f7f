"""`paicluster serve`: listen, build the cluster, serve until a shutdown signal."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import uvicorn
import uvloop

from paicluster.api.app import Gateway
from paicluster.api.app import build as build_app
from paicluster.api.middleware.connection_limits import (
    RESERVED_CONNECTIONS,
    ConnectionLimits,
    is_loopback_address,
)
from paicluster.api.middleware.forwarded_headers import ForwardedHeaders
from paicluster.api.middleware.slow_clients import LimitedHttpProtocol, SlowClientReaper, raise_fd_limit
from paicluster.config.cluster_file import is_loopback
from paicluster.config.settings import Settings
from paicluster.controller.reconciler import Controller
from paicluster.engines.process.local_node import process_identity
from paicluster.server import shutdown_signals, task_accounts
from paicluster.server.assembly import HANDSHAKE, Cluster, build
from paicluster.server.home_lock import lock_home
from paicluster.server.launch_settings import warn_exchangeable_folders
from paicluster.store import users
from paiprotocol._version import __version__
from paiprotocol.errors import ConfigError

log = logging.getLogger("paicluster")

LAST_PORT = "last-port"
"""File in the home with the port of the last server."""
_LOCK_TIMEOUT_S = 1.0


def run(settings: Settings) -> int:
    shutdown_signals.defer()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for verbose in ("alembic", "uvicorn"):
        logging.getLogger(verbose).setLevel(logging.WARNING)
    home = settings.home
    # New files are private unless opened to others explicitly.
    os.umask(0o077)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"The home {home} cannot be created: {error.strerror}.") from error
    with lock_home(home, timeout_s=_LOCK_TIMEOUT_S):
        listener = _listen(settings)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_Server(settings, listener).run())
        except OSError as error:
            # A full disk, a lost mount, a limit of the account: a traceback would explain nothing more.
            where = f" ({error.filename})" if error.filename else ""
            raise ConfigError(
                f"The cluster cannot work in {home}: {error.strerror or error}{where}."
            ) from error
    return 0


def _listen(settings: Settings) -> socket.socket:
    if not is_loopback(settings.host) and not settings.tls_cert and not settings.allow_plain_http:
        raise ConfigError(
            f"Listening on {settings.host} without TLS would send passwords in the clear.",
            hint="Set --tls-cert and --tls-key, or --allow-plain-http if a proxy in front terminates TLS.",
        )
    if settings.tls_cert:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"The certificate {settings.tls_cert} with the key {settings.tls_key} cannot be used: "
                f"{error.strerror or error}.",
                hint="Both must be PEM files, and the key must belong to the certificate.",
            ) from None
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        _bind(listener, settings)
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on {settings.host}:{settings.port}: {error.strerror}.",
            hint="Choose another --port; 0 selects a free one.",
        ) from error
    return listener


def _bind(listener: socket.socket, settings: Settings) -> None:
    """Bind to the port; if any will do, to that of the last server: tasks that outlived it know no other."""
    last_port = settings.home / LAST_PORT
    if settings.port == 0:
        try:
            listener.bind((settings.host, int(last_port.read_text())))
        except (OSError, ValueError, OverflowError):  # no last server, or another program has its port
            pass
        else:
            return
    listener.bind((settings.host, settings.port))
    try:
        last_port.write_text(str(listener.getsockname()[1]))
    except OSError as error:  # a full disk: the server works without it
        log.debug("%s cannot be written: %s", last_port, error.strerror)


class _Server:
    """HTTP server of one cluster, from building it to closing it."""

    def __init__(self, settings: Settings, listener: socket.socket):
        self._settings = settings
        self._listener = listener

    async def run(self) -> None:
        settings, home = self._settings, self._settings.home
        handshake = home / HANDSHAKE
        cluster = build(settings, self._listener.getsockname()[1], notices=sys.stdout)
        try:
            if cluster.is_new and not settings.embedded:
                print(f"This is a new cluster, in {home}.", flush=True)
            task_accounts.check(settings, cluster.store.read_sync(users.count_users))
            task_accounts.warn_missing_accounts(
                settings, [user.username for user in cluster.store.read_sync(users.list_users)]
            )
            warn_exchangeable_folders(settings)
            await cluster.start()
            await self._serve(cluster, handshake)
        finally:
            handshake.unlink(missing_ok=True)
            await cluster.close()

    async def _serve(self, cluster: Cluster, handshake: Path) -> None:
        settings = self._settings
        gateway = build_app(cluster.context)
        # The command disabled it for the start; what exists now is never garbage.
        gc.freeze()
        gc.enable()
        app: Any = gateway
        proxies: Container[str] = ()
        if settings.trusted_proxies:
            app = ForwardedHeaders(app, list(settings.trusted_proxies))
            proxies = app.trusted_hosts
        # The limit of files is raised only when the processes that start tasks exist: tasks keep theirs.
        limits = ConnectionLimits(
            raise_fd_limit() - RESERVED_CONNECTIONS,
            settings.limits.connections_per_address,
            lambda address: is_loopback_address(address) or address in proxies,
        )
        http: Any = partial(LimitedHttpProtocol, limits=limits)
        config = uvicorn.Config(
            app,
            http=http,
            ws="none",
            lifespan="off",
            access_log=False,
            proxy_headers=False,
            log_config=None,
            date_header=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            # Clients may present a certificate, and need not.
            ssl_ca_certs=str(cluster.context.identity.certificates.ca_file()) if settings.tls_cert else None,
            ssl_cert_reqs=ssl.CERT_OPTIONAL if settings.tls_cert else ssl.CERT_NONE,
        )
        loop = asyncio.get_running_loop()
        checks: list[asyncio.Task[None]] = []

        def on_ready() -> None:
            _write_handshake(handshake, cluster)
            if settings.tls_cert:
                checks.append(loop.create_task(self._check_certificate_name(cluster.urls.external)))

        server = _Uvicorn(config, on_ready, cluster.context.close_streams)
        reaper = SlowClientReaper(
            server.server_state.connections,
            settings.limits.slow_client_s,
            cluster.context.server.policies.response_budget,
        )
        idle = None
        if settings.idle_exit_s is not None:
            idle = asyncio.create_task(
                _stop_when_idle(server, gateway, cluster.controller, settings.idle_exit_s)
            )
        await server.serve(sockets=[self._listener])
        reaper.close()
        for task in (*checks, *([idle] if idle is not None else ())):
            task.cancel()

    async def _check_certificate_name(self, external_url: str) -> None:
        """Warn when the certificate is not valid for the address that tasks use: they could not connect."""
        trust = ssl.create_default_context(cadata=self._settings.ca_certificates())
        trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._settings.host, self._settings.host)
        port = self._listener.getsockname()[1]
        name = urlsplit(external_url).hostname
        try:
            _, writer = await asyncio.open_connection(host, port, ssl=trust, server_hostname=name)
            writer.close()
        except ssl.SSLCertVerificationError as error:
            log.warning(
                "Tasks connect to this server at %s, for which its certificate is not valid (%s): "
                "set external-url to an address in the certificate.",
                external_url,
                error.verify_message,
            )
        except OSError as error:
            log.warning("The server's own certificate could not be checked: %s", error)


def _write_handshake(handshake: Path, cluster: Cluster) -> None:
    """Write the handshake file under a temporary name and rename it, so that readers never see a part."""
    content = {
        "url": cluster.urls.listen,
        "certificate": cluster.settings.tls_cert,
        **process_identity(),
        "version": __version__,
        "user": cluster.login.user,
        "token": cluster.login.token,
    }
    temporary = handshake.with_suffix(".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as f:
        json.dump(content, f)
    temporary.rename(handshake)
    log.info("ready at %s", cluster.urls.listen)


class _Uvicorn(uvicorn.Server):
    """uvicorn that waits for the shutdown event instead of polling a flag ten times a second."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None], on_stop: Callable[[], None]):
        super().__init__(config)
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._stop_requested = asyncio.Event()
        self._own_loop = asyncio.get_running_loop()

    async def main_loop(self) -> None:
        shutdown_signals.on_shutdown(self.stop)
        if not shutdown_signals.requested():
            self._on_ready()
            await self._stop_requested.wait()
        shutdown_signals.on_shutdown(None)
        # Followers would stay as long as their jobs run; other requests get a moment to complete.
        self._on_stop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.stop()

    def stop(self) -> None:
        self.should_exit = True
        self._own_loop.call_soon_threadsafe(self._stop_requested.set)


async def _stop_when_idle(
    server: _Uvicorn, gateway: Gateway, controller: Controller, idle_exit_s: float
) -> None:
    """Stop an embedded cluster after this long without requests or jobs; the next command starts it."""
    while True:
        last = max(gateway.last_request, controller.idle_since)
        idle_s = time.monotonic() - last
        if idle_s >= idle_exit_s and not controller.busy and not gateway.open_requests:
            log.info("Idle for %.0f s: shutting down", idle_s)
            server.stop()
            return
        await asyncio.sleep(max(0.1, min(idle_exit_s - idle_s, 60.0)) if idle_s < idle_exit_s else 1.0)
