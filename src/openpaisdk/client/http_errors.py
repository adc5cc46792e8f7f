"""Mapping of HTTP error responses and socket errors to errors of the SDK, and expiry of tokens."""

from __future__ import annotations

import errno
import socket
import time

from paiprotocol.errors import (
    DISABLED_USER,
    NO_JOB,
    Conflict,
    ConnectionFailed,
    Forbidden,
    InvalidParameters,
    NotConnected,
    NotFound,
    PaiError,
    ProtocolError,
    Unauthorized,
    Unavailable,
)
from pairuntime.transport.http1 import DEAD_PEER_TIMEOUT_S, ConnectTimeout

NO_USER = "NoUserError"
NO_API = "NoApiError"
"""Error code for an unknown path: the cluster has another generation of the API."""

_BY_STATUS: dict[int, type[PaiError]] = {
    400: InvalidParameters,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: Unavailable,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
    507: Unavailable,
}


def error_from_response(status: int, body: bytes, where: str) -> PaiError:
    """The error described by a response with an error status."""
    import json

    code = message = hint = ""
    try:
        value = json.loads(body)
        code, message = str(value.get("code") or ""), str(value.get("message") or _paddlecloud_message(value))
        hint = str(value.get("hint") or "")  # sent by our own server
    except (ValueError, AttributeError):
        if status == 404:
            return NotFound(f"{where} does not have this API (HTTP 404).", code=NO_API)
        text = body[:200].decode("utf-8", "replace").strip()
        message = f"{where} responded with HTTP {status}" + (f": {text}" if text and "<" not in text else ".")
    if code == ProtocolError.code:
        return ProtocolError(message, hint=hint)
    kind = _BY_STATUS.get(status, PaiError)
    return kind(
        message or f"{where} responded with HTTP {status}.", code=code or None, status=status, hint=hint
    )


class Redirected(ConnectionFailed):
    """A server that names another address."""


def redirected(location: str, where: str) -> Redirected:
    """The error of a response that names another address: a request there would carry the user's token."""
    scheme, _, rest = location.partition("://")
    address = f"{scheme}://{rest.partition('/')[0]}" if rest else "another page"
    return Redirected(
        f"{where} redirects to {address}, and no token is sent there.",
        hint="If that is the address of the cluster, add it: pai add-cluster -a NAME --pai-uri ADDRESS. "
        "Else a proxy on the way may want you to sign in.",
    )


def _paddlecloud_message(value: dict[str, object]) -> str:
    """The message of an error in PaddleCloud's dialect; empty if there is none."""
    message = value.get("msg") or value.get("detail") or value.get("non_field_errors") or ""
    return " ".join(map(str, message)) if isinstance(message, list) else str(message)


def is_missing_job(error: NotFound) -> bool:
    """Whether a 404 response means that the job does not exist. A response without a code counts as one."""
    return error.code in (NO_JOB, NotFound.code)


def token_rejected(error: Unauthorized, alias: str, token: str) -> Unauthorized:
    """The error for a token that the cluster rejects: it expired, was revoked, or is missing."""
    if error.code == DISABLED_USER:
        return error
    hint = f"Get a new one with: pai update-token -a {alias}"
    expiry = token_expiry(token) if token else None
    if not token:
        message = f"You have no token for the cluster {alias}: {error.message}"
    elif expiry is not None and expiry < time.time():
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(expiry))
        message = f"Your token for the cluster {alias} expired on {when}."
    else:
        message = f"The cluster {alias} does not accept your token: {error.message}"
    return Unauthorized(message, code=error.code, status=error.status, hint=hint)


def login_rejected(error: PaiError, alias: str, user: str) -> PaiError:
    """The error for a user name or password that the cluster rejects; OpenPAI's versions differ in status."""
    if error.code in (NO_API, DISABLED_USER):
        return error
    if error.code == NO_USER:
        message = f"The cluster {alias} has no user {user}."
    else:
        message = f"The cluster {alias} does not accept this password of {user}."
    return Unauthorized(
        message, code=error.code, status=error.status, hint="Check the user name and the password."
    )


def connection_error(error: OSError, where: str, timeout: float) -> ConnectionFailed:
    """The error for a cluster that did not respond."""
    kind = NotConnected if isinstance(error, ConnectTimeout) else ConnectionFailed
    return kind(f"{where} does not respond: {_reason(error, timeout)}.", hint=_hint(error))


def has_timed_out(error: OSError) -> bool:
    """Whether our own timeout ended a request. ETIMEDOUT is the kernel's: the connection is lost."""
    return isinstance(error, TimeoutError) and error.errno is None


def _reason(error: OSError, timeout: float) -> str:
    if isinstance(error, ConnectTimeout):
        return "no connection could be established in time"
    if error.errno == errno.ETIMEDOUT:
        return f"its machine or the network to it has been silent for {DEAD_PEER_TIMEOUT_S} seconds"
    if isinstance(error, TimeoutError):
        return f"no response within {timeout:.0f} seconds"
    if isinstance(error, socket.gaierror):
        return "its host name cannot be resolved"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there (connection refused)"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "its certificate is not trusted by this machine"
    if alert := _certificate_alert(error):
        return alert
    if _is_plain_http(error):
        return "it speaks plain HTTP there, not TLS"
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return "it is not reachable from this network"
    return (error.strerror or str(error) or type(error).__name__).rstrip(".").lower()


def _hint(error: OSError) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "Pass its CA file with --ca FILE, or use --insecure, in pai add-cluster."
    if _is_plain_http(error):
        return "Write http:// instead of https:// in its address, in pai add-cluster."
    return "Check the address with pai list-clusters."


_CERTIFICATE_ALERTS = {
    "CERTIFICATE_EXPIRED": "your certificate has expired",
    "CERTIFICATE_REVOKED": "your certificate was revoked",
    "CERTIFICATE_UNKNOWN": "it does not accept your certificate",
    "BAD_CERTIFICATE": "it does not accept your certificate",
    "UNKNOWN_CA": "your certificate was issued by an authority that it does not know",
    "CERTIFICATE_REQUIRED": "it demands a certificate",
}


def _certificate_alert(error: OSError) -> str:
    """What a server's TLS alert says about the client's certificate; empty for any other error."""
    reason = str(getattr(error, "reason", "") or "")
    if "ALERT" not in reason:
        return ""
    return next((text for name, text in _CERTIFICATE_ALERTS.items() if reason.endswith(name)), "")


def _is_plain_http(error: OSError) -> bool:
    """Whether the response to a TLS handshake was no TLS; the words depend on the version of OpenSSL."""
    reason = str(getattr(error, "reason", "") or "")
    return reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST")


def tls_required(where: str) -> ConnectionFailed:
    """The error for a request in plain HTTP to a port that speaks TLS."""
    return ConnectionFailed(
        f"{where} does not respond: it speaks TLS there, not plain HTTP.",
        hint="Write https:// instead of http:// in its address, in pai add-cluster.",
    )


def token_expiry(token: str) -> float | None:
    """Expiry time of a JSON Web Token in seconds since 1970; None if it never expires or cannot be parsed."""
    import json
    from binascii import Error, a2b_base64

    parts = token.split(".")
    if len(parts) != 3:
        return None
    middle = parts[1].replace("-", "+").replace("_", "/")
    try:
        claims = json.loads(a2b_base64(middle + "=" * (-len(middle) % 4)))
        expiry = claims.get("exp")
    except (Error, ValueError, AttributeError):
        return None
    return float(expiry) if isinstance(expiry, int | float) and not isinstance(expiry, bool) else None
