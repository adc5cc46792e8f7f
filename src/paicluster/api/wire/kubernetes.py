"""Lists of nodes and pods, with the fields of Kubernetes that administrators' tools read."""

from typing import Literal

from msgspec import UNSET, UnsetType, field

from paicluster.api.wire.base import WireModel

Labels = dict[str, str]
Resources = dict[str, str]
"""Amounts of "cpu", "memory" and "nvidia.com/gpu"."""


class NodeMetadata(WireModel):
    name: str
    labels: Labels
    annotations: Labels = field(default_factory=dict)


class NodeSpec(WireModel):
    """Nothing is said of it."""


class NodeAddress(WireModel):
    type: str
    address: str


class NodeCondition(WireModel):
    type: str = "Ready"
    status: str = "True"
    reason: str = "KubeletReady"
    message: str = ""


class NodeStatus(WireModel):
    addresses: list[NodeAddress]
    capacity: Resources
    allocatable: Resources
    conditions: list[NodeCondition] = field(default_factory=lambda: [NodeCondition()])


class KubernetesNode(WireModel):
    metadata: NodeMetadata
    spec: NodeSpec
    status: NodeStatus


class PodMetadata(WireModel, kw_only=True):
    name: str
    namespace: str
    uid: str
    creation_timestamp: str | None
    labels: Labels
    annotations: Labels = field(default_factory=dict)


class ContainerResources(WireModel):
    limits: Resources
    requests: Resources


class Container(WireModel):
    name: str
    resources: ContainerResources


class KubernetesPodSpec(WireModel):
    node_name: str | None
    host_network: bool
    containers: list[Container]


class RunningState(WireModel):
    started_at: str | None


class KubernetesContainerState(WireModel):
    running: RunningState


class KubernetesContainerStatus(WireModel):
    name: str
    ready: bool
    state: KubernetesContainerState


class KubernetesPodStatus(WireModel, kw_only=True):
    phase: str
    host_ip: str | None = field(name="hostIP")
    pod_ip: str | None = field(name="podIP")
    start_time: str | None
    container_statuses: list[KubernetesContainerStatus]


class KubernetesPod(WireModel):
    metadata: PodMetadata
    spec: KubernetesPodSpec
    status: KubernetesPodStatus


class ListMetadata(WireModel):
    """``next_page`` selects the next page; omitted after the last one."""

    resource_version: str = ""
    next_page: str | UnsetType = field(name="continue", default=UNSET)


class NodeList(WireModel, kw_only=True):
    kind: Literal["NodeList"] = "NodeList"
    api_version: Literal["v1"] = "v1"
    metadata: ListMetadata = field(default_factory=ListMetadata)
    items: list[KubernetesNode]


class PodList(WireModel, kw_only=True):
    kind: Literal["PodList"] = "PodList"
    api_version: Literal["v1"] = "v1"
    metadata: ListMetadata = field(default_factory=ListMetadata)
    items: list[KubernetesPod]
