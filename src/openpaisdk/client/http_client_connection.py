"""The same connection where TLS or a proxy is in the way, carried by ``http.client``."""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterator
from contextlib import contextmanager

from openpaisdk.client.address import Address, parse_uri
from openpaisdk.client.http1 import CHUNK_BYTES, Body, HttpProtocolError
from openpaisdk.errors import PaiError


class HttpClientResponse:
    __slots__ = ("answer", "headers", "status")

    def __init__(self, answer: http.client.HTTPResponse):
        self.answer = answer
        self.status = answer.status
        self.headers = {k.lower(): v for k, v in answer.getheaders()}

    def read(self) -> bytes:
        with _cut_short():
            return self.answer.read()

    def read_some(self) -> bytes:
        with _cut_short():
            return self.answer.read1(CHUNK_BYTES)

    def read_into(self, buffer: memoryview) -> int:
        filled = 0
        with _cut_short():
            while filled < len(buffer) and (got := self.answer.readinto(buffer[filled:])):
                filled += got
        return filled


@contextmanager
def _cut_short() -> Iterator[None]:
    try:
        yield
    except http.client.HTTPException as e:
        raise HttpProtocolError(
            f"the connection was closed in the middle of an answer ({type(e).__name__})"
        ) from None


class HttpClientConnection:
    """HTTPS, and HTTP or HTTPS through a proxy."""

    def __init__(
        self, address: Address, proxy: str, connect_timeout: float, verify: bool, authority_file: str
    ):
        self.prefix = ""
        self.connect_timeout = connect_timeout
        self.proxy_headers: dict[str, str] = {}
        through = _proxy_address(proxy) if proxy else None
        host, port = (through.host, through.port) if through else (address.host, address.port)
        if address.is_secure:
            self.http: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=connect_timeout, context=_context(verify, authority_file)
            )
            if through:
                self.http.set_tunnel(address.host, address.port, headers=_proxy_login(proxy))
        else:
            self.http = http.client.HTTPConnection(host, port, timeout=connect_timeout)
            if through:
                self.prefix = f"{address.scheme}://{address.authority}"
                self.proxy_headers = _proxy_login(proxy)
        self.last: HttpClientResponse | None = None

    @property
    def is_open(self) -> bool:
        return self.http.sock is not None

    def request(
        self, method: str, target: str, headers: dict[str, str], body: bytes | Body | None, timeout: float
    ) -> HttpClientResponse:
        if self.last is not None and not self.last.answer.isclosed():
            self.close()
        content: object = body
        sent = {**headers, **self.proxy_headers}
        if isinstance(body, Body):
            sent["Content-Length"] = str(body.size)
            content = body.chunks()
        try:
            if self.http.sock is None:
                self.http.connect()
            self.http.sock.settimeout(timeout)
            self.http.request(method, self.prefix + target, content, sent)  # type: ignore[arg-type]
            self.last = HttpClientResponse(self.http.getresponse())
        except http.client.HTTPException as e:
            self.close()
            raise HttpProtocolError(
                str(e) or "the connection was closed in the middle of an answer"
            ) from None
        except BaseException:
            self.close()
            raise
        return self.last

    def close(self) -> None:
        self.http.close()
        self.last = None


def proxy_for(address: Address) -> str:
    """The proxy the environment names for an address. Loopback never goes through one."""
    if address.is_loopback:
        return ""
    names = (f"{address.scheme}_proxy", f"{address.scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
    # HTTP_PROXY in capitals can be set by a web request to a CGI program; the lower case form cannot.
    proxy = next((os.environ[n] for n in names if os.environ.get(n) and n != "HTTP_PROXY"), "")
    if not proxy and "REQUEST_METHOD" not in os.environ and address.scheme == "http":
        proxy = os.environ.get("HTTP_PROXY", "")
    return "" if not proxy or _is_excepted(address.host) else proxy


def _is_excepted(host: str) -> bool:
    for item in (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").split(","):
        name = item.strip().lower().split(":")[0].lstrip(".")
        if name == "*" or (name and (host.lower() == name or host.lower().endswith("." + name))):
            return True
    return False


def _proxy_address(proxy: str) -> Address:
    scheme, sep, rest = proxy.partition("://")
    if sep and scheme.lower() != "http":
        raise PaiError(f"The proxy {proxy} is of a kind pai cannot use: only http:// proxies are supported.")
    return parse_uri("http://" + (rest if sep else scheme).rpartition("@")[2])


def _proxy_login(proxy: str) -> dict[str, str]:
    login, at, _ = proxy.partition("://")[2].rpartition("@")
    if not at:
        return {}
    from base64 import b64encode
    from urllib.parse import unquote

    return {"Proxy-Authorization": "Basic " + b64encode(unquote(login).encode()).decode()}


def _context(verify: bool, authority_file: str):  # type: ignore[no-untyped-def]
    import ssl

    try:
        context = ssl.create_default_context(cafile=authority_file or None)
    except OSError as e:
        raise PaiError(
            f"The file of certificates {authority_file} cannot be used: {e.strerror or e}."
        ) from None
    if authority_file:
        # That of the cluster itself will do, whoever signed it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
