"""Route that runs a command in a running task, over a WebSocket."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.connections.exec_sessions import SessionChannel
from paicluster.api.context import ConnectionContext, context
from paicluster.api.requests.web_socket_upgrade import UpgradeResponse, accept_token_protocol, accept_upgrade
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import Audit, Routes
from paicluster.api.v2.running_task import (
    Purpose,
    ReachableTask,
    requested_task,
    running_task,
)
from paicluster.store.rows import JobRow
from pairuntime.transport.session_messages import PROTOCOL

route = Routes()

EXEC = Purpose("run commands in", "no command can be run in it")


@route("GET /api/v2/jobs/{framework}/exec", authority=JOBS, audit=Audit.ALWAYS, other_methods=405)
async def exec_session(request: Request) -> Response:
    """Open a session: see docs/contributing/exec-and-forward.md."""
    accept_token_protocol(request)
    identity, task = await requested_task(request, EXEC)
    ctx = context(request)
    # All refusals come before the upgrade: a page learns why there is no session by asking without one.
    ctx.connections.sessions.check_limits(identity.username)
    command = await _host_command(
        ctx.connections, task, terminal=request.query_params.get("terminal") == "true"
    )
    accept = accept_upgrade(request, PROTOCOL)
    holders = identity.holders_in_job_of(task.job.username)
    channel = SessionChannel(ctx.connections.sessions, identity, command, holders)
    return UpgradeResponse(channel, accept, PROTOCOL)


async def host_command(
    connections: ConnectionContext, row: JobRow, role: str, index: int, *, terminal: bool
) -> Sequence[str]:
    """Command line of a session host in a task; raises Conflict if the task is not running."""
    return await _host_command(
        connections, await running_task(connections.store, row, role, index, EXEC), terminal=terminal
    )


async def _host_command(
    connections: ConnectionContext, task: ReachableTask, *, terminal: bool
) -> Sequence[str]:
    return await task.command(lambda uid: connections.engines.session_command(uid, terminal=terminal))
