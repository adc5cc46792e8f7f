"""Which dialect a request speaks: OpenPAI's, or PaddleCloud's, whose clients come to the same port."""

from __future__ import annotations

from enum import Enum

import msgspec


class Dialect(Enum):
    OPENPAI = "openpai"
    PADDLECLOUD = "paddlecloud"


_SCHEME = b"token "
# Addresses that PaddleCloud has and OpenPAI never had; each also with what follows it.
_ITS_OWN = (
    "/api-token-auth",
    "/v1/submit",
    "/v2/submit",
    "/api/v1/file",
    "/api/v1/filepub",
    "/api/v1/logs",
    "/api/v1/pfs",
    "/api/v1/pservers",
    "/api/v1/publish",
    "/api/v1/quota",
    "/api/v1/registry",
    "/api/v1/token2user",
    "/api/v1/trainingjobs",
    "/api/v1/workers",
)
_keys = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def dialect(path: str, authorization: bytes | None, certificate: bool, body: bytes | None) -> Dialect:
    """The one place where this is decided.

    `Authorization: Token` or a client's certificate is PaddleCloud's; else the body's keys tell, where there
    is one that both could have sent; else it is OpenPAI. Version 2 of the API is OpenPAI's alone.
    """
    if path.startswith("/api/v2"):
        return Dialect.OPENPAI
    if authorization is not None and authorization[: len(_SCHEME)].lower() == _SCHEME:
        return Dialect.PADDLECLOUD
    if certificate or any(path.startswith(own) and path[len(own) :][:1] in ("", "/") for own in _ITS_OWN):
        return Dialect.PADDLECLOUD
    if body is not None and _is_paddle_job(body):
        return Dialect.PADDLECLOUD
    return Dialect.OPENPAI


def is_ambiguous(method: str, path: str) -> bool:
    """Whether only the body can tell."""
    return method == "POST" and path.rstrip("/") == "/api/v1/jobs"


def _is_paddle_job(body: bytes) -> bool:
    try:
        keys = _keys(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return ("jobPackage" in keys or "job_package" in keys) and "taskRoles" not in keys
