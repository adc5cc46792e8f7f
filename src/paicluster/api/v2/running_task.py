"""The running task that a request names, for what reaches into it."""

from __future__ import annotations

import asyncio

import msgspec
from sqlalchemy import Connection
from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.middleware.audit import set_subject
from paicluster.api.requests.authentication import authenticate
from paicluster.api.requests.permissions import check_owner_or_admin
from paicluster.api.v2.follow import job_and_roles, selected_task
from paicluster.auth.tokens import Identity
from paicluster.store import Store, jobs
from paicluster.store.rows import JobRow, TaskRow
from paiprotocol.errors import Conflict, Forbidden, NotFound, PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NOT_RUNNING = "TaskNotRunningError"


class Purpose(msgspec.Struct, frozen=True):
    """What a request wants of a task, in the words of its errors."""

    # What a user may not do with the job of another one.
    action: str
    # What cannot be done with a task that does not run.
    consequence: str


class ReachableTask(msgspec.Struct, frozen=True):
    job: JobRow
    role: str
    index: int
    # Of its attempt.
    uid: str
    # A task runs a moment before its start is recorded; its engine knows whether it does.
    is_start_recorded: bool
    purpose: Purpose
    # By label, as JSON.
    ports: str = "{}"

    def __str__(self) -> str:
        return f"{self.role}[{self.index}] of job {self.job.framework}"

    async def command(self, of: Callable[[str], Sequence[str] | None]) -> Sequence[str]:
        """A command line that its engine gives for this task.

        Not on the event loop: the engine looks into the task's folder, whose file system may not answer.
        """
        try:
            command = await asyncio.to_thread(of, self.uid)
        except NotFound:  # it is about to start, or has just ended
            if not self.is_start_recorded:
                raise _not_started(str(self), self.job, self.purpose) from None
            hint = f"pai job-status {self.job.name} shows its state."
            raise _not_running(str(self), "is not running", self.purpose, hint) from None
        if command is None:
            raise PaiError(f"The engine of this job cannot {self.purpose.action} it.", status=501)
        return command


async def requested_task(request: Request, purpose: Purpose) -> tuple[Identity, ReachableTask]:
    """The caller and the task of a request; raises for callers who may not enter the job."""
    identity = await authenticate(request)
    ctx = context(request)
    framework = request.path_params["framework"]
    row, roles = await ctx.store.read(lambda conn: job_and_roles(conn, framework))
    check_may_enter(identity, row, purpose)
    get = request.query_params.get
    role, index = selected_task(row, roles, get("role"), get("index"))
    set_subject(request, f"{role}[{index}]")
    return identity, await running_task(ctx.store, row, role, index, purpose)


async def running_task(store: Store, row: JobRow, role: str, index: int, purpose: Purpose) -> ReachableTask:
    """A task of a job; raises Conflict if none may be running. Who may enter it was checked before."""
    task = await store.read(lambda conn: _current_attempt(conn, row, role, index, purpose))
    is_start_recorded = task.launched_ms is not None
    return ReachableTask(row, role, index, task.uid, is_start_recorded, purpose, task.ports or "{}")


def check_may_enter(identity: Identity, row: JobRow, purpose: Purpose) -> None:
    """The owner and administrators may; of jobs only the job itself, since a task may run untrusted code, and
    only while its user is not disabled, who may have copied the token."""
    identity.check_enabled(f"no token of the user may {purpose.action} a job")
    check_owner_or_admin(identity, row, purpose.action)
    if identity.job_id is not None and identity.job_id != row.id:
        raise Forbidden(f"A job is not allowed to {purpose.action} another job.")


def _current_attempt(conn: Connection, row: JobRow, role: str, index: int, purpose: Purpose) -> TaskRow:
    name = f"{role}[{index}] of job {row.framework}"
    attempts = jobs.task_attempts_of(conn, row.id, row.attempt, role, index)
    task = attempts[0] if attempts else None
    if task is not None and task.ended:
        hint = f"pai logs {row.name} shows what it wrote; pai resubmit {row.name} runs it again."
        raise _not_running(name, "has already ended", purpose, hint)
    if task is None:
        raise _not_started(name, row, purpose)
    return task


def _not_started(task: str, row: JobRow, purpose: Purpose) -> Conflict:
    return _not_running(task, "has not started yet", purpose, f"pai job-status {row.name} says why it waits.")


def _not_running(task: str, why: str, purpose: Purpose, hint: str) -> Conflict:
    return Conflict(f"Task {task} {why}, so {purpose.consequence}.", code=NOT_RUNNING, hint=hint)
