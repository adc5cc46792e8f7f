"""Virtual clusters, nodes, storages, alerts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paicluster.api.openapi.jobs import Count
from paicluster.api.openapi.operation import (
    JSON,
    Body,
    Either,
    Message,
    MessageWithStatus,
    Operation,
    Query,
    Text,
    WireModel,
    json_or_form,
)

Percent = Annotated[float, Meta(ge=0, le=100)]
ConfigName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_]+$", max_length=255)]
ServerName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]+$", max_length=255)]
_VC = "virtual cluster"
_STORAGE = "storage"


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


class VirtualClusterBody(WireModel):
    vc_capacity: Percent
    vc_max_capacity: Percent | UnsetType = UNSET
    description: str | UnsetType = UNSET
    external_name: str | UnsetType = UNSET


class VirtualClusterStatusBody(WireModel):
    vc_status: Literal["running", "stopped"]


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


class NewMountInfo(WireModel):
    mount_point: Annotated[str, Meta(min_length=1)]
    server: ServerName
    path: str | UnsetType = UNSET
    permission: Literal["rw", "ro"] | UnsetType = UNSET


class NewLegacyStorageConfig(WireModel):
    name: ConfigName
    default: bool | UnsetType = UNSET
    servers: list[ServerName] | UnsetType = UNSET
    mount_infos: list[NewMountInfo] | UnsetType = UNSET
    gpn: ConfigName | UnsetType = UNSET


class NewLegacyStorageServer(WireModel):
    spn: ServerName
    type: Literal["nfs", "samba", "azurefile", "azureblob", "hdfs"]
    data: dict[str, Any]
    extension: dict[str, Any] | UnsetType = UNSET


class ConfigNameBody(msgspec.Struct):
    name: ConfigName


class ServerNameBody(msgspec.Struct):
    spn: ServerName


class LegacyStorageServer(WireModel):
    spn: str
    type: str
    data: dict[str, Any]
    extension: dict[str, Any]


class StorageNamesBody(msgspec.Struct):
    names: list[str] | UnsetType = UNSET


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


class AuditReport(WireModel):
    entries: list[dict[str, Any]]
    is_kept: bool
    """Whether the cluster writes an audit log; the embedded one does not."""


class AlertList(WireModel):
    status: Literal["success"]
    data: list[Alert]


class KubernetesList(WireModel):
    kind: str
    api_version: str
    metadata: dict[str, str]
    items: list[dict[str, Any]]


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


class UsageOfTotal(CurrentUsage):
    cpu_total: float
    memory_total: int
    gpu_total: int


class NamedUsage(UsageOfTotal):
    name: str


class JobUsage(UsageOfTotal):
    user: str
    name: str
    virtual_cluster: str
    tasks: int


class RunningTaskUsage(UsageOfTotal):
    role: str
    index: int
    node: str


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


_NAMES = (Query("names", list[str]),)
_NAMES_BODY = Body({JSON: StorageNamesBody}, required=False)
_OCTET_STREAM = "application/octet-stream"
_CHANGE_ERRORS = (400, 403, 404, 409, 503, 507)
_OVERWRITE = Query("overwrite", bool, description="`true`: replace a file of this path.")
_UPLOAD = Query("upload", description="Identifies the content, so that an interrupted upload goes on.")


def _legacy_storage_operations(kind: str, record: Any, name: Any) -> dict[str, Operation]:
    def operation(verb: str, errors: tuple[int, ...], body: Body) -> Operation:
        return Operation(f"{verb} a legacy storage {kind}", _STORAGE, {201: Message}, errors, body=body)

    return {
        f"v2.legacy_storage_configs.create_{kind}": operation("Create", (403, 409), Body({JSON: record})),
        f"v2.legacy_storage_configs.update_{kind}": operation("Change", (403, 404), Body({JSON: record})),
        f"v2.legacy_storage_configs.delete_{kind}": operation(
            "Delete", (403, 404), Body({JSON: name}, required=False)
        ),
    }


OPERATIONS: dict[str, Operation] = {
    "v2.virtual_clusters.list_clusters": Operation(
        "List virtual clusters, or with `nodes` the resources of each node",
        _VC,
        {200: Either(dict[str, VirtualCluster], dict[str, NodeUse])},
        query=(Query("nodes", description="If present, list nodes instead."),),
    ),
    "v2.virtual_clusters.one_cluster": Operation("Get a virtual cluster", _VC, {200: VirtualCluster}, (400,)),
    "v2.virtual_clusters.put_cluster": Operation(
        "Create a virtual cluster, or change its capacity",
        _VC,
        {201: MessageWithStatus},
        (403, 409),
        body=json_or_form(VirtualClusterBody),
    ),
    "v2.virtual_clusters.put_status": Operation(
        "Start or stop a virtual cluster",
        _VC,
        {201: MessageWithStatus},
        (403,),
        body=json_or_form(VirtualClusterStatusBody),
    ),
    "v2.virtual_clusters.delete_cluster": Operation(
        "Delete a virtual cluster", _VC, {201: MessageWithStatus}, (400, 403)
    ),
    "v2.virtual_clusters.sku_types": Operation(
        "List SKUs, the allocation units of the nodes",
        _VC,
        {200: dict[str, Sku]},
        (404,),
        query=(Query("vc"),),
    ),
    "v2.usage.current": Operation(
        "Usage of nodes, virtual clusters and running jobs now",
        _VC,
        {200: ClusterUsage},
        query=(Query("user", description="Only jobs of this user."),),
    ),
    "v2.usage.of_node": Operation("Usage of a node over time", _VC, {200: UsageOverTime}, (404,)),
    "v2.usage.of_virtual_cluster": Operation(
        "Usage of a virtual cluster over time", _VC, {200: UsageOverTime}, (404,)
    ),
    "v2.usage.of_job": Operation(
        "Usage of a job or of one of its tasks over time, and of its running tasks now",
        "job",
        {200: JobUsageOverTime},
        (400, 403),
        query=(Query("role"), Query("index", Count)),
    ),
    "v2.storages.list_storages": Operation(
        "List the storages the caller may use", _STORAGE, {200: StorageList}, query=(Query("default", bool),)
    ),
    "v2.storages.one_storage": Operation(
        "Get a storage, with its credentials",
        _STORAGE,
        {200: StorageDetail},
        (403,),
        query=(Query("secrets", bool, description="`false`: without the credentials."),),
    ),
    "v2.storage_files.list_entries": Operation(
        "List a folder of a remote storage, in pages",
        _STORAGE,
        {200: StorageEntries},
        (400, 403, 404, 503),
        query=(Query("path"), Query("cursor", description="`next` of the page before.")),
    ),
    "v2.storage_files.read_content": Operation(
        "Read a file of a remote storage",
        _STORAGE,
        {200: Text(_OCTET_STREAM, binary=True)},
        (400, 403, 404, 503),
        query=(
            Query("path"),
            Query("length", int, description="Only the first bytes."),
            Query("user"),
            Query("ticket", description="Of a content link, instead of a token."),
        ),
    ),
    "v2.storage_changes.make_folder": Operation(
        "Make a folder in a remote storage",
        _STORAGE,
        {201: Message},
        _CHANGE_ERRORS,
        query=(Query("path"),),
    ),
    "v2.storage_changes.delete_entry": Operation(
        "Delete a file of a remote storage, or up to 1000 objects of a folder",
        _STORAGE,
        {200: DeletedObjects},
        _CHANGE_ERRORS,
        query=(Query("path"),),
    ),
    "v2.storage_changes.move_entry": Operation(
        "Move or rename a file of a remote storage, or up to 100 objects of a folder",
        _STORAGE,
        {200: MovedObjects},
        _CHANGE_ERRORS,
        query=(
            Query("path"),
            Query("target"),
            Query("resume", bool, description="`true`: go on; the target exists already."),
        ),
    ),
    "v2.storage_changes.begin_upload": Operation(
        "Ask where an upload to a remote storage begins, or goes on",
        _STORAGE,
        {200: UploadOffset},
        (*_CHANGE_ERRORS, 413),
        query=(Query("path"), Query("size", int), _UPLOAD, _OVERWRITE),
    ),
    "v2.storage_changes.cancel_upload": Operation(
        "Delete what has arrived of an upload to a remote storage",
        _STORAGE,
        {200: Message},
        (*_CHANGE_ERRORS, 413),
        query=(Query("path"), Query("size", int), _UPLOAD),
    ),
    "v2.storage_changes.write_content": Operation(
        "Write a file of a remote storage, or the rest of one",
        _STORAGE,
        {201: StoredFile},
        (*_CHANGE_ERRORS, 411),
        query=(
            Query("path"),
            _OVERWRITE,
            _UPLOAD,
            Query("offset", int, description="Where the body begins."),
        ),
        body=Body({_OCTET_STREAM: Text(_OCTET_STREAM, binary=True)}),
    ),
    "v2.storage_files.issue_content_link": Operation(
        "Issue an address of a file of a remote storage that needs no header",
        _STORAGE,
        {200: ContentLink},
        (400, 403, 404, 503),
        query=(Query("path"),),
    ),
    "v2.legacy_storage_configs.list_configs": Operation(
        "List storage configs, legacy format",
        _STORAGE,
        {200: list[LegacyStorageConfig]},
        query=_NAMES,
        body=_NAMES_BODY,
    ),
    "v2.legacy_storage_configs.one_config": Operation(
        "Get a storage config, legacy format", _STORAGE, {200: LegacyStorageConfig}
    ),
    "v2.legacy_storage_configs.list_servers": Operation(
        "List storage servers, legacy format",
        _STORAGE,
        {200: list[LegacyStorageServer]},
        query=_NAMES,
        body=_NAMES_BODY,
    ),
    "v2.legacy_storage_configs.one_server": Operation(
        "Get a storage server, legacy format", _STORAGE, {200: LegacyStorageServer}
    ),
    **_legacy_storage_operations("config", NewLegacyStorageConfig, ConfigNameBody),
    **_legacy_storage_operations("server", NewLegacyStorageServer, ServerNameBody),
    "v2.administration.settings": Operation(
        "Settings of the server, for administrators", "cluster", {200: SettingsReport}, (403,)
    ),
    "v2.administration.audit": Operation(
        "Last entries of the audit log, newest first, for administrators",
        "cluster",
        {200: AuditReport},
        (400, 403),
        query=(Query("limit", Count, description="At most 1000."), Query("keyword")),
    ),
    "v2.alerts.alerts": Operation("List alerts", "alert", {200: list[Alert]}),
    "v2.alerts.as_alertmanager": Operation(
        "List alerts, in Alertmanager's format", "alert", {200: AlertList}
    ),
    "v2.kubernetes_lists.nodes": Operation(
        "List nodes, as Kubernetes does", "kubernetes", {200: KubernetesList}, (403,)
    ),
    "v2.kubernetes_lists.pods": Operation(
        "List placed tasks, as Kubernetes lists pods",
        "kubernetes",
        {200: KubernetesList},
        (403,),
        query=(Query("namespace"), Query("limit", Count), Query("continue", Count)),
    ),
}
