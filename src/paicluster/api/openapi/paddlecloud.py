"""PaddleCloud's dialect. Its replies are 200 with a ``code``; keys have the names that its clients read."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from paicluster.api.openapi.operation import JSON, Body, Either, Operation, Query, Text, json_or_form

_TAG = "paddlecloud"


class PaddleReply(msgspec.Struct):
    """``code`` is 200, or the status of an error; ``msg`` is then a sentence, else empty or "OK"."""

    code: int
    msg: str


class PaddleLogin(msgspec.Struct):
    username: str
    password: str


class PaddleToken(msgspec.Struct):
    token: str


class PaddleLoginProblem(msgspec.Struct):
    non_field_errors: list[str]


class PaddleUser(msgspec.Struct):
    user: str


class PaddleUnauthorized(msgspec.Struct):
    detail: str


class PaddleJobBody(msgspec.Struct):
    """Fields of either spelling; others are ignored."""

    name: str | UnsetType = UNSET
    job_package: str | UnsetType = UNSET
    jobPackage: str | UnsetType = UNSET  # noqa: N815 - the name on the wire
    datacenter: str | UnsetType = UNSET
    parallelism: int | UnsetType = UNSET
    cpu: int | UnsetType = UNSET
    gpu: int | UnsetType = UNSET
    memory: str | UnsetType = UNSET
    pservers: int | UnsetType = UNSET
    pscpu: int | UnsetType = UNSET
    psmemory: str | UnsetType = UNSET
    entry: str | UnsetType = UNSET
    topology: str | UnsetType = UNSET
    passes: int | UnsetType = UNSET
    image: str | UnsetType = UNSET
    registry: str | UnsetType = UNSET
    faulttolerant: bool | UnsetType = UNSET


class PaddleKillBody(msgspec.Struct):
    jobname: str
    rm: bool | UnsetType = UNSET


class PaddleJobSummary(msgspec.Struct):
    name: str
    job_package: str
    datacenter: str
    parallelism: int
    cpu: int
    gpu: int
    memory: str
    pservers: int
    pscpu: int
    psmemory: str
    entry: str
    topology: str
    passes: int
    image: str
    registry: str
    faulttolerant: bool
    state: str


class _Metadata(msgspec.Struct):
    name: str
    namespace: str
    creation_timestamp: str
    labels: dict[str, str]


class _JobStatus(msgspec.Struct):
    active: int | None
    succeeded: int | None
    failed: int | None
    start_time: str | None
    completion_time: str | None
    state: str


class _JobSpec(msgspec.Struct):
    parallelism: int
    completions: int


class PaddleJobObject(msgspec.Struct):
    """A batch/v1 Job of Kubernetes, as far as clients read it."""

    metadata: _Metadata
    spec: _JobSpec
    status: _JobStatus


class PaddleJobs(msgspec.Struct):
    code: int
    msg: list[PaddleJobSummary]
    items: list[PaddleJobObject]
    terminating: list[str]


class _ReplicaStatus(msgspec.Struct):
    replicas: int
    ready_replicas: int | None


class PaddleReplicaSet(msgspec.Struct):
    metadata: _Metadata
    status: _ReplicaStatus


class PaddlePservers(msgspec.Struct):
    code: int
    msg: str
    items: list[PaddleReplicaSet]


class _Terminated(msgspec.Struct):
    exit_code: int
    message: str | None
    finished_at: str | None


class _ContainerState(msgspec.Struct):
    terminated: _Terminated | None


class _ContainerStatus(msgspec.Struct):
    name: str
    restart_count: int
    state: _ContainerState


class _PodSpec(msgspec.Struct):
    node_name: str | None


class _PodStatus(msgspec.Struct):
    phase: str
    message: str | None
    start_time: str | None
    pod_ip: str | None
    host_ip: str | None
    container_statuses: list[_ContainerStatus]


class PaddlePod(msgspec.Struct):
    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus


class PaddleWorkers(msgspec.Struct):
    code: int
    msg: str
    items: list[PaddlePod]


class _Usage(msgspec.Struct):
    used: str
    limit: str


class _QuotaMetadata(msgspec.Struct):
    name: str
    namespace: str


class _QuotaSpec(msgspec.Struct):
    hard: dict[str, str]


class _QuotaStatus(msgspec.Struct):
    hard: dict[str, str]
    used: dict[str, str]


class PaddleQuota(msgspec.Struct):
    metadata: _QuotaMetadata
    spec: _QuotaSpec
    status: _QuotaStatus


class PaddleQuotas(msgspec.Struct):
    code: int
    msg: dict[str, _Usage]
    items: list[PaddleQuota]


class PaddleNames(msgspec.Struct):
    code: int
    msg: str
    items: list[str]


class PaddlePublished(msgspec.Struct):
    """Paths and URLs, in the same order."""

    files: list[str]
    urls: list[str]


class PaddleUrl(msgspec.Struct):
    url: str


class PaddleRegistryBody(msgspec.Struct):
    name: str
    username: str | UnsetType = UNSET
    password: str | UnsetType = UNSET
    server: str | UnsetType = UNSET


class _SecretMetadata(msgspec.Struct):
    name: str
    namespace: str
    creation_timestamp: str


class PaddleSecret(msgspec.Struct):
    metadata: _SecretMetadata


class _Secrets(msgspec.Struct):
    items: list[PaddleSecret]


class PaddleRegistries(msgspec.Struct):
    code: int
    msg: _Secrets


class PaddleFile(msgspec.Struct, rename="pascal"):
    path: str
    mod_time: int
    size: int
    is_dir: bool


class PaddlePath(msgspec.Struct):
    path: str


class PaddleChunkMeta(msgspec.Struct):
    offset: int
    checksum: str
    len: int


class PaddleFilesReply(msgspec.Struct, forbid_unknown_fields=True):
    err: str
    results: list[PaddleFile] | PaddleFile | None


class PaddleChangeReply(msgspec.Struct, forbid_unknown_fields=True):
    err: str
    results: list[PaddlePath] | PaddlePath | None


class PaddleChunkMetaReply(msgspec.Struct, forbid_unknown_fields=True):
    err: str
    results: PaddleChunkMeta | None


class PaddleEmptyReply(msgspec.Struct, forbid_unknown_fields=True):
    err: str
    results: None


class PaddleChangeBody(msgspec.Struct):
    """``method``: mkdir and rm with a list of paths, touch with one and a size, mv with ``dest``."""

    method: str
    path: list[str] | str
    filesize: int | UnsetType = UNSET
    r: bool | UnsetType = UNSET
    dest: str | UnsetType = UNSET


_UNAUTHORIZED = {401: PaddleUnauthorized}
_JOB_BODY = Body({JSON: PaddleJobBody})
_FORM = "multipart/form-data"
_DOWNLOAD = Text("application/force-download", binary=True)
_PATH = Query("path", required=True, description="/pfs/DATACENTER/home/USER/…, or …/public/…")
_CHUNK = (
    Query("path", required=True),
    Query("offset", int, required=True),
    Query("chunksize", int, required=True),
)
_JOB_NAME = Query("jobname", description="The name of a job, without its suffix if that is unambiguous.")


def _operation(summary: str, reply: Any, not_found: Any = None, **more: Any) -> Operation:
    responses = {200: reply, **_UNAUTHORIZED}
    return Operation(summary, _TAG, responses if not_found is None else {**responses, 404: not_found}, **more)


def _files_operation(summary: str, reply: Any, refused: tuple[int, ...] = (405,), **more: Any) -> Operation:
    statuses = dict.fromkeys((401, *refused), PaddleEmptyReply)
    return Operation(summary, _TAG, {200: reply, **statuses}, **more)


OPERATIONS: dict[str, Operation] = {
    "paddlecloud.login.api_token_auth": Operation(
        "Get the token of a user",
        _TAG,
        {200: PaddleToken, 400: PaddleLoginProblem},
        body=json_or_form(PaddleLogin),
        token=False,
    ),
    "paddlecloud.login.token2user": _operation("Get the user of a token", PaddleUser),
    "paddlecloud.jobs.submit": _operation("Submit a job", PaddleReply, body=_JOB_BODY),
    "paddlecloud.jobs.submit_v1": _operation("Submit a job with a topology", PaddleReply, body=_JOB_BODY),
    "paddlecloud.jobs.submit_v2": _operation("Submit a job with an entry", PaddleReply, body=_JOB_BODY),
    "paddlecloud.jobs.list_jobs": _operation("List jobs", PaddleJobs),
    "paddlecloud.jobs.list_pservers": _operation("List parameter servers and masters", PaddlePservers),
    "paddlecloud.jobs.kill": _operation(
        "Stop a job; with rm, remove it", PaddleReply, body=Body({JSON: PaddleKillBody}, required=False)
    ),
    "paddlecloud.workers.list_workers": _operation("List tasks", PaddleWorkers, query=(_JOB_NAME,)),
    "paddlecloud.workers.logs": _operation(
        "Read the last lines of a job's trainers",
        PaddleReply,
        query=(
            _JOB_NAME,
            Query("n", int, description="Lines of each trainer; 10 by default."),
            Query("w", description="The name of one worker."),
        ),
    ),
    "paddlecloud.workers.quota": _operation("Get the use of quotas", PaddleQuotas),
    "paddlecloud.files.get_file": _operation(
        "Read a file", (_DOWNLOAD, PaddleReply), query=(_PATH,), not_found=PaddleReply
    ),
    "paddlecloud.files.put_file": _operation(
        "Store a file", PaddleReply, query=(_PATH,), body=Body({_FORM: Text(_FORM, binary=True)})
    ),
    "paddlecloud.files.list_names": _operation("List the names in a folder", PaddleNames, query=(_PATH,)),
    "paddlecloud.files.list_published": _operation("List published files", PaddlePublished),
    "paddlecloud.files.publish": _operation(
        "Publish a file", Either(PaddleUrl, PaddleReply), body=Body({JSON: PaddlePath})
    ),
    "paddlecloud.files.get_published": Operation(
        "Read a published file",
        _TAG,
        {200: _DOWNLOAD, 404: PaddleReply},
        query=(Query("uuid", required=True),),
        token=False,
    ),
    "paddlecloud.registries.list_registries": _operation("List image registries", PaddleRegistries),
    "paddlecloud.registries.put_registry": _operation(
        "Store the credentials of an image registry", PaddleReply, body=Body({JSON: PaddleRegistryBody})
    ),
    "paddlecloud.registries.delete_registry": _operation(
        "Delete the credentials of an image registry", PaddleReply, body=Body({JSON: PaddleRegistryBody})
    ),
    "paddlecloud.chunks.get_files": _files_operation(
        "List files (method=ls), or get one (method=stat)",
        PaddleFilesReply,
        query=(
            Query("method", required=True),
            Query("arg", description="A path to list, with wildcards; may be repeated."),
            Query("r", bool, description="Whether to list recursively."),
            Query("path", description="The file of method=stat."),
        ),
    ),
    "paddlecloud.chunks.change_files": _files_operation(
        "Create folders, create, resize or rename a file, remove files",
        PaddleChangeReply,
        body=Body({JSON: PaddleChangeBody}),
    ),
    "paddlecloud.chunks.chunk_meta": _files_operation(
        "Get the checksum of a chunk",
        PaddleChunkMetaReply,
        query=(Query("method", required=True), *_CHUNK),
    ),
    "paddlecloud.chunks.get_chunk": Operation(
        "Read a chunk, as a multipart body",
        _TAG,
        {200: (PaddleEmptyReply, Text()), 401: PaddleEmptyReply},
        query=_CHUNK,
    ),
    "paddlecloud.chunks.put_chunk": _files_operation(
        "Write a chunk into a file",
        PaddleEmptyReply,
        body=Body({_FORM: Text(_FORM, binary=True)}),
        refused=(400,),
    ),
}
