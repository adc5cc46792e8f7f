"""Route for SSH: addresses of a job's tasks and a link to the key; also what version 1 responds with."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

from msgspec import UNSET, UnsetType
from starlette.requests import Request

from paicluster.api.context import ClusterNodes, context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.requests.own_url import own_url
from paicluster.api.requests.permissions import check_may_see
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import Routes
from paicluster.api.v2.job_detail import port_lists
from paicluster.api.wire.jobs import SshContainer, SshInfo, SshKeyPair
from paicluster.auth.tokens import Identity, TokenKind
from paicluster.services.admission import no_job
from paicluster.store import jobs
from paicluster.store.rows import JobRow, TaskRow
from paiprotocol.errors import NotFound

route = Routes("job")

_TICKET_LIFETIME_S = 3600
_SSH_GREETING = b"SSH-"
_PROBE_TIMEOUT_S = 2.0
_MAX_PROBES = 64

# Separates the job from the task in the user name of an SSH client; in no name of a job or a role.
TASK_SEPARATOR = "+"

_NOT_SERVED = (
    "The cluster has no SSH endpoint, and no task serves SSH itself. pai exec -t opens a shell without it; "
    "for SSH the server needs its extra (pip install 'openpaisdk[ssh]') and a restart."
)


@route(
    "GET /api/v2/jobs/{framework}/ssh",
    authority=JOBS,
    summary="Get the SSH addresses of a job's tasks",
)
async def ssh(request: Request) -> SshInfo:
    identity = await authenticate(request)
    framework = request.path_params["framework"]
    row = await context(request).store.read(lambda conn: jobs.get_job(conn, framework))
    if row is None:
        raise no_job(framework)
    check_may_see(identity, row)
    return await ssh_info(request, identity, row)


async def ssh_info(request: Request, identity: Identity, row: JobRow) -> SshInfo:
    """Addresses of the tasks of a job that SSH reaches. Only the job's user gets the link to the key.

    A task that serves SSH itself, at the port that it has for this, is reached there, with the key of its
    user; all others through the endpoint of the cluster, with the key of the job.
    """
    identity.check_enabled("the user's jobs have no SSH")
    ctx = context(request)
    tasks = await ctx.store.read(lambda conn: jobs.tasks_of(conn, row.id, row.attempt))
    running = [task for task in tasks if task.launched_ms is not None and not task.ended]
    containers = await _own_servers(running, ctx.capacity.nodes)
    is_of_job = not containers
    host_key: str | UnsetType = UNSET
    if is_of_job and running:
        port = await ctx.ssh.port()
        if port is None:
            raise no_ssh(row, _NOT_SERVED)
        host = urlsplit(own_url(request)).hostname or ""
        containers = [
            SshContainer(task.uid, host, str(port), user=user_name(row.framework, task.role, task.task_index))
            for task in running
        ]
        host_key = ctx.ssh.keys.of_host().public
    if not containers:
        raise no_ssh(row, "No task of the job is running.")
    key_pair = SshKeyPair(
        folder_path=f"/ssh-keys/{row.framework}",
        public_key_file_name=f"{row.framework}.pub",
        private_key_file_name=row.framework,
        private_key_direct_download_link=_key_link(request, identity, row, is_of_job=is_of_job),
    )
    return SshInfo(containers, key_pair, host_key)


def user_name(framework: str, role: str, index: int) -> str:
    """The user name by which the endpoint knows a task."""
    return f"{framework}{TASK_SEPARATOR}{role}-{index}"


def no_ssh(row: JobRow, why: str) -> NotFound:
    return NotFound(f"SSH info of job {row.framework} is not found.", code="NoJobSshInfoError", hint=why)


def key_ticket_subject(row: JobRow, *, is_of_job: bool) -> str:
    """What a ticket permits: the key of the job, or that of its user."""
    return f"ssh{'-job' if is_of_job else ''}:{row.id}:{row.framework}"


def _key_link(request: Request, identity: Identity, row: JobRow, *, is_of_job: bool) -> str:
    """Link to the private key; empty for callers that do not get it.

    The key of a job opens what `exec` does: programs of its user, and the job itself, get it. The key of a
    user opens other jobs as well, so only the user gets it.
    """
    may_have = (
        identity.kind in (TokenKind.LOGIN, TokenKind.APPLICATION) or identity.job_id == row.id
        if is_of_job
        else identity.kind is TokenKind.LOGIN
    )
    if identity.username != row.username or not may_have:
        return ""
    subject = key_ticket_subject(row, is_of_job=is_of_job)
    ticket = context(request).identity.tickets.issue(subject, _TICKET_LIFETIME_S, holder=identity.token_id)
    return f"{own_url(request)}/ssh-keys/{ticket}/{row.framework}?op=OPEN"


async def _own_servers(tasks: Sequence[TaskRow], nodes: ClusterNodes) -> list[SshContainer]:
    """Addresses of the tasks that serve SSH themselves, which only a connection can tell.

    On Slurm a task reports its own address, which could be any: the server connects to those of nodes only.
    """
    named = [(task, port) for task in tasks if (port := port_lists(task.ports).get("ssh"))]
    if not named:
        return []
    addresses = {node.name: node.ip for node in await nodes.current()}
    candidates = [
        SshContainer(task.uid, addresses[task.node], port)
        for task, port in named
        if task.node is not None and task.node in addresses
    ]
    slots = asyncio.Semaphore(_MAX_PROBES)
    answers = await asyncio.gather(
        *(_serves_ssh(one.ssh_ip, int(one.ssh_port.partition(",")[0]), slots) for one in candidates)
    )
    return [one for one, is_served in zip(candidates, answers, strict=True) if is_served]


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
