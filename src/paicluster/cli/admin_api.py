"""How the administrator's commands reach a cluster: through its API, whether a server runs or not.

A running server is asked over the network, with a token made from the keys in the home. Otherwise the home is
locked, as a server would lock it, and the same API is called right here. Whoever can do either can read the
home, and is its administrator.
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
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlsplit

from openpaisdk.errors import ConfigError, ConnectionFailed, PaiError
from paicluster.auth.keyholder import issue_local_admin_token
from paicluster.config import cluster_file as cluster_file
from paicluster.config.settings import Settings
from paicluster.server.home_lock import HomeInUse, lock_home

ADMIN = "admin"
_REQUEST_TIMEOUT_S = 60
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class AdminApi(Protocol):
    """Where requests go. A refusal comes back as the PaiError that the API gave.

    ``of``: on behalf of this user, for what everybody may ask only of himself.
    """

    # Whose machine this is, where the cluster is one person's.
    owner: str
    # As the cluster's file and the options of this command have them.
    settings: Settings

    def request(self, method: str, path: str, body: Any = None, *, of: str = ADMIN) -> Any: ...


def home_option(parser: argparse.ArgumentParser, default: Any = None) -> None:
    parser.add_argument("--home", metavar="DIR", help="the cluster's home", default=default)
    parser.add_argument(
        "--config", metavar="FILE", help="the cluster's file, if it is not in the home", default=default
    )


def path(*parts: str) -> str:
    """A path of the API, with names that may hold anything."""
    return "/api/v2/" + "/".join(quote(part, safe="") for part in parts)


@contextmanager
def office(arguments: argparse.Namespace) -> Iterator[AdminApi]:
    """The office of the cluster that the options name."""
    fields = cluster_file.of_options(arguments.home, arguments.config)
    settings = cluster_file.settings_of(fields).check()
    home = settings.home
    if not home.is_dir():
        raise ConfigError(f"There is no cluster in {home}.", hint="`paicluster init` begins one.")
    try:
        lock = lock_home(home)
    except HomeInUse:
        yield HttpAdminApi(_handshake(home), settings)
        return
    with lock:
        here = InProcessAdminApi(settings)
        try:
            yield here
        finally:
            here.close()


def _handshake(home: Path) -> dict[str, Any]:
    """What the server that runs on this home says of itself."""
    try:
        said: dict[str, Any] = json.loads((home / "server.json").read_text())
    except FileNotFoundError:
        raise ConfigError(
            f"The server of {home} is starting or stopping.", hint="Try again in a moment."
        ) from None
    except OSError as error:
        raise ConfigError(f"The cluster in {home} cannot be used: {error.strerror}.") from error
    return said


def _result(status: int, data: bytes) -> Any:
    """What an answer holds, or the refusal it is."""
    try:
        said = json.loads(data) if data else None
    except ValueError:
        said = {"message": data.decode(errors="replace").strip()}
    if 200 <= status < 300:
        return said
    if not isinstance(said, dict) or "message" not in said:
        raise ConnectionFailed(f"The cluster answered with status {status} and no reason.")
    raise PaiError(said["message"], code=said.get("code"), status=status, hint=said.get("hint", ""))


class HttpAdminApi:
    def __init__(self, said: dict[str, Any], settings: Settings):
        self.settings = settings
        self.owner = str(said.get("user") or "")
        self._url = urlsplit(said["url"])
        self._certificate = said.get("certificate")
        self._keys = settings.home / "keys"

    def request(self, method: str, path: str, body: Any = None, *, of: str = ADMIN) -> Any:
        token = issue_local_admin_token(self._keys, of)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection = self._connect()
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return _result(answer.status, answer.read())
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionFailed(
                f"The server at {self._url.geturl()} did not answer: {error}.", hint="Its log may say why."
            ) from error
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        host = _EVERYWHERE.get(self._url.hostname or "", self._url.hostname or "")
        if self._url.scheme != "https":
            return http.client.HTTPConnection(host, self._url.port, timeout=_REQUEST_TIMEOUT_S)
        # The home says which certificate is the right one; which name it was made for does not matter here.
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust.check_hostname = False
        trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        trust.load_verify_locations(self._certificate)
        return http.client.HTTPSConnection(host, self._url.port, timeout=_REQUEST_TIMEOUT_S, context=trust)


class InProcessAdminApi:
    """The API in this process, opened when it is first asked."""

    owner = ""

    def __init__(self, settings: Settings):
        self.settings = settings
        self._runner = asyncio.Runner()
        self._door: asyncio.Future[Any] | None = None
        self._done = asyncio.Event()
        self._open: asyncio.Task[None] | None = None

    def request(self, method: str, path: str, body: Any = None, *, of: str = ADMIN) -> Any:
        return _result(*self._runner.run(self._ask(of, method, path, body)))

    def close(self) -> None:
        if self._open is not None:
            self._runner.run(self._close(self._open))
        self._runner.close()

    async def _ask(self, of: str, method: str, path: str, body: Any) -> tuple[int, bytes]:
        if self._door is None:
            from paicluster.server import serve

            logging.getLogger("alembic").setLevel(logging.WARNING)
            self._door = door = asyncio.get_running_loop().create_future()

            async def keep_open(opened: Any) -> None:
                door.set_result(opened)
                await self._done.wait()

            self._open = asyncio.create_task(serve.open_admin_api(self.settings, keep_open))
            await asyncio.wait((self._open, door), return_when=asyncio.FIRST_COMPLETED)
            if not door.done():
                opening, self._open = self._open, None
                await opening
        opened = await self._door
        # Only now: the first opening of a home makes its keys.
        token = issue_local_admin_token(self.settings.home / "keys", of)
        return await _call(opened, token, method, path, body)

    async def _close(self, opened: asyncio.Task[None]) -> None:
        self._done.set()
        await opened


async def _call(door: Callable[..., Any], token: str, method: str, path: str, body: Any) -> tuple[int, bytes]:
    """One request, as a server would hand it over."""
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

    await door(scope, receive, send)
    return status, b"".join(parts)
