"""Routes of PaddleCloud's jobs: submit, list, kill."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request

from paicluster.api.context import Context, context
from paicluster.api.paddlecloud.cloud_paths import (
    CloudPath,
    datacenter_of,
    package_copy_path,
    package_path,
    resolve,
)
from paicluster.api.paddlecloud.cluster_objects import ListedJob
from paicluster.api.paddlecloud.job_request import PaddleJob, read_job
from paicluster.api.paddlecloud.job_translation import translate
from paicluster.api.paddlecloud.registries import credentials_of
from paicluster.api.paddlecloud.replies import has_trailing_slash, replying
from paicluster.api.requests.authentication import caller
from paicluster.api.requests.permissions import check_owner_or_admin
from paicluster.api.routing.authority import CLUSTER, JOBS
from paicluster.api.routing.route import JSON, Body, Rate, Routes
from paicluster.api.v1.jobs import stop_and_wait
from paicluster.api.v2 import jobs as v2
from paicluster.api.wire.paddlecloud import (
    PaddleJobBody,
    PaddleJobReply,
    PaddleJobs,
    PaddleKillBody,
    PaddlePservers,
    PaddleRemoval,
    PaddleUnauthorized,
)
from paicluster.api.wire.request_body import mapping_of, read_body
from paicluster.auth.tokens import Identity
from paicluster.services.file_service import storage_user
from paicluster.services.job_packages import new_folder_name
from paicluster.store import jobs
from paicluster.store.rows import JobRow
from paicluster.store.user_jobs import jobs_named, jobs_of_user
from paiprotocol.errors import NO_JOB, Conflict, InvalidParameters, NotFound
from paiprotocol.jobs.states import framework_name

route = Routes("paddlecloud", returns={401: PaddleUnauthorized}, around=replying)

_JOB_BODY = Body({JSON: PaddleJobBody})
_KILL_BODY = Body(media=(JSON,), required=False)

LIST_LIMIT = 5000
"""Jobs in a list, as many as OpenPAI's own lists have by default."""

_SUFFIX_LETTERS = string.ascii_lowercase + string.digits
_SUFFIX = re.compile(r"-[a-z0-9]{4}")
_DEFAULT_CLUSTER = "default"
_DEFAULT_DATACENTER = "datacenter"


# -- submit -----------------------------------------------------------------------------------------------


@route(
    "POST /api/v1/(jobs|trainingjobs)",
    authority=JOBS,
    summary="Submit a job",
    body=_JOB_BODY,
    rate=Rate.SUBMISSIONS,
)
async def submit(request: Request) -> PaddleJobReply:
    """Submit a job: with the Go client's path under the given name, else under one with a random suffix.

    The Go client takes any text in ``msg`` for an error; the documented reply has "OK" there.
    """
    return await _submit(request, caller(request), lambda job: None)


@route(
    "POST /v1/submit",
    authority=JOBS,
    summary="Submit a job with a topology",
    body=_JOB_BODY,
    rate=Rate.SUBMISSIONS,
)
async def submit_v1(request: Request) -> PaddleJobReply:
    """Submit a job of Paddle's API v1, which has a topology."""

    def check(job: PaddleJob) -> None:
        if not job.topology:
            raise InvalidParameters("no topology specified", hint="A job with an entry is for /v2/submit.")

    return await _submit(request, caller(request), check)


@route(
    "POST /v2/submit",
    authority=JOBS,
    summary="Submit a job with an entry",
    body=_JOB_BODY,
    rate=Rate.SUBMISSIONS,
)
async def submit_v2(request: Request) -> PaddleJobReply:
    """Submit a job of Paddle's API v2, which has an entry."""

    def check(job: PaddleJob) -> None:
        if job.is_v1:
            raise InvalidParameters("no entry specified", hint="A job with a topology is for /v1/submit.")

    return await _submit(request, caller(request), check)


async def _submit(request: Request, identity: Identity, check: Callable[[PaddleJob], None]) -> PaddleJobReply:
    ctx = context(request)
    body = await read_body(request)
    fields = mapping_of(request, body)
    job = read_job(fields)
    check(job)
    is_compatible = has_trailing_slash(request)
    job, package = await _with_package(ctx, identity, job)
    if is_compatible:
        await _free_name(ctx, identity, job.name)
    else:
        job = msgspec.structs.replace(job, name=f"{job.name}-{_suffix()}")
    folder = "" if package.is_public else new_folder_name(job.name)
    if folder:
        copy = package_copy_path(job.datacenter, identity.username, folder)
        job = msgspec.structs.replace(job, package_copy=copy)
    translated = translate(
        job,
        identity.username,
        stored_package=package.stored,
        virtual_cluster=_virtual_cluster(ctx, identity),
        login=await credentials_of(ctx, identity.username, job.registry),
        environment=_environment(fields),
    )
    text = msgspec.json.encode(translated).decode()
    parsed = await ctx.jobs.parser.parse_v2(identity.username, text)
    config = text if parsed.masked is None else parsed.masked
    user = storage_user(identity)
    is_accepted = False
    try:
        if folder:
            await ctx.jobs.packages.keep(user, package.stored, folder)
        warnings = await v2.admit(request, identity, parsed.job, parsed.text, body, config)
        is_accepted = "idempotency-key" not in request.headers  # else this may be a repetition
    finally:
        if folder and is_accepted:
            await ctx.jobs.packages.claim(folder)
        elif folder:
            await ctx.jobs.packages.discard(identity.username, folder)
    if unused := _unused_bounds(fields):
        warnings.append(
            f"This cluster keeps the number of trainers of a job ({job.parallelism}): {unused} has no effect."
        )
    return PaddleJobReply(200, "" if is_compatible else "OK", job.name, warnings or UNSET)


async def _with_package(ctx: Context, identity: Identity, job: PaddleJob) -> tuple[PaddleJob, CloudPath]:
    """The job with the path of its package, and that path, which must exist.

    Later clients send the local path of the package, and upload it to the place that the job's name gives.
    """
    given = job.job_package
    datacenter = job.datacenter or datacenter_of(given) or _DEFAULT_DATACENTER
    path = given if given.startswith("/pfs/") else package_path(datacenter, identity.username, job.name)
    package = resolve(path, identity.username)
    user = storage_user(identity)
    storage = ctx.files.own.storage
    if not storage.has_provisioned(user):
        await ctx.files.own.run(storage.provision, user)
    try:
        status = await ctx.files.own.run(storage.status, package.stored, user)
    except NotFound:
        status = None
    if status is None or not status.is_folder:
        raise NotFound(
            f"package not exist in cloud: {package.cloud}",
            hint="Upload the folder of the job there before the job is submitted.",
        )
    return msgspec.structs.replace(job, job_package=package.cloud, datacenter=datacenter), package


async def _free_name(ctx: Context, identity: Identity, name: str) -> None:
    """A killed job stays in the history, but its name can be used again, as in PaddleCloud."""
    row = await ctx.store.read(lambda conn: jobs.get_job(conn, framework_name(identity.username, name)))
    if row is None:
        return
    if row.execution_type == "STOP" and await ctx.jobs.retention.remove_job(row.id):
        return
    is_stopping = row.execution_type == "STOP"
    raise Conflict(
        f"There is a job {name} already{', which is being stopped' if is_stopping else ''}.",
        hint="Try again when it has ended."
        if is_stopping
        else f"Use another name, or remove that job with its history: paddlecloud kill -rm {name}.",
    )


def _virtual_cluster(ctx: Context, identity: Identity) -> str:
    usable = [name for name in ctx.capacity.virtual_clusters.quotas if identity.access.may_use(name)]
    return _DEFAULT_CLUSTER if _DEFAULT_CLUSTER in usable or not usable else usable[0]


def _environment(fields: dict[str, Any]) -> dict[str, Any] | None:
    """Our addition: variables of the submitting shell, for a cluster on the same machine."""
    environment = fields.get("environment")
    if environment is not None and not isinstance(environment, dict):
        raise InvalidParameters("environment must be a mapping of variables.")
    return environment


def _unused_bounds(fields: dict[str, Any]) -> str:
    """The fields that bound a changing number of trainers, if the submission has others than the defaults."""
    names = {"minInstance": "min_instance", "maxInstance": "max_instance"}
    given = [
        name for sent, name in names.items() if fields.get(sent, fields.get(name, 1)) not in (None, 0, 1)
    ]
    return " or ".join(given)


def _suffix() -> str:
    return "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(4))


# -- list -------------------------------------------------------------------------------------------------


@route(
    "GET /api/v1/(jobs|trainingjobs)",
    authority=JOBS,
    summary="List jobs",
    rate=Rate.LISTS,
)
async def list_jobs(request: Request) -> PaddleJobs:
    """The caller's jobs: in ``msg`` as documented, in ``items`` as Kubernetes has them."""
    listed = await listed_jobs(context(request), caller(request))
    return PaddleJobs(
        code=200,
        msg=[job.summary() for job in listed],
        items=[job.as_job() for job in listed if not job.is_terminating],
        terminating=[job.row.name for job in listed if job.is_terminating],
    )


@route(
    "GET /api/v1/pservers",
    authority=JOBS,
    summary="List parameter servers and masters",
    rate=Rate.LISTS,
)
async def list_pservers(request: Request) -> PaddlePservers:
    """Parameter servers and masters of the caller's jobs, as ReplicaSets."""
    listed = await listed_jobs(context(request), caller(request))
    return PaddlePservers(200, "", [replica_set for job in listed for replica_set in job.replica_sets()])


async def listed_jobs(ctx: Context, identity: Identity) -> list[ListedJob]:
    rows = await ctx.store.read(lambda conn: jobs_of_user(conn, identity.username, LIST_LIMIT))
    return [ListedJob(row) for row in rows]


# -- kill -------------------------------------------------------------------------------------------------


@route(
    "DELETE /api/v1/(jobs|trainingjobs)",
    authority=CLUSTER,
    summary="Stop a job; with rm, remove it",
    body=_KILL_BODY,
)
async def kill(request: Request, body: PaddleKillBody) -> PaddleJobReply:
    return await _kill(request, body.jobname, body.rm)


@route(
    "DELETE /api/v1/jobs/{job}",
    authority=CLUSTER,
    summary="Stop a job; with rm, remove it",
    body=_KILL_BODY,
)
async def kill_named(request: Request, body: PaddleRemoval) -> PaddleJobReply:
    return await _kill(request, request.path_params["job"], body.rm)


async def _kill(request: Request, name: str, rm: bool | UnsetType) -> PaddleJobReply:
    """Stop a job; it stays in the history unless ``rm`` is true, in the body or else in the query.

    The Go client cannot send ``rm``. For it a second kill removes the job, whose name is then free again.
    """
    ctx, identity = context(request), caller(request)
    row = await find_job(ctx, identity, name)
    check_owner_or_admin(identity, row, "kill")
    remove = request.query_params.get("rm", "").lower() in ("1", "true") if rm is UNSET else rm
    is_second = row.sub_state == "Completed" and rm is UNSET and has_trailing_slash(request)
    if not remove and not is_second:
        await v2.execute(ctx, identity, row, "STOP")
    else:
        await stop_and_wait(ctx, identity, row)
        if not await ctx.jobs.retention.remove_job(row.id):
            raise Conflict(
                f"Job {row.name} is being stopped, but has not ended yet.", hint="Remove it in a moment."
            )
    return PaddleJobReply(200, "", row.name)


async def find_job(ctx: Context, identity: Identity, name: str) -> JobRow:
    """The caller's job of this name, or the only one with this name and a suffix."""
    rows = await ctx.store.read(lambda conn: jobs_named(conn, identity.username, name, _SUFFIX))
    if not rows:
        raise NotFound(
            f"There is no job {name[:200]}.", code=NO_JOB, hint="paddlecloud get -a jobs lists yours."
        )
    if len(rows) > 1:
        names = ", ".join(row.name for row in rows[:5])
        raise InvalidParameters(f"{name} is the name of {len(rows)} jobs.", hint=f"Give one of: {names}.")
    return rows[0]
