"""Route that runs a command in a running task, over a WebSocket."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import Conflict, Forbidden, NotFound, PaiError
from paicluster.api.context import Context, authenticate, context
from paicluster.api.middleware.audit import set_subject
from paicluster.api.permissions import check_owner_or_admin
from paicluster.api.sessions import TOKEN_PREFIX, SessionResponse, accept_upgrade
from paicluster.api.v2.follow import job_and_roles, selected_task
from paicluster.auth.tokens import Identity
from paicluster.store import jobs
from paicluster.store.rows import JobRow, TaskRow

NOT_RUNNING = "TaskNotRunningError"


async def exec_session(request: Request) -> Response:
    """Open a session: see docs/contributing/exec-and-forward.md."""
    accept_token_protocol(request)
    identity = await authenticate(request)
    ctx = context(request)
    framework = request.path_params["framework"]
    row, roles = await ctx.store.read(lambda conn: job_and_roles(conn, framework))
    check_may_exec(identity, row)
    accept = accept_upgrade(request)
    get = request.query_params.get
    role, index = selected_task(row, roles, get("role"), get("index"))
    set_subject(request, f"{role}[{index}]")
    ctx.sessions.check_limits(identity.username)
    words = await host_command(ctx, row, role, index, terminal=get("terminal") == "true")
    return SessionResponse(ctx.sessions, identity, words, accept)


async def host_command(ctx: Context, row: JobRow, role: str, index: int, *, terminal: bool) -> Sequence[str]:
    """Command line of a session host in a task; raises Conflict if the task is not running."""
    task = await ctx.store.read(lambda conn: _running_task(conn, row, role, index))
    try:
        words = ctx.session_command(task.uid, terminal=terminal)
    except NotFound:  # it is about to start, or has just ended
        raise _not_running(row, role, index, "is not running") from None
    if words is None:
        raise PaiError("The engine of this job cannot run commands in a running task.", status=501)
    return words


def accept_token_protocol(request: Request) -> None:
    """Let a browser, which can set no header of a WebSocket, send its token as a protocol that it offers."""
    # The raw headers: what Starlette makes of them is not made again.
    headers = request.scope["headers"]
    offered = b",".join(value for name, value in headers if name == b"sec-websocket-protocol").split(b",")
    tokens = [one.strip()[len(TOKEN_PREFIX) :] for one in offered if one.strip().startswith(TOKEN_PREFIX)]
    if tokens and not any(name == b"authorization" for name, _ in headers):
        headers.append((b"authorization", b"Bearer " + tokens[0]))


def check_may_exec(identity: Identity, row: JobRow) -> None:
    """The owner and administrators may; of jobs only the job itself, since a task may run untrusted code."""
    check_owner_or_admin(identity, row, "run commands in")
    if identity.job_id is not None and identity.job_id != row.id:
        raise Forbidden("A job is not allowed to run commands in another job.")


def _running_task(conn: Connection, row: JobRow, role: str, index: int) -> TaskRow:
    attempts = jobs.task_attempts_of(conn, row.id, row.attempt, role, index)
    if not attempts:
        raise _not_running(row, role, index, "has not started yet")
    task = attempts[0]
    if task.ended:
        raise _not_running(row, role, index, "has already ended")
    if task.launched_ms is None:
        raise _not_running(row, role, index, "has not started yet")
    return task


def _not_running(row: JobRow, role: str, index: int, why: str) -> Conflict:
    return Conflict(
        f"Task {role}[{index}] of job {row.framework} {why}, so no command can be run in it.",
        code=NOT_RUNNING,
    )
