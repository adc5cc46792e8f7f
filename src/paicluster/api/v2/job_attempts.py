"""Routes of a job's attempts in OpenPAI's legacy format."""

from __future__ import annotations

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from paicluster.api.context import context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.requests.permissions import check_may_see
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import PAGE, Either, Routes, Text
from paicluster.api.v2 import serializers
from paicluster.api.wire.base import Problem
from paicluster.api.wire.jobs import JobAttempt
from paicluster.api.wire.query_parameters import page_params
from paicluster.api.wire.responses import Encoded, Reply, encoded
from paicluster.services.admission import no_job
from paicluster.store import jobs

route = Routes("job")


@route(
    "GET /api/v2/jobs/{framework}/job-attempts/healthz",
    authority=JOBS,
    summary="Health of the list of attempts",
    returns={200: Text()},
)
async def healthz(request: Request) -> Response:
    await authenticate(request)
    return PlainTextResponse("ok")


@route(
    "GET /api/v2/jobs/{framework}/job-attempts",
    authority=JOBS,
    summary="List the attempts of a job, legacy format",
    query=PAGE,
    returns={404: Either(Problem, type(None))},
)
async def list_attempts(request: Request) -> Reply[list[JobAttempt]]:
    """The latest attempt, then the earlier ones in order. Paging is our addition."""
    identity = await authenticate(request)
    framework = request.path_params["framework"]
    offset, limit = page_params(request)

    def read(conn: Connection) -> Encoded[list[JobAttempt]] | None:
        row = jobs.get_job(conn, framework)
        if row is None:
            return None
        check_may_see(identity, row)
        attempts = {attempt.attempt: attempt for attempt in jobs.attempts_of(conn, row.id)}
        numbers = [row.attempt, *sorted(number for number in attempts if number != row.attempt)]
        return encoded(
            [
                serializers.job_attempt(row, attempts.get(number), jobs.tasks_of(conn, row.id, number))
                for number in numbers[offset : offset + limit]
            ]
        )

    reply = await context(request).store.read(read)
    return Reply(Encoded(b"null"), 404) if reply is None else Reply(reply)


@route(
    "GET /api/v2/jobs/{framework}/job-attempts/{attempt:count}",
    authority=JOBS,
    summary="Get an attempt of a job, legacy format",
)
async def one_attempt(request: Request) -> Encoded[JobAttempt]:
    identity = await authenticate(request)
    framework, number = request.path_params["framework"], request.path_params["attempt"]

    def read(conn: Connection) -> Encoded[JobAttempt] | None:
        row = jobs.get_job(conn, framework)
        if row is None:
            return None
        check_may_see(identity, row)
        attempt = next((one for one in jobs.attempts_of(conn, row.id) if one.attempt == number), None)
        if attempt is None and number != row.attempt:
            return None
        return encoded(serializers.job_attempt(row, attempt, jobs.tasks_of(conn, row.id, number)))

    reply = await context(request).store.read(read)
    if reply is None:
        raise no_job(framework)
    return reply
