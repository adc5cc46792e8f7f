"""API dialect of a request: OpenPAI or PaddleCloud, whose clients use the same port."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from enum import Enum

import msgspec
from starlette.types import Scope


class Dialect(Enum):
    OPENPAI = "openpai"
    PADDLECLOUD = "paddlecloud"


_SCHEME = b"token "
# Below it are paths of both.
_SHARED_VERSION = "/api/v1"
# Paths of PaddleCloud that OpenPAI never had; everything below them too.
_PADDLECLOUD_PATHS = (
    "/api-token-auth",
    "/v1/submit",
    "/v2/submit",
    "/filepub",
    "/api/v1/file",
    "/api/v1/filelist",
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
_decoder = json.JSONDecoder()
_KEY = re.compile(r'[\s,{]*(?=")')
_COLON = re.compile(r"\s*:\s*")

CERTIFICATE_EXTENSION = "paicluster.certificate"
"""Extension of a request's scope: the certificate that its client has presented."""
SHARED_JOBS_PATH = "/api/v1/jobs"
"""Both dialects submit jobs here: the body of a POST decides."""
LOOKED_AT_BYTES = 64 << 10
"""How much of a body decides. PaddleCloud's jobs name a folder and some numbers: they are short."""


def dialect(path: str, authorization: bytes | None, certificate: bool, body: bytes | None) -> Dialect:
    """Dialect of a request; decided nowhere else.

    On paths that both dialects may have, `Authorization: Token` or a client certificate is PaddleCloud; else
    the keys of the body, or of its beginning, decide; else it is OpenPAI. So is every path that PaddleCloud
    never had: version 2 of the API, the portal, WebHDFS.
    """
    if any(_is_below(path, own) for own in _PADDLECLOUD_PATHS):
        return Dialect.PADDLECLOUD
    if not _is_below(path, _SHARED_VERSION):
        return Dialect.OPENPAI
    if authorization is not None and authorization[: len(_SCHEME)].lower() == _SCHEME:
        return Dialect.PADDLECLOUD
    if certificate:
        return Dialect.PADDLECLOUD
    if body is not None and _is_paddle_job(body):
        return Dialect.PADDLECLOUD
    return Dialect.OPENPAI


def dialect_of(scope: Scope, body: bytes | None = None) -> Dialect:
    """`dialect` of a request's scope. On `SHARED_JOBS_PATH` it needs the beginning of the body, too."""
    authorization = next((value for name, value in scope["headers"] if name == b"authorization"), None)
    has_certificate = CERTIFICATE_EXTENSION in scope.get("extensions", {})
    return dialect(scope["path"], authorization, has_certificate, body)


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder) and path[len(folder) :][:1] in ("", "/")


def _is_paddle_job(body: bytes) -> bool:
    keys = _keys_of(body)
    return ("jobPackage" in keys or "job_package" in keys) and "taskRoles" not in keys


def _keys_of(body: bytes) -> Collection[str]:
    """Top-level keys of a JSON object, or of what `LOOKED_AT_BYTES` of it contain; none of anything else."""
    if len(body) >= LOOKED_AT_BYTES:
        return set(_keys_of_beginning(body[:LOOKED_AT_BYTES].decode("utf-8", "replace")))
    try:
        return _keys(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()


def _keys_of_beginning(text: str) -> Iterator[str]:
    at = 0
    try:
        while text.lstrip().startswith("{") and (start := _KEY.match(text, at)):
            key, at = _decoder.raw_decode(text, start.end())
            yield key
            if not (colon := _COLON.match(text, at)):
                return
            _, at = _decoder.raw_decode(text, colon.end())
    except (ValueError, RecursionError):
        return
