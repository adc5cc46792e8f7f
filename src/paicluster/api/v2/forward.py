"""Route that connects a client with a port of a running task, over a WebSocket."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.connections.forwarders import TaskPort
from paicluster.api.context import ConnectionContext, context
from paicluster.api.requests.web_socket_upgrade import UpgradeResponse, accept_token_protocol, accept_upgrade
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import Audit, Query, Routes
from paicluster.api.v2.running_task import Purpose, ReachableTask, requested_task, running_task
from paicluster.api.wire.jobs import Count, TaskAddress
from paicluster.api.wire.query_parameters import int_param
from paicluster.api.wire.responses import json_response
from paicluster.auth.tokens import Identity
from paicluster.store.rows import JobRow
from paiprotocol.errors import InvalidParameters
from pairuntime.transport.relay import PROTOCOL

route = Routes("job")

FORWARD = Purpose("forward ports of", "its ports cannot be forwarded")
_MAX_PORT = 65_535


@route(
    "GET /api/v2/jobs/{framework}/forward",
    authority=JOBS,
    summary="Whether a task's ports can be forwarded; with an upgrade, "
    "docs/contributing/exec-and-forward.md, a connection with one of them",
    query=(
        Query("role"),
        Query("index", Count),
        Query("port", Count, description="Required for an upgrade."),
    ),
    returns={200: TaskAddress},
    errors=(409, 426, 501),
    audit=Audit.ALWAYS,
)
async def forward(request: Request) -> Response:
    """Connect with a port: see docs/contributing/exec-and-forward.md.

    Without an upgrade it tells whether this is possible, and with which task.
    """
    accept_token_protocol(request)
    identity, task = await requested_task(request, FORWARD)
    ctx = context(request)
    command = await task.command(ctx.engines.forward_command)
    if "upgrade" not in request.headers:
        return json_response(TaskAddress(task.role, task.index))
    accept = accept_upgrade(request, PROTOCOL)
    port = port_param(request)
    ctx.connections.forwarders.check_limits(identity.username)
    channel = ctx.connections.forwarders.channel(identity, _target(task, command, port))
    return UpgradeResponse(channel, accept, PROTOCOL)


def port_param(request: Request) -> int:
    """The port of a task that a request names."""
    port = int_param(request.query_params.get("port"), "port", 0)
    if not 0 < port <= _MAX_PORT:
        raise InvalidParameters(f'"port" must be a number from 1 to {_MAX_PORT}.')
    return port


async def open_stream(
    connections: ConnectionContext, identity: Identity, row: JobRow, role: str, index: int, port: int
) -> socket.socket:
    """A connection with a port of a task, for use in the server; who may enter the job was checked before.

    Raises Conflict if the task is not running, or if nothing listens on the port.
    """
    task = await running_task(connections.store, row, role, index, FORWARD)
    command = await task.command(connections.engines.forward_command)
    return await connections.forwarders.open_stream(identity, _target(task, command, port))


def _target(task: ReachableTask, command: Sequence[str], port: int) -> TaskPort:
    return TaskPort(task.uid, task.job.username, str(task), command, port)
