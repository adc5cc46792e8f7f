"""Where a job's tasks can be reached by ssh, and the key for it, as version 1 tells it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import NotFound, Unauthorized
from openpaisdk.protocol import read_job
from openpaisdk.protocol.extras import plugin_named
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

_LIFETIME_S = 3600


async def ssh(request: Request) -> Response:
    """For jobs that asked for ssh and run now. The key is its user's, and only he gets it."""
    identity = await authenticate(request)
    ctx = context(request)
    row = await row_of(request, identity)
    tasks = await ctx.store.read(lambda conn: jobs.tasks_of(conn, row.id, row.attempt))
    reachable = [
        {"id": task.uid, "sshIp": task.ip, "sshPort": port}
        for task in tasks
        if task.completed_ms is None and task.ip and (port := port_lists(task.ports).get("ssh"))
    ]
    if not reachable or not await _wants_ssh(ctx, row):
        raise no_ssh(row)
    link = ""
    # A job, or an application, acts for him and does not become him.
    if identity.username == row.username and not identity.application and identity.job_id is None:
        ticket = ctx.tickets.issue(_what(row), _LIFETIME_S)
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
    """The key itself, for whoever holds the address: clients fetch it without a token."""
    ctx = context(request)
    framework = request.path_params["framework"]
    row = await ctx.store.read(lambda conn: jobs.get_job(conn, framework))
    if row is None or not ctx.tickets.is_valid(request.path_params["ticket"], _what(row)):
        raise Unauthorized(INVALID, hint="The address has expired: ask for the job's ssh information again.")
    pair = await key_pair(ctx, row.username)
    return Response(pair["key"], media_type="application/x-pem-file", headers={"Cache-Control": "no-store"})


async def key_pair(ctx: Context, username: str) -> dict[str, str]:
    """A user's key pair, made now if he has none."""
    user = await ctx.store.read(lambda conn: users.get_user(conn, username))
    if user is None:
        raise NotFound(f"User {username} not found.", code="NoUserError")
    kept: Any = user_extensions.unseal(json.loads(user.extension), ctx.sealer, username).get("jobSSH")
    if isinstance(kept, dict) and isinstance(kept.get("key"), str):
        return kept
    pair = await asyncio.to_thread(generate_key_pair)
    sealed = user_extensions.seal({"jobSSH": pair}, ctx.sealer, username)
    await ctx.store.write(lambda conn: accounts.merge_extension(conn, user, sealed))
    return pair


async def _wants_ssh(ctx: Context, row: JobRow) -> bool:
    spec = await spec_of(ctx, row)
    return plugin_named(read_job(spec.job, stored=True).extras, "ssh") is not None


def _what(row: JobRow) -> str:
    return f"ssh:{row.id}:{row.framework}"
