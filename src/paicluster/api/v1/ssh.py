"""Routes of version 1 for SSH: addresses of a job's tasks, and the private key."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import NotFound, Unauthorized
from paicluster.api.context import Context, context, own_url
from paicluster.api.permissions import authenticate_reader
from paicluster.api.responses import json_response
from paicluster.api.v1.jobs import row_of
from paicluster.api.v2.job_detail import port_lists
from paicluster.api.v2.jobs import no_ssh
from paicluster.auth import user_extensions
from paicluster.auth import users as accounts
from paicluster.auth.ssh_keys import generate_key_pair
from paicluster.auth.tickets import holder_of
from paicluster.auth.tokens import INVALID, TokenKind
from paicluster.store import jobs, users
from paicluster.store.rows import JobRow

_TICKET_LIFETIME_S = 3600
_SSH_GREETING = b"SSH-"
_PROBE_TIMEOUT_S = 2.0
_MAX_PROBES = 64


async def ssh(request: Request) -> Response:
    """Addresses of the tasks of a job that serve SSH. Only the job's user gets the link to the key."""
    identity = await authenticate_reader(request)
    ctx = context(request)
    row = await row_of(request, identity)
    tasks = await ctx.store.read(lambda conn: jobs.tasks_of(conn, row.id, row.attempt))
    candidates = [
        {"id": task.uid, "sshIp": task.ip, "sshPort": port}
        for task in tasks
        if task.completed_ms is None and task.ip and (port := port_lists(task.ports).get("ssh"))
    ]
    # The cluster starts no SSH server: an address counts only where a task really serves it.
    slots = asyncio.Semaphore(_MAX_PROBES)
    answers = await asyncio.gather(
        *(_serves_ssh(task["sshIp"], int(task["sshPort"].partition(",")[0]), slots) for task in candidates)
    )
    reachable = [task for task, is_served in zip(candidates, answers, strict=True) if is_served]
    if not reachable:
        raise no_ssh(row)
    link = ""
    # Job tokens and application tokens act for the user, but do not get the private key.
    if identity.username == row.username and identity.kind is TokenKind.SESSION:
        ticket = ctx.tickets.issue(_ticket_subject(row), _TICKET_LIFETIME_S, holder=identity.token_id)
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
    ticket = request.path_params["ticket"]
    if (
        row is None
        or not ctx.tickets.is_valid(ticket, _ticket_subject(row))
        or not await ctx.tokens.is_live(holder_of(ticket))
    ):
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


async def _serves_ssh(host: str, port: int, slots: asyncio.Semaphore) -> bool:
    """Whether an SSH server greets at this address."""
    writer = None
    async with slots:
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(host, port)
                return await reader.readexactly(len(_SSH_GREETING)) == _SSH_GREETING
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return False
        finally:
            if writer is not None:
                writer.transport.abort()


def _ticket_subject(row: JobRow) -> str:
    return f"ssh:{row.id}:{row.framework}"
