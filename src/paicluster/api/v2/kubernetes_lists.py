"""Nodes and tasks as Kubernetes NodeList and PodList, for administrators' tools."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.context import authenticate, context
from paicluster.api.responses import MAX_PAGE_SIZE, int_param, json_response
from paicluster.api.v2.serializers import iso
from paicluster.engines.interface import Node
from paicluster.store import admin_queries
from paicluster.store.admin_queries import RunningTask

NAMESPACE = "default"
_GPU = "nvidia.com/gpu"


async def nodes(request: Request) -> Response:
    await authenticate(request)
    return json_response(_list("NodeList", [_node(node) for node in await context(request).nodes()]))


async def pods(request: Request) -> Response:
    """All placed tasks. As in Kubernetes, ``limit`` and ``continue`` select a page."""
    await authenticate(request)
    get = request.query_params.get
    if get("namespace") not in (None, "", NAMESPACE):
        return json_response(_list("PodList", []))
    limit = int_param(get("limit"), "limit", MAX_PAGE_SIZE, MAX_PAGE_SIZE)
    offset = int_param(get("continue"), "continue", 0)
    # One more than the page tells whether there is another page.
    tasks = await context(request).store.read(
        lambda conn: admin_queries.running_tasks(conn, offset, limit + 1)
    )
    next_page = {"continue": str(offset + limit)} if len(tasks) > limit else {}
    return json_response(_list("PodList", [_pod(task) for task in tasks[:limit]], **next_page))


def _list(kind: str, items: list[dict[str, Any]], **metadata: str) -> dict[str, Any]:
    return {"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "", **metadata}, "items": items}


def _node(node: Node) -> dict[str, Any]:
    resources = _resources(node.cpu, node.memory_mb, len(node.gpus))
    return {
        "metadata": {
            "name": node.name,
            "labels": {"kubernetes.io/hostname": node.name, "pai-worker": "true"},
            "annotations": {},
        },
        "spec": {},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": node.ip},
                {"type": "Hostname", "address": node.name},
            ],
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}],
        },
    }


def _pod(task: RunningTask) -> dict[str, Any]:
    resources = _resources(int(task.cpu), task.memory_mb, len(msgspec.json.decode(task.gpus or "[]")))
    running = task.launched_ms is not None
    started = None if task.launched_ms is None else iso(task.launched_ms)
    return {
        "metadata": {
            "name": f"{task.debug_id}-{task.role}-{task.task_index}",
            "namespace": NAMESPACE,
            "uid": task.uid,
            "creationTimestamp": None if task.created_ms is None else iso(task.created_ms),
            "labels": {
                "FC_FRAMEWORK_NAME": task.debug_id,
                "FC_TASKROLE_NAME": task.role,
                "FC_TASK_INDEX": str(task.task_index),
                "jobName": task.job,
                "userName": task.username,
                "virtualCluster": task.vc,
                "type": "kube-launcher-task",
            },
            "annotations": {},
        },
        "spec": {
            "nodeName": task.node,
            "hostNetwork": True,
            "containers": [{"name": "app", "resources": {"limits": resources, "requests": resources}}],
        },
        "status": {
            "phase": "Running" if running else "Pending",
            "hostIP": task.ip,
            "podIP": task.ip,
            "startTime": started,
            "containerStatuses": [
                {"name": "app", "ready": running, "state": {"running": {"startedAt": started}}}
            ]
            if running
            else [],
        },
    }


def _resources(cpu: int, memory_mb: int, gpus: int) -> dict[str, str]:
    return {"cpu": str(cpu), "memory": f"{memory_mb}Mi", _GPU: str(gpus)}
