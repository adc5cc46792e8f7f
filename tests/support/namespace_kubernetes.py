"""A stand-in for Kubernetes: the few requests that the engine makes, with pods made of namespaces.

It shows that the engine and its containers work together, in seconds and on any machine. What Kubernetes
itself does is tested on a real one (`kubernetes_cluster`): nothing here says anything about that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from support.namespace_pod import NamespacePod
from support.ports import free_ports

NODE = "node0"
_ALLOCATABLE = {"cpu": "64", "memory": "16Gi", "nvidia.com/gpu": "2"}


class NamespaceKubernetes:
    """API server and kubelet of one node."""

    def __init__(self, folder: Path, shared: Path | None = None):
        """``shared``: a folder that all tasks see, under the same name."""
        self._folder = folder
        self._shared = shared
        self.port = free_ports(1)[0]
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        # Every change, with its version.
        self._log: list[tuple[int, str, str, str]] = []
        self._changed = asyncio.Condition()
        self.pods: dict[str, NamespacePod] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Pods that stay without a node, with the reason.
        self.unschedulable = ""
        self.requests: list[str] = []

    @property
    def server(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        routes = [
            Route("/version", self._version),
            Route("/api/v1/nodes", self._nodes),
            Route("/api/v1/pods", _no_pods_of_others),
            Route("/api/v1/namespaces/{namespace}/{kind}", self._collection, methods=["GET", "POST"]),
            Route("/api/v1/namespaces/{namespace}/{kind}/{name}", self._delete, methods=["DELETE"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes),
            port=self.port,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 60
        while not self._server.started:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        for pod in self.pods.values():
            pod.close()

    def write_kubeconfig(self, path: Path) -> Path:
        cluster = {"name": "c", "cluster": {"server": self.server}}
        context = {"name": "c", "context": {"cluster": "c"}}
        path.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "current-context": "c"}))
        return path

    def names(self, kind: str) -> list[str]:
        return [name for found, name in self._objects if found == kind]

    # -- API -----------------------------------------------------------------------------------

    async def _version(self, request: Request) -> Response:
        return JSONResponse({"gitVersion": "v1.20.2", "major": "1", "minor": "20"})

    async def _nodes(self, request: Request) -> Response:
        if "watch" in request.query_params:
            return StreamingResponse(_nothing(), media_type="application/json")
        status = {
            "allocatable": _ALLOCATABLE,
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        }
        node = {"metadata": {"name": NODE, "resourceVersion": "1"}, "status": status}
        return JSONResponse({"metadata": {"resourceVersion": "1"}, "items": [node]})

    async def _collection(self, request: Request) -> Response:
        kind = request.path_params["kind"]
        self.requests.append(f"{request.method} {kind}")
        if request.method == "POST":
            item = await request.json()
            name = item["metadata"]["name"]
            if (kind, name) in self._objects:
                return _status(409, "AlreadyExists", f'{kind} "{name}" already exists')
            item["status"] = {"phase": "Pending"}
            await self._set(kind, name, item)
            if kind == "pods":
                task = asyncio.create_task(self._run(name))
                self._tasks.add(task)
            return JSONResponse(item, 201)
        if kind == "secrets":
            return _status(403, "Forbidden", "secrets is forbidden: cannot list resource")
        if "watch" in request.query_params:
            since = int(request.query_params["resourceVersion"])
            return StreamingResponse(self._watch(kind, since), media_type="application/json")
        items = [item for (found, _), item in self._objects.items() if found == kind]
        return JSONResponse({"metadata": {"resourceVersion": str(len(self._log))}, "items": items})

    async def _delete(self, request: Request) -> Response:
        kind, name = request.path_params["kind"], request.path_params["name"]
        self.requests.append(f"DELETE {kind}")
        item = self._objects.get((kind, name))
        if item is None:
            return _status(404, "NotFound", f'{kind} "{name}" not found')
        options = json.loads(await request.body() or b"{}")
        grace_s = options.get("gracePeriodSeconds", 30)
        pod = self.pods.get(name)
        if kind == "pods" and pod is not None and grace_s and item["status"]["phase"] == "Running":
            item["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            await self._set(kind, name, item)
            task = asyncio.create_task(self._end(name, grace_s))
            self._tasks.add(task)
        else:
            await self._remove(kind, name)
        return JSONResponse(item)

    async def _watch(self, kind: str, since: int) -> AsyncIterator[bytes]:
        sent = since
        while not self._server.should_exit:
            for version, found, change, text in self._log[sent:]:
                if found == kind:
                    yield f'{{"type": "{change}", "object": {text}}}\n'.encode()
                sent = version
            async with self._changed:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await self._changed.wait()

    async def _set(self, kind: str, name: str, item: dict[str, Any]) -> None:
        change = "MODIFIED" if (kind, name) in self._objects else "ADDED"
        self._objects[kind, name] = item
        await self._note(kind, change, item)

    async def _remove(self, kind: str, name: str) -> None:
        item = self._objects.pop((kind, name), None)
        if item is not None:
            await self._note(kind, "DELETED", item)
        if kind == "pods" and (pod := self.pods.pop(name, None)) is not None:
            await asyncio.to_thread(pod.close)

    async def _note(self, kind: str, change: str, item: dict[str, Any]) -> None:
        version = len(self._log) + 1
        item["metadata"]["resourceVersion"] = str(version)
        self._log.append((version, kind, change, json.dumps(item)))
        async with self._changed:
            self._changed.notify_all()

    # -- kubelet -------------------------------------------------------------------------------

    async def _run(self, name: str) -> None:
        item = self._objects["pods", name]
        while reason := self.unschedulable or _shortage(item):
            condition = {"type": "PodScheduled", "status": "False", "message": reason}
            if item["status"].get("conditions") != [condition]:
                item["status"]["conditions"] = [condition]
                await self._set("pods", name, item)
            await asyncio.sleep(0.05)
            if ("pods", name) not in self._objects:
                return
        secrets = [item for (kind, _), item in self._objects.items() if kind == "secrets"]
        pod = self.pods[name] = await asyncio.to_thread(
            NamespacePod, item, secrets, self._folder / f"pod-{name}", node=NODE, shared=self._shared
        )
        if ("pods", name) not in self._objects:
            await asyncio.to_thread(pod.close)
            return
        item["spec"]["nodeName"] = NODE
        item["status"] = {"phase": "Running", "podIP": "127.0.0.1", "conditions": []}
        await self._set("pods", name, item)
        states: dict[str, Any] = {key: {"running": {}} for key in pod.processes}
        waits = [asyncio.create_task(self._wait(name, pod, container, states)) for container in states]
        await asyncio.gather(*waits)
        if ("pods", name) in self._objects:
            failed = any(state["terminated"]["exitCode"] for state in states.values())
            item["status"]["phase"] = "Failed" if failed else "Succeeded"
            await self._set("pods", name, item)
            if "deletionTimestamp" in item["metadata"]:
                await self._remove("pods", name)

    async def _wait(self, name: str, pod: NamespacePod, container: str, states: dict[str, Any]) -> None:
        status = await asyncio.to_thread(pod.processes[container].wait)
        reason = "Error" if status else "Completed"
        states[container] = {"terminated": {"exitCode": status & 255, "reason": reason}}
        item = self._objects.get(("pods", name))
        if item is not None:
            item["status"]["containerStatuses"] = [{"name": key, "state": one} for key, one in states.items()]
            await self._set("pods", name, item)

    async def _end(self, name: str, grace_s: float) -> None:
        pod = self.pods[name]
        await asyncio.to_thread(pod.terminate)
        ends = time.monotonic() + grace_s
        while time.monotonic() < ends and ("pods", name) in self._objects:
            await asyncio.sleep(0.05)
        for container in pod.processes:
            pod.kill(container)


def _shortage(pod: dict[str, Any]) -> str:
    """What a pod wants more of than the node has, in the words of the scheduler."""
    requests = [one["resources"]["requests"]["cpu"] for one in pod["spec"]["containers"]]
    wanted = sum(int(text.removesuffix("m")) for text in requests)
    return "" if wanted <= 1000 * int(_ALLOCATABLE["cpu"]) else "0/1 nodes are available: 1 Insufficient cpu."


async def _no_pods_of_others(request: Request) -> Response:
    """As for an account with a Role in its namespace only."""
    return _status(403, "Forbidden", "pods is forbidden: cannot list resource at the cluster scope")


async def _nothing() -> AsyncIterator[bytes]:
    await asyncio.sleep(30)
    yield b""


def _status(code: int, reason: str, message: str) -> Response:
    return JSONResponse({"kind": "Status", "code": code, "reason": reason, "message": message}, code)


@contextlib.contextmanager
def running(folder: Path, shared: Path | None = None) -> Iterator[NamespaceKubernetes]:
    made = NamespaceKubernetes(folder, shared)
    made.start()
    try:
        yield made
    finally:
        made.stop()
