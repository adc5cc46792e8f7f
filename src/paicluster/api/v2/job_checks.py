"""Route that checks a job file without submitting it; editors call it while a user types."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import ProtocolError
from openpaisdk.protocol.problems import MAX_PROBLEMS, Problem
from paicluster.api.context import Context, authenticate, context
from paicluster.api.responses import json_response, read_body
from paicluster.services.admission import job_text


async def check(request: Request) -> Response:
    """Version and name of a job file, and its problems: none if the cluster would accept it."""
    identity = await authenticate(request)
    text = job_text(await read_body(request))
    version = 1 if _is_v1(text) else 2
    ctx = context(request)
    name: str | None = None
    problems: tuple[Problem, ...] = ()
    try:
        name = await _name(ctx, identity.username, text, version)
    except ProtocolError as error:
        problems = tuple(one for one in error.problems if isinstance(one, Problem)) or (
            Problem((), error.message),
        )
    return json_response(
        {
            "version": version,
            "name": name,
            "problems": [_problem(one) for one in problems[:MAX_PROBLEMS]],
        }
    )


async def _name(ctx: Context, username: str, text: str, version: int) -> str:
    if version == 1:
        return (await ctx.job_parser.parse_v1(username, text, "")).name
    return (await ctx.job_parser.parse_v2(username, text)).job.name


class _Keys(msgspec.Struct):
    """What tells the versions apart: version 1 is JSON with a `jobName`."""

    jobName: Any = None  # noqa: N815
    protocolVersion: Any = None  # noqa: N815


_decode_keys = msgspec.json.Decoder(_Keys).decode


def _is_v1(text: str) -> bool:
    try:
        keys = _decode_keys(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return keys.jobName is not None and keys.protocolVersion is None


def _problem(problem: Problem) -> dict[str, Any]:
    message = str(dataclasses.replace(problem, path=(), file="", line=0)).removeprefix(": ")
    return {"line": problem.line, "column": problem.column, "key": problem.key, "message": message}
