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
from paiprotocol.errors import PaiError, ProtocolError
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
    """Version and name of a job file, and its problems: none if the cluster would accept it."""
    identity = await authenticate(request)
    text = job_text(await read_body(request))
    version: Literal[1, 2] = 1 if _is_v1(text) else 2
    ctx = context(request)
    name: str | None = None
    problems: tuple[Problem, ...] = ()
    try:
        name, problems = await _check(ctx, identity, text, version)
    except ProtocolError as error:
        problems = tuple(one for one in error.problems if isinstance(one, Problem)) or (
            Problem((), error.message),
        )
    return JobCheck(version, name, [_problem(one) for one in problems[:MAX_PROBLEMS]])


async def _check(
    ctx: Context, identity: Identity, text: str, version: int
) -> tuple[str, tuple[Problem, ...]]:
    """The job's name, and the problem of its workspace."""
    if version == 1:
        return (await ctx.jobs.parser.parse_v1(identity.username, text, "")).name, ()
    job = (await ctx.jobs.parser.parse_v2(identity.username, text)).job
    try:
        await ctx.jobs.admission.check_workspace(identity, job)
    except PaiError as error:
        hint = error.hint or ""
        # A suggestion continues the sentence of its problem; a hint is a sentence of its own.
        return job.name, (Problem(WORKSPACE_KEY, error.message, suggestion=hint[:1].lower() + hint[1:]),)
    return job.name, ()


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
