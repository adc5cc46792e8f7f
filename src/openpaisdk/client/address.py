"""Parsed address of a cluster. Without urllib.parse, whose import takes a quarter of an interpreter start."""

from __future__ import annotations

from paiprotocol.errors import UsageError

LOOPBACK_NAMES = ("localhost", "::1")


class Address:
    """Scheme, host, port and the path prefix before ``/api``."""

    __slots__ = ("host", "port", "prefix", "scheme")

    def __init__(self, scheme: str, host: str, port: int, prefix: str):
        self.scheme = scheme
        self.host = host
        self.port = port
        self.prefix = prefix

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    @property
    def is_loopback(self) -> bool:
        return self.host in LOOPBACK_NAMES or (self.host.startswith("127.") and self.host[4:5].isdigit())

    @property
    def netloc(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_secure else 80) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.prefix}"


def parse_uri(text: str) -> Address:
    """Parse a cluster's address as users type it: the scheme is optional, a trailing slash is ignored."""
    scheme, sep, rest = text.strip().partition("://")
    if not sep:
        scheme, rest = "http", scheme
    scheme = scheme.lower()
    if scheme not in ("http", "https"):
        raise UsageError(f"{text!r} is not a cluster address: it must begin with http:// or https://.")
    netloc, _, path = rest.partition("/")
    if "@" in netloc:
        raise UsageError(
            "A cluster address cannot contain a user name or password: use --user and --password."
        )
    host, port = _host_port(netloc, 443 if scheme == "https" else 80, text)
    path = path.split("?")[0].split("#")[0].strip("/")
    return Address(scheme, host, port, "/" + path if path else "")


def _host_port(netloc: str, default: int, text: str) -> tuple[str, int]:
    if netloc.startswith("["):
        host, _, tail = netloc[1:].partition("]")
        port = tail.removeprefix(":")
    else:
        host, _, port = netloc.partition(":")
    if not host or not all(c.isalnum() or c in "-._:%" for c in host):
        raise UsageError(f"{text!r} is not a cluster address.", hint="Use a form like http://pai.example.org")
    if not port:
        return host, default
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"{text!r} has an invalid port: {port!r}.")
    return host, int(port)
