"""Routes of version 1 for SSH: addresses of a job's tasks, and the private key."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import NotFound, Unauthorized
from openpaisdk.protocol import read_job
from openpaisdk.protocol.extras import find_plugin
from paicluster.api.context import Context, authenticate, context, own_url
from paicluster.api.responses import json_response
from paicluster.api.v1.jobs import row_of
from paicluster.api.v2.job_detail import port_lists
from paicluster.api.v2.jobs import no_ssh, spec_of
from paicluster.auth import user_extensions
from paicluster.auth import users as accounts
from paicluster.auth.ssh_keys import generate_key_pair
from paicluster.auth.tokens import INVALID
from paicluster.store import jobs, users
from paicluster.store.rows import JobRow

_TICKET_LIFETIME_S = 3600


async def ssh(request: Request) -> Response:
    """SSH addresses of a running job with the ssh plugin. Only the job's user gets the link to the key."""
    identity = await authenticate(request)
    ctx = context(request)
    row = await row_of(request, identity)
    tasks = await ctx.store.read(lambda conn: jobs.tasks_of(conn, row.id, row.attempt))
    reachable = [
        {"id": task.uid, "sshIp": task.ip, "sshPort": port}
        for task in tasks
        if task.completed_ms is None and task.ip and (port := port_lists(task.ports).get("ssh"))
    ]
    if not reachable or not await _uses_ssh_plugin(ctx, row):
        raise no_ssh(row)
    link = ""
    # Job tokens and application tokens act for the user, but do not get the private key.
    if identity.username == row.username and not identity.application and identity.job_id is None:
        ticket = ctx.tickets.issue(_ticket_subject(row), _TICKET_LIFETIME_S)
        link = f"{own_url(request)}/ssh-keys/{ticket}/{row.framework}?op=OPEN"
    return json_response(
        {
            "containers": reachable,
            "keyPair": {
                "folderPath": f"/ssh-keys/{row.framework}",
                "publicKeyFileName": f"{row.framework}.pub",
                "privateKeyFileName": row.framework,
                "privateKeyDirectDownloadLink": link,
            },
        }
    )


async def private_key(request: Request) -> Response:
    """The private key. The ticket in the path authorizes the request: clients fetch it without a token."""
    ctx = context(request)
    framework = request.path_params["framework"]
    row = await ctx.store.read(lambda conn: jobs.get_job(conn, framework))
    if row is None or not ctx.tickets.is_valid(request.path_params["ticket"], _ticket_subject(row)):
        raise Unauthorized(INVALID, hint="The URL has expired: request the job's SSH information again.")
    pair = await key_pair(ctx, row.username)
    return Response(pair["key"], media_type="application/x-pem-file", headers={"Cache-Control": "no-store"})


async def key_pair(ctx: Context, username: str) -> dict[str, str]:
    """Key pair of a user, generated on first use."""
    user = await ctx.store.read(lambda conn: users.get_user(conn, username))
    if user is None:
        raise NotFound(f"User {username} not found.", code="NoUserError")
    stored: Any = user_extensions.unseal(json.loads(user.extension), ctx.sealer, username).get("jobSSH")
    if isinstance(stored, dict) and isinstance(stored.get("key"), str):
        return stored
    pair = await asyncio.to_thread(generate_key_pair)
    sealed = user_extensions.seal({"jobSSH": pair}, ctx.sealer, username)
    await ctx.store.write(lambda conn: accounts.merge_extension(conn, user, sealed))
    return pair


async def _uses_ssh_plugin(ctx: Context, row: JobRow) -> bool:
    spec = await spec_of(ctx, row)
    return find_plugin(read_job(spec.job, stored=True).extras, "ssh") is not None


def _ticket_subject(row: JobRow) -> str:
    return f"ssh:{row.id}:{row.framework}"
