"""Routes of a job's attempts in OpenPAI's legacy format."""

from __future__ import annotations

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from paicluster.api.context import authenticate, context
from paicluster.api.permissions import check_may_see
from paicluster.api.responses import encode, json_response, page_params
from paicluster.api.v2 import serializers
from paicluster.services.admission import no_job
from paicluster.store import jobs


async def healthz(request: Request) -> Response:
    await authenticate(request)
    return PlainTextResponse("ok")


async def list_attempts(request: Request) -> Response:
    """The latest attempt, then the earlier ones in order. Paging is our addition."""
    identity = await authenticate(request)
    framework = request.path_params["framework"]
    offset, limit = page_params(request)

    def read(conn: Connection) -> bytes | None:
        row = jobs.get_job(conn, framework)
        if row is None:
            return None
        check_may_see(identity, row)
        attempts = {attempt.attempt: attempt for attempt in jobs.attempts_of(conn, row.id)}
        numbers = [row.attempt, *sorted(number for number in attempts if number != row.attempt)]
        return encode(
            [
                serializers.job_attempt(row, attempts.get(number), jobs.tasks_of(conn, row.id, number))
                for number in numbers[offset : offset + limit]
            ]
        )

    body = await context(request).store.read(read)
    if body is None:
        return json_response(None, 404)
    return Response(body, media_type="application/json")


async def one_attempt(request: Request) -> Response:
    identity = await authenticate(request)
    framework, number = request.path_params["framework"], request.path_params["attempt"]

    def read(conn: Connection) -> bytes | None:
        row = jobs.get_job(conn, framework)
        if row is None:
            return None
        check_may_see(identity, row)
        attempt = next((one for one in jobs.attempts_of(conn, row.id) if one.attempt == number), None)
        if attempt is None and number != row.attempt:
            return None
        return encode(serializers.job_attempt(row, attempt, jobs.tasks_of(conn, row.id, number)))

    body = await context(request).store.read(read)
    if body is None:
        raise no_job(framework)
    return Response(body, media_type="application/json")
