"""Route of the JSON Schemas of job files, from which editors complete and explain keys."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.requests import Request

from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import Routes
from paiprotocol.errors import NotFound
from paiprotocol.jobs import job_schema

route = Routes("job")

_VERSIONS = ("v1", "v2")


@route(
    "GET /api/v2/job-schemas/{version}",
    authority=JOBS,
    summary="Get the JSON Schema of job files; the version is v1 or v2",
    other_methods=405,
)
async def schema(request: Request) -> dict[str, Any]:
    await authenticate(request)
    version = request.path_params["version"]
    if version not in _VERSIONS:
        raise NotFound(f'There is no version "{version}" of the job protocol: use v1 or v2.')
    return _schema(version)


@cache
def _schema(version: str) -> dict[str, Any]:
    return job_schema(version)
