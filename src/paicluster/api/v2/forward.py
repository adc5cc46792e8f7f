"""Route that connects a client with a port of a running task, over a WebSocket."""

from __future__ import annotations

import socket

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from openpaisdk.errors import InvalidParameters
from paicluster.api.context import Context, context
from paicluster.api.forwarders import PROTOCOL, TaskPort
from paicluster.api.responses import int_param
from paicluster.api.v2.running_task import Purpose, requested_task, running_task
from paicluster.api.web_socket_upgrade import UpgradeResponse, accept_token_protocol, accept_upgrade
from paicluster.auth.tokens import Identity
from paicluster.store.rows import JobRow

FORWARD = Purpose("forward ports of", "its ports cannot be forwarded")
_MAX_PORT = 65_535


async def forward(request: Request) -> Response:
    """Connect with a port: see docs/contributing/exec-and-forward.md.

    Without an upgrade it tells whether this is possible, and with which task.
    """
    accept_token_protocol(request)
    identity, task = await requested_task(request, FORWARD)
    ctx = context(request)
    command = task.command(ctx.forward_command)
    if "upgrade" not in request.headers:
        return JSONResponse({"role": task.role, "index": task.index})
    accept = accept_upgrade(request, PROTOCOL)
    port = port_param(request)
    ctx.forwarders.check_limits(identity.username)
    channel = ctx.forwarders.channel(identity, TaskPort(task.uid, str(task), command, port))
    return UpgradeResponse(channel, accept, PROTOCOL)


def port_param(request: Request) -> int:
    """The port of a task that a request names."""
    port = int_param(request.query_params.get("port"), "port", 0)
    if not 0 < port <= _MAX_PORT:
        raise InvalidParameters(f'"port" must be a number from 1 to {_MAX_PORT}.')
    return port


async def open_stream(
    ctx: Context, identity: Identity, row: JobRow, role: str, index: int, port: int
) -> socket.socket:
    """A connection with a port of a task, for use in the server; who may enter the job was checked before.

    Raises Conflict if the task is not running, or if nothing listens on the port.
    """
    task = await running_task(ctx, row, role, index, FORWARD)
    command = task.command(ctx.forward_command)
    return await ctx.forwarders.open_stream(identity, TaskPort(task.uid, str(task), command, port))
