"""Objects of the Kubernetes API, with the fields that are used here; others are not even decoded."""

from __future__ import annotations

from typing import Any

import msgspec


class ApiObject(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Base of all: names in camel case."""


class Metadata(ApiObject, frozen=True):
    name: str = ""
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Condition(ApiObject, frozen=True):
    type: str
    status: str = ""
    reason: str | None = None
    message: str | None = None


class Waiting(ApiObject, frozen=True):
    reason: str | None = None
    message: str | None = None


class ApiTerminated(ApiObject, frozen=True):
    exit_code: int = 0
    reason: str | None = None
    message: str | None = None
    signal: int | None = None
    started_at: str | None = None
    finished_at: str | None = None


class ApiContainerState(ApiObject, frozen=True):
    waiting: Waiting | None = None
    running: dict[str, Any] | None = None
    terminated: ApiTerminated | None = None


class ApiContainerStatus(ApiObject, frozen=True):
    name: str
    state: ApiContainerState = ApiContainerState()
    restart_count: int = 0


class ApiResources(ApiObject, frozen=True):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class ApiContainer(ApiObject, frozen=True):
    name: str
    resources: ApiResources = ApiResources()


class ApiPodSpec(ApiObject, frozen=True):
    node_name: str | None = None
    containers: list[ApiContainer] = []
    init_containers: list[ApiContainer] = []
    overhead: dict[str, str] = {}


class ApiPodStatus(ApiObject, frozen=True):
    phase: str = ""
    reason: str | None = None
    message: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    conditions: list[Condition] = []
    container_statuses: list[ApiContainerStatus] = []


class Pod(ApiObject, frozen=True):
    metadata: Metadata
    spec: ApiPodSpec = ApiPodSpec()
    status: ApiPodStatus = ApiPodStatus()


class BoundPod(ApiObject, frozen=True):
    """A pod, ours or not, with what it takes of its node."""

    metadata: Metadata
    spec: ApiPodSpec = ApiPodSpec()


class ApiNodeAddress(ApiObject, frozen=True):
    type: str
    address: str


class ApiNodeStatus(ApiObject, frozen=True):
    allocatable: dict[str, str] = {}
    capacity: dict[str, str] = {}
    conditions: list[Condition] = []
    addresses: list[ApiNodeAddress] = []


class Taint(ApiObject, frozen=True):
    key: str
    effect: str
    value: str | None = None


class ApiNodeSpec(ApiObject, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] = []


class ApiNode(ApiObject, frozen=True):
    metadata: Metadata
    spec: ApiNodeSpec = ApiNodeSpec()
    status: ApiNodeStatus = ApiNodeStatus()


class ApiListMetadata(ApiObject, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ApiPodList(ApiObject, frozen=True):
    metadata: ApiListMetadata
    items: list[Pod] = []


class ApiNodeList(ApiObject, frozen=True):
    metadata: ApiListMetadata
    items: list[ApiNode] = []


class Version(ApiObject, frozen=True):
    git_version: str = ""
    major: str = ""
    minor: str = ""


class WatchEvent(ApiObject, frozen=True):
    """An event of a watch; its object is decoded by its type."""

    type: str
    object: msgspec.Raw = msgspec.Raw()
