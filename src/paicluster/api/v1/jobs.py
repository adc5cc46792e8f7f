"""Routes of version 1 jobs: submit, list, detail, stop, delete."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.context import Context, context
from paicluster.api.requests.authentication import authenticate, caller
from paicluster.api.requests.own_url import own_url
from paicluster.api.requests.permissions import (
    authenticate_reader,
    check_may_see,
    check_owner_or_admin,
    visible_jobs,
)
from paicluster.api.routing.authority import CLUSTER, JOBS, JOBS_V1
from paicluster.api.routing.route import FORM, JSON, YAML, Body, Bound, Query, Rate, Routes, Text
from paicluster.api.v1 import serializers
from paicluster.api.v1.code_collision import note_code_collision
from paicluster.api.v1.job_form import is_form, read_form
from paicluster.api.v1.task_logs import log_url
from paicluster.api.v2 import jobs as v2
from paicluster.api.wire.base import Message
from paicluster.api.wire.jobs import EXECUTION_TYPE, JOB_FILTERS, STRICT, ExecutionTypeBody
from paicluster.api.wire.request_body import read_body
from paicluster.api.wire.responses import Encoded, Reply, encoded, warning_headers
from paicluster.api.wire.v1 import JobDetailV1, JobSummaryV1
from paicluster.auth.tokens import Identity
from paicluster.services.admission import job_text, no_job
from paicluster.store import jobs
from paicluster.store.rows import JobRow
from paiprotocol.errors import RUNNING_JOB, Conflict, Forbidden, InvalidParameters, ProtocolError
from paiprotocol.jobs.convert import name_in_v2
from paiprotocol.jobs.states import framework_name

route = Routes("version 1")

_STOP_TIMEOUT_S = 45.0


@route(
    "POST /api/v1/(jobs|user/{user}/jobs)",
    "PUT /api/v1/(jobs|user/{user}/jobs)/{job}",
    authority=JOBS,
    summary="Submit a job",
    query=(STRICT,),
    body=Body({JSON: dict[str, Any], FORM: dict[str, Any]}, limit=Bound.BODY_SETTING),
    status=202,
    errors=(404, 409, 422, 507),
    rate=Rate.SUBMISSIONS,
)
async def submit(request: Request) -> Reply[Message]:
    """POST a job, or PUT it at its own path, as JSON or a form. The response is 202: not yet running."""
    identity = await authenticate(request)
    _check_owner(request, identity)
    body = await read_body(request)
    text = job_text(body)
    if is_form(request, body):
        text = json.dumps(read_form(text), ensure_ascii=False)
    # The value of PAI_DEFAULT_FS_URI in tasks.
    own = f"hdfs://{urlsplit(own_url(request)).netloc}"
    with _protocol_errors_as_parameters():
        job = await context(request).jobs.parser.parse_v1(identity.username, text, own)
    path_name = request.path_params.get("job")
    if path_name is not None and path_name != job.name:
        raise InvalidParameters(f'The path names the job "{path_name}", but "jobName" is "{job.name}".')
    conversion = job.conversion
    converted = json.dumps(conversion.data, ensure_ascii=False)
    warnings = await v2.admit(request, identity, conversion.job, converted, body, text, generation="v1")
    name = conversion.job.name
    await note_code_collision(context(request), identity, conversion.job, own)
    headers = {
        "Location": f"/api/v1/user/{quote(identity.username)}/jobs/{name}",
        **warning_headers([*map(str, conversion.warnings), *warnings]),
    }
    return Reply(Message(f"update job {name} successfully"), headers=headers)


@contextlib.contextmanager
def _protocol_errors_as_parameters() -> Iterator[None]:
    """Turn a general ProtocolError into InvalidParameters: version 1 has no error code for an invalid job."""
    try:
        yield
    except ProtocolError as error:
        if error.code != ProtocolError.code:
            raise
        raise InvalidParameters(error.message, hint=error.hint) from None


def _check_owner(request: Request, identity: Identity) -> None:
    owner = request.path_params.get("user", identity.username)
    if owner != identity.username:
        raise Forbidden(f"User {identity.username} is not allowed to submit jobs of user {owner}.")


@route(
    "GET /api/v1/(jobs|user/{user}/jobs)",
    authority=JOBS_V1,
    summary="List jobs",
    query=JOB_FILTERS,
    rate=Rate.LISTS,
)
async def list_jobs(request: Request) -> Encoded[list[JobSummaryV1]]:
    identity = await authenticate_reader(request)
    query = v2.query_of(request)
    owner = request.path_params.get("user")
    if owner is not None:
        query = replace(query, username=(owner,))
    query = visible_jobs(identity, query)
    await v2.admit_page(request, identity, query)
    # Rendered on the reader's thread, not on the event loop.
    return await context(request).store.read(
        lambda conn: encoded(serializers.summaries(jobs.list_jobs(conn, query)))
    )


@route(
    "GET /api/v1/(jobs|user/{user}/jobs)/{job}",
    authority=JOBS_V1,
    summary="Get a job",
)
async def detail(request: Request) -> Encoded[JobDetailV1]:
    identity = await authenticate_reader(request)

    def read(conn: Connection) -> Encoded[JobDetailV1] | None:
        job = v2.job_and_attempt(conn, _framework(request, identity, conn))
        if job is None:
            return None
        row, attempt, number = job
        check_may_see(identity, row)
        tasks = jobs.tasks_of(conn, row.id, number)
        return encoded(serializers.job_detail(row, attempt, tasks, log_url(request)))

    detail = await context(request).store.read(read)
    if detail is None:
        raise no_job(request.path_params["job"])
    return detail


@route(
    "GET /api/v1/(jobs|user/{user}/jobs)/{job}/config",
    authority=JOBS_V1,
    summary="Get the job as submitted",
    returns={200: (dict[str, Any], Text(YAML))},
)
async def config(request: Request) -> Response:
    """The job as submitted: JSON, or YAML if the client accepts only that."""
    identity = await authenticate_reader(request)
    row = await row_of(request, identity)
    ctx = context(request)
    text = await _as_json(ctx, identity, row)
    accepted = request.headers.get("accept", "")
    if "yaml" in accepted and "json" not in accepted:
        text = await ctx.jobs.parser.convert(identity.username, "json_as_yaml", text)
        return Response(text, media_type="text/yaml")
    return Response(text, media_type="application/json")


async def _as_json(ctx: Context, identity: Identity, row: JobRow) -> str:
    spec = await v2.spec_of(ctx, row)
    if row.generation != "v1":
        return await v2.config_as_json(ctx, identity, row, spec)
    config = spec.config
    try:
        json.loads(config)
    except ValueError:
        # Has comments and the like, which JSON parsers reject.
        return await ctx.jobs.parser.convert(identity.username, "v1_as_json", config)
    return config


@route(
    "PUT /api/v1/(jobs|user/{user}/jobs)/{job}/executionType",
    authority=JOBS,
    summary="Stop a job",
    body=EXECUTION_TYPE,
    status=202,
)
async def execution_type(request: Request, wanted: ExecutionTypeBody) -> Message:
    identity = caller(request)
    row = await row_of(request, identity)
    await v2.execute(context(request), identity, row, wanted.value)
    return Message(f"execute job {row.name} successfully")


@route(
    "DELETE /api/v1/(jobs|user/{user}/jobs)/{job}",
    authority=CLUSTER,
    summary="Delete a job; a running one is stopped first",
    query=(Query("finished", Literal["only"], description="`only`: refuse to delete an unfinished job."),),
    status=202,
    errors=(409,),
)
async def remove(request: Request) -> Message:
    """Delete a job with its logs; its name becomes free. A running job is stopped first.

    With ``finished=only``, our addition, an unfinished job is not stopped but refused.
    """
    identity = await authenticate(request)
    row = await row_of(request, identity)
    check_owner_or_admin(identity, row, "delete")
    ctx = context(request)
    if request.query_params.get("finished") != "only":
        await stop_and_wait(ctx, identity, row)
    if not await ctx.jobs.retention.remove_job(row.id):
        raise Conflict(
            f"Job {row.framework} has not finished, so it cannot be deleted.",
            code=RUNNING_JOB,
            hint="Stop it first, with PUT executionType, and wait until it has finished.",
        )
    return Message(f"deleted job {row.name} successfully")


async def stop_and_wait(ctx: Context, identity: Identity, row: JobRow) -> None:
    """Stop a job and wait until it has finished, as long as a client would wait."""
    with ctx.store.changes.watch(row.id) as changes, contextlib.suppress(TimeoutError):
        await v2.execute(ctx, identity, row, "STOP")
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            while not await ctx.store.read(lambda conn: _is_finished(conn, row.id)):
                await changes.wait()


def _is_finished(conn: Connection, job_id: int) -> bool:
    row = jobs.get_job_by_id(conn, job_id)
    return row is None or row.sub_state == "Completed"


async def row_of(request: Request, identity: Identity) -> JobRow:
    """The job in the path; raises Forbidden unless the caller may see it."""
    row = await context(request).store.read(
        lambda conn: jobs.get_job(conn, _framework(request, identity, conn))
    )
    if row is None:
        raise no_job(request.path_params["job"])
    check_may_see(identity, row)
    return row


def _framework(request: Request, identity: Identity, conn: Connection) -> str:
    """Full name of the job in the path: `/user/U/jobs/J`, `/jobs/U~J`, or `/jobs/J` for the caller's own.

    For an anonymous caller `/jobs/J` is the newest job of that name.
    """
    user, name = request.path_params.get("user"), request.path_params["job"]
    if user is None:
        owner, tilde, rest = name.partition("~")
        user, name = (owner, rest) if tilde else (identity.username, name)
    if not user:
        newest = jobs.newest_named(conn, name_in_v2(name))
        return name if newest is None else newest.framework
    return framework_name(user, name_in_v2(name))
