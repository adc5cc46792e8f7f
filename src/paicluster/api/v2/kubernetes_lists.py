"""Nodes and tasks as Kubernetes NodeList and PodList, for administrators' tools."""

from __future__ import annotations

import msgspec
from msgspec import UNSET
from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.requests.authentication import authenticate
from paicluster.api.routing.authority import ADMIN_READS
from paicluster.api.routing.route import Query, Routes
from paicluster.api.v2.serializers import iso
from paicluster.api.wire.jobs import Count
from paicluster.api.wire.kubernetes import (
    Container,
    ContainerResources,
    KubernetesContainerState,
    KubernetesContainerStatus,
    KubernetesNode,
    KubernetesPod,
    KubernetesPodSpec,
    KubernetesPodStatus,
    ListMetadata,
    NodeAddress,
    NodeList,
    NodeMetadata,
    NodeSpec,
    NodeStatus,
    PodList,
    PodMetadata,
    Resources,
    RunningState,
)
from paicluster.api.wire.query_parameters import MAX_PAGE_SIZE, int_param
from paicluster.engines.interface import Node
from paicluster.store import admin_queries
from paicluster.store.admin_queries import RunningTask

route = Routes("kubernetes")

NAMESPACE = "default"
_GPU = "nvidia.com/gpu"
_CONTAINER = "app"


@route(
    "GET /api/(v2|v1)/kubernetes/nodes",
    authority=ADMIN_READS,
    summary="List nodes, as Kubernetes does",
)
async def nodes(request: Request) -> NodeList:
    await authenticate(request)
    return NodeList(items=[_node(node) for node in await context(request).capacity.nodes.current()])


@route(
    "GET /api/(v2|v1)/kubernetes/pods",
    authority=ADMIN_READS,
    summary="List placed tasks, as Kubernetes lists pods",
    query=(Query("namespace"), Query("limit", Count), Query("continue", Count)),
)
async def pods(request: Request) -> PodList:
    """All placed tasks. As in Kubernetes, ``limit`` and ``continue`` select a page."""
    await authenticate(request)
    get = request.query_params.get
    if get("namespace") not in (None, "", NAMESPACE):
        return PodList(items=[])
    limit = int_param(get("limit"), "limit", MAX_PAGE_SIZE, MAX_PAGE_SIZE)
    offset = int_param(get("continue"), "continue", 0)
    # One more than the page tells whether there is another page.
    tasks = await context(request).store.read(
        lambda conn: admin_queries.running_tasks(conn, offset, limit + 1)
    )
    next_page = str(offset + limit) if len(tasks) > limit else UNSET
    return PodList(metadata=ListMetadata(next_page=next_page), items=[_pod(task) for task in tasks[:limit]])


def _node(node: Node) -> KubernetesNode:
    resources = _resources(node.cpu, node.memory_mb, len(node.gpus))
    addresses = [NodeAddress("InternalIP", node.ip), NodeAddress("Hostname", node.name)]
    return KubernetesNode(
        NodeMetadata(node.name, {"kubernetes.io/hostname": node.name, "pai-worker": "true"}),
        NodeSpec(),
        NodeStatus(addresses, capacity=resources, allocatable=resources),
    )


def _pod(task: RunningTask) -> KubernetesPod:
    resources = _resources(int(task.cpu), task.memory_mb, len(msgspec.json.decode(task.gpus or "[]")))
    is_running = task.launched_ms is not None
    started = None if task.launched_ms is None else iso(task.launched_ms)
    state = KubernetesContainerState(RunningState(started))
    return KubernetesPod(
        PodMetadata(
            name=f"{task.debug_id}-{task.role}-{task.task_index}",
            namespace=NAMESPACE,
            uid=task.uid,
            creation_timestamp=None if task.created_ms is None else iso(task.created_ms),
            labels={
                "FC_FRAMEWORK_NAME": task.debug_id,
                "FC_TASKROLE_NAME": task.role,
                "FC_TASK_INDEX": str(task.task_index),
                "jobName": task.job,
                "userName": task.username,
                "virtualCluster": task.vc,
                "type": "kube-launcher-task",
            },
        ),
        KubernetesPodSpec(task.node, True, [Container(_CONTAINER, ContainerResources(resources, resources))]),
        KubernetesPodStatus(
            phase="Running" if is_running else "Pending",
            host_ip=task.ip,
            pod_ip=task.ip,
            start_time=started,
            container_statuses=[KubernetesContainerStatus(_CONTAINER, is_running, state)]
            if is_running
            else [],
        ),
    )


def _resources(cpu: int, memory_mb: int, gpus: int) -> Resources:
    return {"cpu": str(cpu), "memory": f"{memory_mb}Mi", _GPU: str(gpus)}
