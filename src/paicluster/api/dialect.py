"""API dialect of a request: OpenPAI or PaddleCloud, whose clients use the same port."""

from __future__ import annotations

from enum import Enum

import msgspec


class Dialect(Enum):
    OPENPAI = "openpai"
    PADDLECLOUD = "paddlecloud"


_SCHEME = b"token "
# Paths of PaddleCloud that OpenPAI never had; everything below them too.
_PADDLECLOUD_PATHS = (
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
    """Dialect of a request; decided nowhere else.

    `Authorization: Token` or a client certificate is PaddleCloud; else the keys of the body decide on paths
    that both dialects have; else it is OpenPAI. Version 2 of the API is OpenPAI only.
    """
    if path.startswith("/api/v2"):
        return Dialect.OPENPAI
    if authorization is not None and authorization[: len(_SCHEME)].lower() == _SCHEME:
        return Dialect.PADDLECLOUD
    if certificate or any(
        path.startswith(own) and path[len(own) :][:1] in ("", "/") for own in _PADDLECLOUD_PATHS
    ):
        return Dialect.PADDLECLOUD
    if body is not None and _is_paddle_job(body):
        return Dialect.PADDLECLOUD
    return Dialect.OPENPAI


def is_ambiguous(method: str, path: str) -> bool:
    """Whether only the body decides the dialect."""
    return method == "POST" and path.rstrip("/") == "/api/v1/jobs"


def _is_paddle_job(body: bytes) -> bool:
    try:
        keys = _keys(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return ("jobPackage" in keys or "job_package" in keys) and "taskRoles" not in keys
