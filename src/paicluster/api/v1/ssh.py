"""Routes of version 1 for SSH: addresses of a job's tasks, and the private key."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.context import Context, context
from paicluster.api.requests.permissions import authenticate_reader
from paicluster.api.routing.authority import JOBS_V1, TICKET
from paicluster.api.routing.route import Routes, Text
from paicluster.api.v1.jobs import row_of
from paicluster.api.v2.ssh import key_ticket_subject, ssh_info
from paicluster.api.wire.jobs import SshInfo
from paicluster.auth import user_extensions
from paicluster.auth import users as accounts
from paicluster.auth.ssh_keys import generate_key_pair
from paicluster.auth.tickets import holder_of
from paicluster.auth.tokens import INVALID
from paicluster.store import jobs, users
from paicluster.store.rows import JobRow, UserRow
from paiprotocol.errors import NotFound, Unauthorized

route = Routes("version 1")


@route(
    "GET /api/v1/(jobs|user/{user}/jobs)/{job}/ssh",
    authority=JOBS_V1,
    summary="Get the SSH addresses of a job's tasks",
)
async def ssh(request: Request) -> SshInfo:
    identity = await authenticate_reader(request)
    return await ssh_info(request, identity, await row_of(request, identity))


@route(
    "GET /ssh-keys/{ticket}/{framework}",
    authority=TICKET,
    summary="Get the private SSH key of a job's user",
    returns={200: Text("application/x-pem-file")},
    errors=(401,),
)
async def private_key(request: Request) -> Response:
    """The private key. The ticket in the path authorizes the request: clients fetch it without a token."""
    ctx = context(request)
    framework = request.path_params["framework"]
    row, user = await ctx.store.read(lambda conn: _job_and_user(conn, framework))
    ticket = request.path_params["ticket"]
    if row is None or not await ctx.identity.tokens.is_live(holder_of(ticket)):
        raise _expired()
    if user is not None and user.disabled_ms is not None:  # the ticket may be that of the job
        raise accounts.DisabledUser(user.username)
    if ctx.identity.tickets.is_valid(ticket, key_ticket_subject(row, is_of_job=True)):
        key = ctx.ssh.keys.of_job(row).private
    elif ctx.identity.tickets.is_valid(ticket, key_ticket_subject(row, is_of_job=False)):
        key = (await key_pair(ctx, row.username))["key"]
    else:
        raise _expired()
    return Response(key, media_type="application/x-pem-file", headers={"Cache-Control": "no-store"})


def _job_and_user(conn: Connection, framework: str) -> tuple[JobRow | None, UserRow | None]:
    row = jobs.get_job(conn, framework)
    return row, None if row is None else users.get_user(conn, row.username)


def _expired() -> Unauthorized:
    return Unauthorized(INVALID, hint="The URL has expired: request the job's SSH information again.")


async def key_pair(ctx: Context, username: str) -> dict[str, str]:
    """Key pair of a user, generated on first use."""
    user = await ctx.store.read(lambda conn: users.get_user(conn, username))
    if user is None:
        raise NotFound(f"User {username} not found.", code="NoUserError")
    stored: Any = user_extensions.unseal(json.loads(user.extension), ctx.identity.sealer, username).get(
        "jobSSH"
    )
    if isinstance(stored, dict) and isinstance(stored.get("key"), str):
        return stored
    pair = await asyncio.to_thread(generate_key_pair)
    sealed = user_extensions.seal({"jobSSH": pair}, ctx.identity.sealer, username)
    await ctx.store.write(lambda conn: accounts.merge_extension(conn, user, sealed))
    return pair
