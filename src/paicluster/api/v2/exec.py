"""Route that runs a command in a running task, over a WebSocket."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.context import Context, context
from paicluster.api.sessions import PROTOCOL, SessionChannel
from paicluster.api.v2.running_task import (
    Purpose,
    ReachableTask,
    check_may_enter,
    requested_task,
    running_task,
)
from paicluster.api.web_socket_upgrade import UpgradeResponse, accept_token_protocol, accept_upgrade
from paicluster.auth.tokens import Identity
from paicluster.store.rows import JobRow

EXEC = Purpose("run commands in", "no command can be run in it")


async def exec_session(request: Request) -> Response:
    """Open a session: see docs/contributing/exec-and-forward.md."""
    accept_token_protocol(request)
    identity, task = await requested_task(request, EXEC)
    ctx = context(request)
    # Before the upgrade is looked at: a page learns why there is no session by asking without one.
    ctx.sessions.check_limits(identity.username)
    accept = accept_upgrade(request, PROTOCOL)
    command = _host_command(ctx, task, terminal=request.query_params.get("terminal") == "true")
    return UpgradeResponse(SessionChannel(ctx.sessions, identity, command), accept, PROTOCOL)


async def host_command(ctx: Context, row: JobRow, role: str, index: int, *, terminal: bool) -> Sequence[str]:
    """Command line of a session host in a task; raises Conflict if the task is not running."""
    return _host_command(ctx, await running_task(ctx, row, role, index, EXEC), terminal=terminal)


def _host_command(ctx: Context, task: ReachableTask, *, terminal: bool) -> Sequence[str]:
    return task.command(lambda uid: ctx.session_command(uid, terminal=terminal))


def check_may_exec(identity: Identity, row: JobRow) -> None:
    """Raise Forbidden for callers who may not run commands in the job."""
    check_may_enter(identity, row, EXEC)
