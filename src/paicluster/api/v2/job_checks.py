"""Route that checks a job file without submitting it; editors call it while a user types."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import msgspec
from starlette.requests import Request

from paicluster.api.context import Context, context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import Audit, Routes
from paicluster.api.wire.jobs import JOB_FILE, JobCheck, JobProblem
from paicluster.api.wire.request_body import read_body
from paicluster.auth.tokens import Identity
from paicluster.services.admission import job_text
from paiprotocol.errors import PaiError, ProtocolError, Unavailable
from paiprotocol.jobs import JobSpec
from paiprotocol.jobs.problems import MAX_PROBLEMS, Problem
from paiprotocol.jobs.storage_layout import WORKSPACE_KEY

route = Routes("job")


@route(
    "POST /api/v2/job-checks",
    authority=JOBS,
    summary="Check a job file without submitting it",
    body=JOB_FILE,
    # It only reads: editors check a job with every pause of the typing.
    audit=Audit.NEVER,
    other_methods=405,
)
async def check(request: Request) -> JobCheck:
    """Version and name of a job file, its problems, none if the cluster would accept it, and its warnings:
    what keeps it from starting as the cluster is now.
    """
    identity = await authenticate(request)
    text = job_text(await read_body(request))
    version: Literal[1, 2] = 1 if _is_v1(text) else 2
    try:
        job = await _parse(context(request), identity, text, version)
    except ProtocolError as error:
        return JobCheck(version, None, _problems(error), [])
    admission = context(request).jobs.admission
    key: tuple[str, ...] = WORKSPACE_KEY
    try:
        await admission.check_workspace(identity, job)
        key = ()
        warnings = await admission.check(identity, job)
    except Unavailable:
        raise
    except PaiError as error:
        return JobCheck(version, job.name, _problems(error, key), [])
    return JobCheck(version, job.name, [], warnings)


async def _parse(ctx: Context, identity: Identity, text: str, version: int) -> JobSpec:
    if version == 1:
        return (await ctx.jobs.parser.parse_v1(identity.username, text, "")).conversion.job
    return (await ctx.jobs.parser.parse_v2(identity.username, text)).job


def _problems(error: PaiError, key: tuple[str, ...] = ()) -> list[JobProblem]:
    if isinstance(error, ProtocolError):
        found = [_problem(one) for one in error.problems if isinstance(one, Problem)]
        if found:
            return found[:MAX_PROBLEMS]
    hint = (error.hint or "").removesuffix("Nothing was submitted.").strip()
    # A suggestion continues the sentence of its problem; a hint is a sentence of its own.
    message = error.message.removesuffix(".") if hint else error.message
    return [_problem(Problem(key, message, suggestion=hint[:1].lower() + hint[1:]))]


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


def _problem(problem: Problem) -> JobProblem:
    message = str(dataclasses.replace(problem, path=(), file="", line=0)).removeprefix(": ")
    return JobProblem(problem.line, problem.column, problem.key, message)
