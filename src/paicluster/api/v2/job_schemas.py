"""Route of the JSON Schemas of job files, from which editors complete and explain keys."""

from __future__ import annotations

from functools import cache

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import NotFound
from openpaisdk.protocol import job_schema
from paicluster.api.context import authenticate
from paicluster.api.responses import json_response

_VERSIONS = ("v1", "v2")


async def schema(request: Request) -> Response:
    await authenticate(request)
    version = request.path_params["version"]
    if version not in _VERSIONS:
        raise NotFound(f'There is no version "{version}" of the job protocol: use v1 or v2.')
    return json_response(_schema(version))


@cache
def _schema(version: str) -> dict[str, object]:
    return job_schema(version)
