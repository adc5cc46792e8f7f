"""Connections over TLS or through a proxy, built on ``http.client``."""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from openpaisdk.client.address import Address, parse_uri
from openpaisdk.client.http1 import (
    CHUNK_BYTES,
    Body,
    ConnectTimeout,
    HttpProtocolError,
    detect_dead_peer,
    shut_down,
)
from openpaisdk.errors import PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl

TLS_PROBE_TIMEOUT_S = 3.0


class HttpClientResponse:
    __slots__ = ("headers", "response", "status")

    def __init__(self, response: http.client.HTTPResponse):
        self.response = response
        self.status = response.status
        self.headers = {k.lower(): v for k, v in response.getheaders()}

    def read(self) -> bytes:
        with _protocol_errors():
            return self.response.read()

    def read_some(self) -> bytes:
        with _protocol_errors():
            return self.response.read1(CHUNK_BYTES)

    def read_into(self, buffer: memoryview) -> int:
        filled = 0
        with _protocol_errors():
            while filled < len(buffer) and (got := self.response.readinto(buffer[filled:])):
                filled += got
        return filled


@contextmanager
def _protocol_errors() -> Iterator[None]:
    try:
        yield
    except http.client.HTTPException as e:
        raise HttpProtocolError(
            f"the connection was closed in the middle of a response ({type(e).__name__})"
        ) from None


class HttpClientConnection:
    """HTTPS, and HTTP or HTTPS through a proxy."""

    def __init__(
        self,
        address: Address,
        proxy: str,
        connect_timeout: float,
        verify: bool,
        authority_file: str,
        certificate: tuple[str, str] | None = None,
    ):
        self.prefix = ""
        self.connect_timeout = connect_timeout
        self.is_interrupted = False
        self.proxy_headers: dict[str, str] = {}
        proxy_address = _proxy_address(proxy) if proxy else None
        host, port = (
            (proxy_address.host, proxy_address.port) if proxy_address else (address.host, address.port)
        )
        if address.is_secure:
            self.http: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=connect_timeout, context=_tls_context(verify, authority_file, certificate)
            )
            if proxy_address:
                self.http.set_tunnel(address.host, address.port, headers=_proxy_credentials(proxy))
        else:
            self.http = http.client.HTTPConnection(host, port, timeout=connect_timeout)
            if proxy_address:
                self.prefix = f"{address.scheme}://{address.authority}"
                self.proxy_headers = _proxy_credentials(proxy)
        self.last: HttpClientResponse | None = None

    @property
    def is_open(self) -> bool:
        return self.http.sock is not None

    def request(
        self, method: str, target: str, headers: dict[str, str], body: bytes | Body | None, timeout: float
    ) -> HttpClientResponse:
        if self.last is not None and not self.last.response.isclosed():
            self.close()
        content: object = body
        sent = {**headers, **self.proxy_headers}
        if isinstance(body, Body):
            sent["Content-Length"] = str(body.size)
            content = body.chunks()
        elif body is not None:
            # In pieces: the timeout then limits the time without progress, as in ``http1.send_all``.
            sent["Content-Length"] = str(len(body))
            content = (body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES))
        try:
            if self.http.sock is None:
                self._connect()
            if self.is_interrupted:
                shut_down(self.http.sock)
            self.http.sock.settimeout(timeout)
            self.http.request(method, self.prefix + target, content, sent)  # type: ignore[arg-type]
            self.last = HttpClientResponse(self.http.getresponse())
        except OSError as e:
            alert = self._tls_alert() if _is_closed_by_peer(e) else None
            self.close()
            raise alert or e from None
        except http.client.HTTPException as e:
            self.close()
            raise HttpProtocolError(
                str(e) or "the connection was closed in the middle of a response"
            ) from None
        except BaseException:
            self.close()
            raise
        return self.last

    def _tls_alert(self) -> OSError | None:
        """Why the server closed the connection before it had the request: it refused the certificate."""
        import ssl

        if isinstance(self.http.sock, ssl.SSLSocket):
            try:
                self.http.sock.recv(1)
            except ssl.SSLError as e:
                return e
            except OSError:
                pass
        return None

    def _connect(self) -> None:
        try:
            self.http.connect()
        except TimeoutError:
            raise ConnectTimeout from None
        detect_dead_peer(self.http.sock)

    def interrupt(self) -> None:
        """Let a request fail that another thread waits for, and those after it."""
        self.is_interrupted = True
        shut_down(self.http.sock)

    def detach(self) -> socket.socket:
        """The socket, after the server has switched to another protocol."""
        sock: socket.socket = self.http.sock
        self.http.sock = None
        return sock

    def close(self) -> None:
        self.http.close()
        self.last = None


def _is_closed_by_peer(error: OSError) -> bool:
    return isinstance(error, ConnectionError) or type(error).__name__ == "SSLEOFError"


def speaks_tls(address: Address) -> bool:
    """Whether a TLS handshake succeeds at this address; certificates do not matter."""
    try:
        with (
            socket.create_connection((address.host, address.port), TLS_PROBE_TIMEOUT_S) as plain,
            _tls_context(False, "").wrap_socket(plain, server_hostname=address.host),
        ):
            return True
    except OSError:
        return False


def proxy_for(address: Address) -> str:
    """Proxy that the environment sets for an address; never one for loopback."""
    if address.is_loopback:
        return ""
    names = (f"{address.scheme}_proxy", f"{address.scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
    # HTTP_PROXY in capitals can be set by a web request to a CGI program; the lower case form cannot.
    proxy = next((os.environ[n] for n in names if os.environ.get(n) and n != "HTTP_PROXY"), "")
    if not proxy and "REQUEST_METHOD" not in os.environ and address.scheme == "http":
        proxy = os.environ.get("HTTP_PROXY", "")
    return "" if not proxy or _bypasses_proxy(address.host) else proxy


def _bypasses_proxy(host: str) -> bool:
    for item in (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").split(","):
        name = item.strip().lower().split(":")[0].lstrip(".")
        if name == "*" or (name and (host.lower() == name or host.lower().endswith("." + name))):
            return True
    return False


def _proxy_address(proxy: str) -> Address:
    scheme, sep, rest = proxy.partition("://")
    if sep and scheme.lower() != "http":
        raise PaiError(f"The proxy {proxy} cannot be used: only http:// proxies are supported.")
    return parse_uri("http://" + (rest if sep else scheme).rpartition("@")[2])


def _proxy_credentials(proxy: str) -> dict[str, str]:
    login, at, _ = proxy.partition("://")[2].rpartition("@")
    if not at:
        return {}
    from base64 import b64encode
    from urllib.parse import unquote

    return {"Proxy-Authorization": "Basic " + b64encode(unquote(login).encode()).decode()}


def _tls_context(  # type: ignore[no-untyped-def]
    verify: bool, authority_file: str, certificate: tuple[str, str] | None = None
):
    import ssl

    try:
        context = ssl.create_default_context(cafile=authority_file or None)
    except OSError as e:
        raise PaiError(f"The CA file {authority_file} cannot be used: {e.strerror or e}.") from None
    if authority_file:
        # The cluster's own certificate is accepted as a trust anchor, even if another authority signed it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        _load_certificate(context, *certificate)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    for file in (certificate, key):
        try:
            with open(file, "rb"):
                pass
        except OSError as e:
            raise PaiError(f"Your certificate's file {file} cannot be read: {e.strerror}.") from None
    try:
        # An encrypted key would ask for its passphrase at the terminal, in the middle of a command.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except OSError:
        raise PaiError(
            f"{certificate} and {key} are not a certificate and its unencrypted key, both as PEM files."
        ) from None
