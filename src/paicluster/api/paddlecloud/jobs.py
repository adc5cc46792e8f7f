"""Routes of PaddleCloud's jobs: submit, list, kill."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import NO_JOB, Conflict, InvalidParameters, NotFound
from openpaisdk.protocol.states import framework_name
from paicluster.api.context import Context, context
from paicluster.api.paddlecloud.cloud_paths import datacenter_of, package_path, resolve
from paicluster.api.paddlecloud.cluster_objects import ListedJob
from paicluster.api.paddlecloud.job_request import PaddleJob, read_job
from paicluster.api.paddlecloud.job_translation import translate
from paicluster.api.paddlecloud.registries import credentials_of
from paicluster.api.paddlecloud.replies import has_trailing_slash, paddle_route, success
from paicluster.api.permissions import check_owner_or_admin
from paicluster.api.responses import MAX_FIELDS_BYTES, json_response, mapping_of, read_body
from paicluster.api.v1.jobs import stop_and_wait
from paicluster.api.v2 import jobs as v2
from paicluster.auth.tokens import Identity
from paicluster.services.file_service import storage_user
from paicluster.store import jobs
from paicluster.store.rows import JobRow
from paicluster.store.user_jobs import jobs_named, jobs_of_user

LIST_LIMIT = 5000
"""Jobs in a list, as many as OpenPAI's own lists have by default."""

_SUFFIX_LETTERS = string.ascii_lowercase + string.digits
_SUFFIX = re.compile(r"-[a-z0-9]{4}")
_DEFAULT_CLUSTER = "default"
_DEFAULT_DATACENTER = "datacenter"


# -- submit -----------------------------------------------------------------------------------------------


@paddle_route
async def submit(request: Request, identity: Identity) -> Response:
    """Submit a job: with the Go client's path under the given name, else under one with a random suffix.

    The Go client takes any text in ``msg`` for an error; the documented reply has "OK" there.
    """
    return await _submit(request, identity, lambda job: None)


@paddle_route
async def submit_v1(request: Request, identity: Identity) -> Response:
    """Submit a job of Paddle's API v1, which has a topology."""

    def check(job: PaddleJob) -> None:
        if not job.topology:
            raise InvalidParameters("no topology specified", hint="A job with an entry is for /v2/submit.")

    return await _submit(request, identity, check)


@paddle_route
async def submit_v2(request: Request, identity: Identity) -> Response:
    """Submit a job of Paddle's API v2, which has an entry."""

    def check(job: PaddleJob) -> None:
        if job.is_v1:
            raise InvalidParameters("no entry specified", hint="A job with a topology is for /v1/submit.")

    return await _submit(request, identity, check)


async def _submit(request: Request, identity: Identity, check: Callable[[PaddleJob], None]) -> Response:
    ctx = context(request)
    body = await read_body(request, MAX_FIELDS_BYTES)
    fields = mapping_of(request, body)
    job = read_job(fields)
    check(job)
    is_compatible = has_trailing_slash(request)
    job, stored_package = await _with_package(ctx, identity, job)
    if is_compatible:
        await _free_name(ctx, identity, job.name)
    else:
        job = msgspec.structs.replace(job, name=f"{job.name}-{_suffix()}")
    translated = translate(
        job,
        identity.username,
        stored_package=stored_package,
        virtual_cluster=_virtual_cluster(ctx, identity),
        login=await credentials_of(ctx, identity.username, job.registry),
        environment=_environment(fields),
    )
    text = msgspec.json.encode(translated).decode()
    parsed = await ctx.job_parser.parse_v2(identity.username, text)
    config = text if parsed.masked is None else parsed.masked
    warnings = await v2.admit(request, identity, parsed.job, parsed.text, body, config)
    reply = {"code": 200, "msg": "" if is_compatible else "OK", "name": job.name}
    return json_response({**reply, "warnings": warnings} if warnings else reply)


async def _with_package(ctx: Context, identity: Identity, job: PaddleJob) -> tuple[PaddleJob, str]:
    """The job with the path of its package, and that path on the storage, where it must exist.

    Later clients send the local path of the package, and upload it to the place that the job's name gives.
    """
    given = job.job_package
    datacenter = job.datacenter or datacenter_of(given) or _DEFAULT_DATACENTER
    path = given if given.startswith("/pfs/") else package_path(datacenter, identity.username, job.name)
    package = resolve(path, identity.username)
    user = storage_user(identity)
    storage = ctx.files.storage
    if not storage.has_provisioned(user):
        await ctx.files.run(storage.provision, user)
    try:
        status = await ctx.files.run(storage.status, package.stored, user)
    except NotFound:
        status = None
    if status is None or not status.is_folder:
        raise NotFound(
            f"package not exist in cloud: {package.cloud}",
            hint="Upload the folder of the job there before the job is submitted.",
        )
    return msgspec.structs.replace(job, job_package=package.cloud, datacenter=datacenter), package.stored


async def _free_name(ctx: Context, identity: Identity, name: str) -> None:
    """A killed job stays in the history, but its name can be used again, as in PaddleCloud."""
    row = await ctx.store.read(lambda conn: jobs.get_job(conn, framework_name(identity.username, name)))
    if row is None:
        return
    if row.execution_type == "STOP" and await ctx.remove_job(row.id):
        return
    is_stopping = row.execution_type == "STOP"
    raise Conflict(
        f"There is a job {name} already{', which is being stopped' if is_stopping else ''}.",
        hint="Try again when it has ended." if is_stopping else "Use another name, or kill that job first.",
    )


def _virtual_cluster(ctx: Context, identity: Identity) -> str:
    usable = [name for name in ctx.quotas if identity.access.may_use(name)]
    return _DEFAULT_CLUSTER if _DEFAULT_CLUSTER in usable or not usable else usable[0]


def _environment(fields: dict[str, Any]) -> dict[str, Any] | None:
    """Our addition: variables of the submitting shell, for a cluster on the same machine."""
    environment = fields.get("environment")
    if environment is not None and not isinstance(environment, dict):
        raise InvalidParameters("environment must be a mapping of variables.")
    return environment


def _suffix() -> str:
    return "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(4))


# -- list -------------------------------------------------------------------------------------------------


@paddle_route
async def list_jobs(request: Request, identity: Identity) -> Response:
    """The caller's jobs: in ``msg`` as documented, in ``items`` as Kubernetes has them."""
    found = await listed_jobs(context(request), identity)
    return json_response(
        {
            "code": 200,
            "msg": [job.summary() for job in found],
            "items": [job.as_job() for job in found if not job.is_terminating],
            "terminating": [job.row.name for job in found if job.is_terminating],
        }
    )


@paddle_route
async def list_pservers(request: Request, identity: Identity) -> Response:
    """Parameter servers and masters of the caller's jobs, as ReplicaSets."""
    found = await listed_jobs(context(request), identity)
    return success(items=[one for job in found for one in job.replica_sets()])


async def listed_jobs(ctx: Context, identity: Identity) -> list[ListedJob]:
    found = await ctx.store.read(lambda conn: jobs_of_user(conn, identity.username, LIST_LIMIT))
    return [ListedJob(job) for job in found]


# -- kill -------------------------------------------------------------------------------------------------


@paddle_route
async def kill(request: Request, identity: Identity) -> Response:
    """Stop a job; it stays in the history unless ``rm`` is true.

    The Go client cannot send ``rm``. For it a second kill removes the job, whose name is then free again.
    """
    fields = mapping_of(request, body) if (body := await read_body(request, MAX_FIELDS_BYTES)).strip() else {}
    name = request.path_params.get("job") or fields.get("jobname")
    remove = fields.get("rm", request.query_params.get("rm", "").lower() in ("1", "true"))
    if not isinstance(name, str) or not name:
        raise InvalidParameters("jobname must be the name of a job.")
    if not isinstance(remove, bool):
        raise InvalidParameters("rm must be true or false.")
    ctx = context(request)
    row = await find_job(ctx, identity, name)
    check_owner_or_admin(identity, row, "kill")
    is_second = row.sub_state == "Completed" and "rm" not in fields and has_trailing_slash(request)
    if not remove and not is_second:
        await v2.execute(ctx, identity, row, "STOP")
    else:
        await stop_and_wait(ctx, identity, row)
        if not await ctx.remove_job(row.id):
            raise Conflict(
                f"Job {row.name} is being stopped, but has not ended yet.", hint="Remove it in a moment."
            )
    return success(name=row.name)


async def find_job(ctx: Context, identity: Identity, name: str) -> JobRow:
    """The caller's job of this name, or the only one with this name and a suffix."""
    found = await ctx.store.read(lambda conn: jobs_named(conn, identity.username, name, _SUFFIX))
    if not found:
        raise NotFound(
            f"There is no job {name[:200]}.", code=NO_JOB, hint="paddlecloud get -a jobs lists yours."
        )
    if len(found) > 1:
        names = ", ".join(row.name for row in found[:5])
        raise InvalidParameters(f"{name} is the name of {len(found)} jobs.", hint=f"Give one of: {names}.")
    return found[0]
