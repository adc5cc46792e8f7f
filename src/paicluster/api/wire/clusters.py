"""Virtual clusters, nodes, storages, alerts."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paicluster.api.wire import body_decoder
from paicluster.api.wire.base import GroupName, Name, OpenModel, WireModel
from paicluster.api.wire.body_decoder import Field
from paicluster.api.wire.jobs import Count

Percent = Annotated[float, Meta(ge=0, le=100)]


class VirtualClusterResources(WireModel):
    cpu: float
    memory: float
    gpu: Count
    v_cores: float
    gpus: Count = msgspec.field(name="GPUs")


class VirtualCluster(WireModel):
    capacity: float
    max_capacity: float
    used_capacity: float
    dedicated: bool
    resources_used: VirtualClusterResources
    resources_guaranteed: VirtualClusterResources
    resources_total: VirtualClusterResources


class NodeUse(WireModel):
    """What tasks requested of a node; memory in MB."""

    gpu_used: Count
    gpu_available: int
    gpu_total: Count
    cpu_used: Count
    cpu_total: Count
    memory_used: Count
    memory_total: Count


class Sku(WireModel):
    cpu: Count
    memory: Count
    gpu: Count


def _max_capacity(value: Any, field: Field) -> float:
    return body_decoder.number(value, field, minimum=field.read["vc_capacity"], maximum=100)


class VirtualClusterBody(WireModel):
    vc_capacity: Percent
    vc_max_capacity: Annotated[float, Meta(ge=0, le=100, extra={"read": _max_capacity})] | UnsetType = UNSET
    description: str | UnsetType = UNSET
    external_name: str | UnsetType = UNSET


class VirtualClusterStatusBody(WireModel):
    # Another one is an error of its own.
    vc_status: Annotated[str, Meta(extra_json_schema={"enum": ["running", "stopped"]})]


class StorageSummary(WireModel):
    name: str
    share: bool
    volume_name: str
    default: bool


class StorageList(WireModel):
    storages: list[StorageSummary]


class StorageEntry(WireModel):
    name: str
    type: Literal["file", "directory"]
    size: int
    # Milliseconds since the epoch; 0 for folders.
    modified_time: int


class StorageEntries(WireModel):
    """``file``: the path is a file. ``next`` is the cursor of the next page, and empty at the end.
    ``isTruncated``: the folder has more entries, which are not listed."""

    file: StorageEntry | None
    entries: list[StorageEntry]
    next: str
    is_truncated: bool


class DeletedObjects(WireModel):
    """What one request has deleted; repeat it until it is complete."""

    deleted: int
    is_complete: bool


class MovedObjects(WireModel):
    """What one request has moved; repeat it with ``resume=true`` until it is complete."""

    moved: int
    is_complete: bool


class UploadOffset(WireModel):
    # Bytes of the file that have arrived.
    offset: int


class StoredFile(WireModel):
    size: int


class ContentLink(WireModel):
    # Relative to the cluster's address; valid for ten minutes.
    url: str


class StorageDetail(StorageSummary):
    type: str
    data: dict[str, Any]
    read_only: bool
    mount_options: list[str] | UnsetType = UNSET
    secret_name: str | UnsetType = UNSET


class MountInfo(WireModel):
    mount_point: str
    path: str
    server: str
    permission: Literal["rw", "ro"]


class LegacyStorageConfig(WireModel):
    name: str
    default: bool
    servers: list[str]
    mount_infos: list[MountInfo]
    gpn: str | UnsetType = UNSET


class NewMountInfo(WireModel, kw_only=True):
    mount_point: Annotated[str, Meta(min_length=1)]
    path: str | UnsetType = UNSET
    server: Name
    permission: Literal["rw", "ro"] | UnsetType = UNSET


class NewLegacyStorageConfig(WireModel):
    name: GroupName
    default: bool | UnsetType = UNSET
    servers: list[Name] | UnsetType = UNSET
    mount_infos: list[NewMountInfo] | UnsetType = UNSET
    gpn: GroupName | UnsetType = UNSET


class NewLegacyStorageServer(WireModel):
    spn: Name
    type: Literal["nfs", "samba", "azurefile", "azureblob", "hdfs"]
    data: dict[str, Any]
    extension: dict[str, Any] | UnsetType = UNSET


class ConfigNameBody(msgspec.Struct):
    name: GroupName


class ServerNameBody(msgspec.Struct):
    spn: Name


class LegacyStorageServer(WireModel):
    spn: str
    type: str
    data: dict[str, Any]
    extension: dict[str, Any]


def _strings(value: Any, field: Field) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


class StorageNamesBody(msgspec.Struct):
    names: Annotated[list[str], Meta(extra={"read": _strings})] | UnsetType = UNSET


class AlertStatus(WireModel):
    state: Literal["active", "suppressed", "unprocessed"]
    silenced_by: list[str]
    inhibited_by: list[str]


class Alert(WireModel):
    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: str
    ends_at: str
    generator_url: str = msgspec.field(name="generatorURL")
    status: AlertStatus
    receivers: list[str]
    fingerprint: str


class SettingsReport(WireModel):
    settings: dict[str, Any]


class RefusedRequests(WireModel):
    method: str
    path: str
    status: int
    count: Count


class AuditEntry(OpenModel, kw_only=True):
    """A request, or (with ``refused``) how many requests without a valid token were refused since a time."""

    time: str
    since: str | UnsetType = UNSET
    user: str | None
    address: str | UnsetType = UNSET
    method: str | UnsetType = UNSET
    path: str | UnsetType = UNSET
    status: int | UnsetType = UNSET
    refused: Count | UnsetType = UNSET
    requests: list[RefusedRequests] | UnsetType = UNSET
    addresses: dict[str, Count] | UnsetType = UNSET
    # WebHDFS has the operation in the query.
    operation: str | UnsetType = UNSET
    # Of refused requests: how many were about each subject.
    about: str | dict[str, Count] | UnsetType = UNSET
    by_job: int | UnsetType = UNSET
    application: bool | UnsetType = UNSET


class AuditReport(WireModel):
    entries: list[AuditEntry]
    is_kept: bool
    """Whether the cluster writes an audit log; the embedded one does not."""


class AlertList(WireModel):
    status: Literal["success"]
    data: list[Alert]


class UsageSeries(WireModel):
    """Columns of equal length, one entry for each point in the order of time."""

    times: list[int]
    cpu: list[float]
    memory: list[int]
    read: list[int]
    write: list[int]
    gpu: list[float | None]
    gpu_memory: list[int | None]


class CurrentUsage(WireModel):
    """Cores, bytes of memory, bytes per second, busy GPUs, bytes of GPU memory; null: not measured."""

    cpu: float
    memory: int
    read: int
    write: int
    gpu: float | None
    gpu_memory: int | None


# Keys of the subject come before those of `CurrentUsage`, which is therefore not a base class of these types.


class NamedUsage(WireModel):
    name: str
    cpu: float
    memory: int
    read: int
    write: int
    gpu: float | None
    gpu_memory: int | None
    cpu_total: float
    memory_total: int
    gpu_total: int


class JobUsage(WireModel):
    user: str
    name: str
    virtual_cluster: str
    tasks: int
    cpu: float
    memory: int
    read: int
    write: int
    gpu: float | None
    gpu_memory: int | None
    cpu_total: float
    memory_total: int
    gpu_total: int


class RunningTaskUsage(WireModel):
    role: str
    index: int
    node: str
    cpu: float
    memory: int
    read: int
    write: int
    gpu: float | None
    gpu_memory: int | None
    cpu_total: float
    memory_total: int
    gpu_total: int


class _Sample(WireModel):
    time: int | None
    interval: float | None


class ClusterUsage(_Sample):
    nodes: list[NamedUsage]
    virtual_clusters: list[NamedUsage]
    jobs: list[JobUsage]
    job_count: int
    server: CurrentUsage


class UsageOverTime(_Sample):
    series: UsageSeries


class JobUsageOverTime(UsageOverTime):
    tasks: list[RunningTaskUsage]
    task_count: int
