"""Connections over TLS or through a proxy: the same HTTP on other sockets."""

from __future__ import annotations

import os
import socket

from openpaisdk.client.address import Address, parse_uri
from paiprotocol.errors import PaiError
from pairuntime.transport.http1 import Body, Connection, ConnectTimeout, HttpProtocolError, Response, send_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl

TLS_PROBE_TIMEOUT_S = 3.0
_MAX_TUNNEL_HEAD_BYTES = 1 << 16


class SecureConnection(Connection):
    """HTTPS, directly or through a tunnel of a proxy."""

    __slots__ = ("_address", "_proxy", "_trust")

    def __init__(self, address: Address, proxy: str, connect_timeout: float, trust: ssl.SSLContext):
        server = _proxy_address(proxy) if proxy else address
        super().__init__(server.host, server.port, connect_timeout)
        self._address = address
        self._proxy = proxy
        self._trust = trust

    def open_socket(self) -> socket.socket:
        sock = super().open_socket()
        try:
            sock.settimeout(self.connect_timeout)
            if self._proxy:
                _open_tunnel(sock, self._address, _proxy_credentials(self._proxy))
            return self._trust.wrap_socket(sock, server_hostname=self._address.host)
        except TimeoutError:
            sock.close()
            raise ConnectTimeout from None
        except BaseException:
            sock.close()
            raise


class ProxyConnection(Connection):
    """Plain HTTP through a proxy, which gets the whole address of every request."""

    __slots__ = ("_credentials", "_prefix")

    def __init__(self, address: Address, proxy: str, connect_timeout: float):
        server = _proxy_address(proxy)
        super().__init__(server.host, server.port, connect_timeout)
        self._prefix = f"{address.scheme}://{address.netloc}"
        self._credentials = _proxy_credentials(proxy)

    def request(
        self, method: str, target: str, headers: dict[str, str], body: bytes | Body | None, timeout: float
    ) -> Response:
        return super().request(method, self._prefix + target, {**headers, **self._credentials}, body, timeout)


def _open_tunnel(sock: socket.socket, address: Address, credentials: dict[str, str]) -> None:
    """Let a proxy connect this socket with the server."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    where = f"{host}:{address.port}"
    headers = {"Host": where, **credentials}
    lines = [f"CONNECT {where} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    send_all(sock, ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    head = b""
    while not head.endswith((b"\r\n\r\n", b"\n\n")):
        # Byte by byte: what follows the head belongs to TLS.
        received = sock.recv(1)
        if not received or len(head) >= _MAX_TUNNEL_HEAD_BYTES:
            raise HttpProtocolError("the proxy closed the connection, or does not speak HTTP")
        head += received
    version, _, status = head.split(b"\n")[0].strip().decode("latin-1").partition(" ")
    if not version.startswith("HTTP/1.") or not status[:3].isdigit():
        raise HttpProtocolError("the proxy at this address does not speak HTTP")
    if status[:3] != "200":
        raise OSError(f"Tunnel connection failed: {status.strip()}")


def speaks_tls(address: Address) -> bool:
    """Whether a TLS handshake succeeds at this address; certificates do not matter."""
    try:
        with (
            socket.create_connection((address.host, address.port), TLS_PROBE_TIMEOUT_S) as plain,
            tls_context(False, "").wrap_socket(plain, server_hostname=address.host),
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


def tls_context(verify: bool, ca_file: str, certificate: tuple[str, str] | None = None) -> ssl.SSLContext:
    import ssl

    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except OSError as e:
        raise PaiError(f"The CA file {ca_file} cannot be used: {e.strerror or e}.") from None
    if ca_file:
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
