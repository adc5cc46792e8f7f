"""PaddleCloud's dialect. Its replies are 200 with a ``code``; keys have the names that its clients read."""

import re
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paicluster.api.wire.body_decoder import Field
from paiprotocol.errors import InvalidParameters

_REGISTRY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,199}")
_MAX_LENGTH = 4096


# Readers of fields, with this dialect's messages. A missing field and null are as any other wrong value.


def _read_text(value: Any, field: Field) -> str:
    if not isinstance(value, str) or not value or len(value) > _MAX_LENGTH:
        raise InvalidParameters(f"{field.path} must be text of 1 to {_MAX_LENGTH} characters.")
    return value


def _read_registry_name(value: Any, field: Field) -> str:
    name = _read_text(value, field)
    if not _REGISTRY_NAME.fullmatch(name):
        raise InvalidParameters("name must be the name of a registry: letters, digits, '.' and '-'.")
    return name


def _read_path(value: Any, field: Field) -> str:
    if not isinstance(value, str):
        raise InvalidParameters(f"{field.path} must be the path of a file.")
    return value


def _read_job_name(value: Any, field: Field) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidParameters(f"{field.path} must be the name of a job.")
    return value


def _read_flag(value: Any, field: Field) -> bool:
    if not isinstance(value, bool):
        raise InvalidParameters(f"{field.path} must be true or false.")
    return value


_Text = Annotated[str, Meta(extra={"read": _read_text, "absent": None})]
_RegistryName = Annotated[str, Meta(extra={"read": _read_registry_name, "absent": None})]
_Path = Annotated[str, Meta(extra={"read": _read_path, "absent": None})]
_JobName = Annotated[str, Meta(extra={"read": _read_job_name, "absent": None})]
_Flag = Annotated[bool, Meta(extra={"read": _read_flag})]


class PaddleReply(msgspec.Struct):
    """``code`` is 200, or the status of an error; ``msg`` is then a sentence, else empty or "OK"."""

    code: int
    msg: str


class PaddleJobReply(msgspec.Struct):
    """Reply about one job; an error has no ``name``."""

    code: int
    msg: str
    name: str | UnsetType = UNSET
    # Our addition.
    warnings: list[str] | UnsetType = UNSET


class PaddleLogin(msgspec.Struct):
    username: Annotated[str, Meta(min_length=1)]
    password: str


class PaddleToken(msgspec.Struct):
    token: str


class PaddleLoginProblem(msgspec.Struct):
    non_field_errors: list[str]


class PaddleUser(msgspec.Struct):
    user: str


class PaddleUnauthorized(msgspec.Struct):
    detail: str
    code: int
    msg: str


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


class PaddleRemoval(msgspec.Struct):
    rm: _Flag | UnsetType = UNSET


class PaddleKillBody(msgspec.Struct):
    jobname: _JobName
    rm: _Flag | UnsetType = UNSET


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
    package_copy: str
    state: str
    created: str
    started: str | None


class ObjectMetadata(msgspec.Struct):
    name: str
    namespace: str
    creation_timestamp: str
    labels: dict[str, str]


class JobObjectStatus(msgspec.Struct):
    active: int | None
    succeeded: int | None
    failed: int | None
    start_time: str | None
    completion_time: str | None
    state: str


class JobObjectSpec(msgspec.Struct):
    parallelism: int
    completions: int


class PaddleJobObject(msgspec.Struct):
    """A batch/v1 Job of Kubernetes, as far as clients read it."""

    metadata: ObjectMetadata
    spec: JobObjectSpec
    status: JobObjectStatus


class PaddleJobs(msgspec.Struct):
    code: int
    msg: list[PaddleJobSummary]
    items: list[PaddleJobObject]
    terminating: list[str]


class ReplicaStatus(msgspec.Struct):
    replicas: int
    ready_replicas: int | None


class PaddleReplicaSet(msgspec.Struct):
    metadata: ObjectMetadata
    status: ReplicaStatus


class PaddlePservers(msgspec.Struct):
    code: int
    msg: str
    items: list[PaddleReplicaSet]


class Terminated(msgspec.Struct):
    # None of a task that waits: its reason is shown as the message of an end.
    exit_code: int | None
    message: str | None
    finished_at: str | None


class ContainerState(msgspec.Struct):
    terminated: Terminated | None


class ContainerStatus(msgspec.Struct):
    name: str
    restart_count: int
    state: ContainerState


class PodSpec(msgspec.Struct):
    node_name: str | None


class PodStatus(msgspec.Struct):
    phase: str
    message: str | None
    start_time: str | None
    pod_ip: str | None
    host_ip: str | None
    container_statuses: list[ContainerStatus]


class PaddlePod(msgspec.Struct):
    metadata: ObjectMetadata
    spec: PodSpec
    status: PodStatus


class PaddleWorkers(msgspec.Struct):
    code: int
    msg: str
    items: list[PaddlePod]


class PaddleUsage(msgspec.Struct):
    used: str
    limit: str


class QuotaMetadata(msgspec.Struct):
    name: str
    namespace: str


class QuotaSpec(msgspec.Struct):
    hard: dict[str, str]


class QuotaStatus(msgspec.Struct):
    hard: dict[str, str]
    used: dict[str, str]


class PaddleQuota(msgspec.Struct):
    metadata: QuotaMetadata
    spec: QuotaSpec
    status: QuotaStatus


class PaddleQuotas(msgspec.Struct):
    code: int
    msg: dict[str, PaddleUsage]
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


class PaddleRegistryName(msgspec.Struct):
    name: _RegistryName


class PaddleRegistryBody(msgspec.Struct):
    name: _RegistryName
    username: _Text
    password: _Text
    server: _Text


class SecretMetadata(msgspec.Struct):
    name: str
    namespace: str
    creation_timestamp: str


class PaddleSecret(msgspec.Struct):
    metadata: SecretMetadata


class Secrets(msgspec.Struct):
    items: list[PaddleSecret]


class PaddleRegistries(msgspec.Struct):
    code: int
    msg: Secrets


class PaddleFile(msgspec.Struct, rename="pascal"):
    path: str
    mod_time: int
    size: int
    is_dir: bool


class PaddlePath(msgspec.Struct):
    path: _Path


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
