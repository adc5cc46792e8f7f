"""Virtual clusters, nodes, storages: what there is."""

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
    Operation,
    Query,
    SaidWithStatus,
    WireModel,
    json_or_form,
)

Percent = Annotated[float, Meta(ge=0, le=100)]
ConfigName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_]+$", max_length=255)]
ServerName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]+$", max_length=255)]
_VC = "virtual cluster"
_STORAGE = "storage"


class ResourceAmounts(WireModel):
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
    resources_used: ResourceAmounts
    resources_guaranteed: ResourceAmounts
    resources_total: ResourceAmounts


class NodeGpus(WireModel):
    gpu_used: Count
    gpu_available: int
    gpu_total: Count


class Sku(WireModel):
    cpu: Count
    memory: Count
    gpu: Count


class ClusterShare(WireModel):
    vc_capacity: Percent
    vc_max_capacity: Percent | UnsetType = UNSET
    description: str | UnsetType = UNSET
    external_name: str | UnsetType = UNSET


class ClusterStatus(WireModel):
    vc_status: Literal["running", "stopped"]


class StorageSummary(WireModel):
    name: str
    share: bool
    volume_name: str
    default: bool


class Storages(WireModel):
    storages: list[StorageSummary]


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


class StorageConfig(WireModel):
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


class NewStorageConfig(WireModel):
    name: ConfigName
    default: bool | UnsetType = UNSET
    servers: list[ServerName] | UnsetType = UNSET
    mount_infos: list[NewMountInfo] | UnsetType = UNSET
    gpn: ConfigName | UnsetType = UNSET


class NewStorageServer(WireModel):
    spn: ServerName
    type: Literal["nfs", "samba", "azurefile", "azureblob", "hdfs"]
    data: dict[str, Any]
    extension: dict[str, Any] | UnsetType = UNSET


class NamedConfig(msgspec.Struct):
    name: ConfigName


class NamedServer(msgspec.Struct):
    spn: ServerName


class StorageServer(WireModel):
    spn: str
    type: str
    data: dict[str, Any]
    extension: dict[str, Any]


class Names(msgspec.Struct):
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


class Alerts(WireModel):
    status: Literal["success"]
    data: list[Alert]


class KubernetesList(WireModel):
    kind: str
    api_version: str
    metadata: dict[str, str]
    items: list[dict[str, Any]]


_NAMES = (Query("names", list[str]),)
_NAMED = Body({JSON: Names}, required=False)


def _of_older_storages(kind: str, whole: Any, named: Any) -> dict[str, Operation]:
    def operation(verb: str, errors: tuple[int, ...], body: Body) -> Operation:
        return Operation(
            f"{verb} a storage's {kind}, for clients to read", _STORAGE, {201: Message}, errors, body=body
        )

    return {
        f"v2.legacy_storage_configs.create_{kind}": operation("Write down", (403, 409), Body({JSON: whole})),
        f"v2.legacy_storage_configs.update_{kind}": operation("Change", (403, 404), Body({JSON: whole})),
        f"v2.legacy_storage_configs.delete_{kind}": operation(
            "Forget", (403, 404), Body({JSON: named}, required=False)
        ),
    }


OPERATIONS: dict[str, Operation] = {
    "v2.virtual_clusters.list_clusters": Operation(
        "All virtual clusters, or with `nodes` the GPUs of each node",
        _VC,
        {200: Either(dict[str, VirtualCluster], dict[str, NodeGpus])},
        query=(Query("nodes", about="Its presence counts."),),
    ),
    "v2.virtual_clusters.one_cluster": Operation("A virtual cluster", _VC, {200: VirtualCluster}, (400,)),
    "v2.virtual_clusters.put_cluster": Operation(
        "Make a virtual cluster, or change its share",
        _VC,
        {201: SaidWithStatus},
        (403, 409),
        body=json_or_form(ClusterShare),
    ),
    "v2.virtual_clusters.put_status": Operation(
        "Let a virtual cluster take jobs, or not",
        _VC,
        {201: SaidWithStatus},
        (403,),
        body=json_or_form(ClusterStatus),
    ),
    "v2.virtual_clusters.delete_cluster": Operation(
        "Take a virtual cluster away", _VC, {201: SaidWithStatus}, (400, 403)
    ),
    "v2.virtual_clusters.sku_types": Operation(
        "The pieces the nodes are handed out in", _VC, {200: dict[str, Sku]}, (404,), query=(Query("vc"),)
    ),
    "v2.storages.list_storages": Operation(
        "The storages one may use", _STORAGE, {200: Storages}, query=(Query("default", bool),)
    ),
    "v2.storages.one_storage": Operation("A storage", _STORAGE, {200: StorageDetail}, (403,)),
    "v2.legacy_storage_configs.list_configs": Operation(
        "Storages, older form", _STORAGE, {200: list[StorageConfig]}, query=_NAMES, body=_NAMED
    ),
    "v2.legacy_storage_configs.one_config": Operation(
        "A storage, older form", _STORAGE, {200: StorageConfig}
    ),
    "v2.legacy_storage_configs.list_servers": Operation(
        "Servers of storages, older form", _STORAGE, {200: list[StorageServer]}, query=_NAMES, body=_NAMED
    ),
    "v2.legacy_storage_configs.one_server": Operation(
        "A server of a storage, older form", _STORAGE, {200: StorageServer}
    ),
    **_of_older_storages("config", NewStorageConfig, NamedConfig),
    **_of_older_storages("server", NewStorageServer, NamedServer),
    "v2.alerts.alerts": Operation("What should be looked at", "alert", {200: list[Alert]}),
    "v2.alerts.as_alertmanager": Operation("As Alertmanager tells it", "alert", {200: Alerts}),
    "v2.kubernetes_lists.nodes": Operation("The nodes", "kubernetes", {200: KubernetesList}, (403,)),
    "v2.kubernetes_lists.pods": Operation(
        "The tasks that have a place",
        "kubernetes",
        {200: KubernetesList},
        (403,),
        query=(Query("namespace"), Query("limit", Count), Query("continue", Count)),
    ),
}
