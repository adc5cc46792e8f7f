"""API access of the administrator's commands, whether a server runs or not.

A running server is called over HTTP, with a token issued from the keys in the home. Otherwise the home is
locked, as a server would lock it, and the same API is called in this process. Both need read access to the
home, which makes the caller its administrator.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, unquote, urlsplit

from paicluster.auth.local_admin import issue_local_admin_token
from paicluster.config import cluster_file
from paicluster.config.settings import Settings
from paicluster.server.home_lock import HomeInUse, lock_home
from paiprotocol.errors import ConfigError, ConnectionFailed, PaiError

if TYPE_CHECKING:
    from paicluster.server.assembly import Cluster

ADMIN = "admin"
_REQUEST_TIMEOUT_S = 60
_LOOPBACK_OF_WILDCARD = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class AdminApi(Protocol):
    """The API of one cluster. An error response is raised as the PaiError it describes.

    ``as_user``: act as this user, for routes that show only the caller's own objects.
    """

    # The only user of an embedded cluster; empty on other clusters.
    owner: str
    # From the cluster's file and the options of this command.
    settings: Settings

    def request(self, method: str, path: str, body: Any = None, *, as_user: str = ADMIN) -> Any: ...


def home_option(parser: argparse.ArgumentParser, default: Any = None) -> None:
    parser.add_argument("--home", metavar="DIR", help="the cluster's home", default=default)
    parser.add_argument(
        "--config", metavar="FILE", help="the cluster's file, if it is not in the home", default=default
    )


def path(*parts: str) -> str:
    """A path of the API; the parts are quoted."""
    return "/api/v2/" + "/".join(quote(part, safe="") for part in parts)


@contextmanager
def connect(arguments: argparse.Namespace) -> Iterator[AdminApi]:
    """The API of the cluster that the options name."""
    fields = cluster_file.of_options(arguments.home, arguments.config)
    settings = cluster_file.settings_of(fields).check()
    home = settings.home
    if not home.is_dir():
        raise ConfigError(f"There is no cluster in {home}.", hint="`paicluster init` creates one.")
    try:
        lock = lock_home(home)
    except HomeInUse:
        yield HttpAdminApi(_handshake(home), settings)
        return
    with lock:
        api = InProcessAdminApi(settings)
        try:
            yield api
        finally:
            api.close()


def _handshake(home: Path) -> dict[str, Any]:
    """The handshake file of the server that runs on this home."""
    try:
        handshake: dict[str, Any] = json.loads((home / "server.json").read_text())
    except FileNotFoundError:
        raise ConfigError(
            f"The server of {home} is starting or stopping.", hint="Try again in a moment."
        ) from None
    except OSError as error:
        raise ConfigError(f"The cluster in {home} cannot be used: {error.strerror}.") from error
    return handshake


def _result(status: int, data: bytes) -> Any:
    """The content of a response; an error response is raised."""
    try:
        content = json.loads(data) if data else None
    except ValueError:
        content = {"message": data.decode(errors="replace").strip()}
    if 200 <= status < 300:
        return content
    if not isinstance(content, dict) or "message" not in content:
        raise ConnectionFailed(f"The cluster answered with status {status} and no message.")
    raise PaiError(content["message"], code=content.get("code"), status=status, hint=content.get("hint", ""))


class HttpAdminApi:
    """The API of a running server."""

    def __init__(self, handshake: dict[str, Any], settings: Settings):
        self.settings = settings
        self.owner = str(handshake.get("user") or "")
        self._url = urlsplit(handshake["url"])
        self._certificate = handshake.get("certificate")
        self._keys = settings.home / "keys"

    def request(self, method: str, path: str, body: Any = None, *, as_user: str = ADMIN) -> Any:
        token = issue_local_admin_token(self._keys, as_user)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection = self._connect()
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return _result(response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionFailed(
                f"The server at {self._url.geturl()} did not answer: {error}.", hint="See the server's log."
            ) from error
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        host = _LOOPBACK_OF_WILDCARD.get(self._url.hostname or "", self._url.hostname or "")
        if self._url.scheme != "https":
            return http.client.HTTPConnection(host, self._url.port, timeout=_REQUEST_TIMEOUT_S)
        # The handshake names the certificate to trust; the host name in it does not matter here.
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust.check_hostname = False
        trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        trust.load_verify_locations(self._certificate)
        return http.client.HTTPSConnection(host, self._url.port, timeout=_REQUEST_TIMEOUT_S, context=trust)


class InProcessAdminApi:
    """The API in this process; the cluster is built on the first request."""

    owner = ""

    def __init__(self, settings: Settings):
        self.settings = settings
        self._runner = asyncio.Runner()
        self._cluster: Cluster | None = None
        self._app: Callable[..., Any] | None = None

    def request(self, method: str, path: str, body: Any = None, *, as_user: str = ADMIN) -> Any:
        return _result(*self._runner.run(self._request(as_user, method, path, body)))

    def close(self) -> None:
        if self._cluster is not None:
            self._runner.run(self._cluster.close())
        self._runner.close()

    async def _request(self, as_user: str, method: str, path: str, body: Any) -> tuple[int, bytes]:
        if self._app is None:
            from paicluster.api.app import build as build_app
            from paicluster.server.assembly import build

            logging.getLogger("alembic").setLevel(logging.WARNING)
            self._cluster = build(self.settings)
            self._app = build_app(self._cluster.context)
        # After the cluster is built, which creates the keys of a new home.
        token = issue_local_admin_token(self.settings.home / "keys", as_user)
        return await _call(self._app, token, method, path, body)


async def _call(app: Callable[..., Any], token: str, method: str, path: str, body: Any) -> tuple[int, bytes]:
    """One ASGI request."""
    data = b"" if body is None else json.dumps(body).encode()
    where, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(where),
        "raw_path": where.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [
            (b"host", b"localhost"),
            (b"authorization", f"Bearer {token}".encode()),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(data)).encode()),
        ],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 0),
    }
    status, parts = 500, []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, b"".join(parts)
