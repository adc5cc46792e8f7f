"""Creates the pods of gangs, each once, even if this server or the API server crashes in between."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from paicluster.engines.interface import Notice
from paicluster.engines.kubernetes import pod_states
from paicluster.engines.kubernetes.api_client import ApiClient, ApiError, ApiUnavailable
from paicluster.engines.kubernetes.gang_registry import KubernetesGang
from paicluster.engines.kubernetes.pod_states import Verdict
from paiprotocol.errors import ConfigError

log = logging.getLogger(__name__)

_MAX_CONCURRENT = 8
_BACKOFF_MIN_S = 0.5
_BACKOFF_MAX_S = 30.0
_EXISTS = 409
# Until a gang that was withdrawn is created again, at least.
_WITHDRAWN_PAUSE_S = 5.0


class PodCreator:
    """Gangs to create, with retries."""

    def __init__(
        self,
        client: ApiClient,
        is_startable: Callable[[str], bool],
        reject: Callable[[str, Verdict], None],
        notify: Callable[[KubernetesGang, Notice], None],
        withdraw: Callable[[KubernetesGang], Awaitable[None]],
        gang_timeout_s: float,
    ):
        """``is_startable``: whether an attempt is neither claimed nor stopped.

        ``withdraw``: deletes the pods of a gang that are not all scheduled after the timeout.
        """
        self._client = client
        self._is_startable = is_startable
        self._reject = reject
        self._notify = notify
        self._withdraw = withdraw
        self._gang_timeout_s = gang_timeout_s
        # By pool of nodes: of gangs of several pods one at a time is between created and scheduled.
        self._pools: dict[str, asyncio.Lock] = {}
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def add(self, gang: KubernetesGang) -> None:
        if gang.uid not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._create(gang))
            self._tasks[gang.uid] = task
            task.add_done_callback(lambda _: self._tasks.pop(gang.uid, None))

    def is_creating(self, uid: str) -> bool:
        return uid in self._tasks

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _create(self, gang: KubernetesGang) -> None:
        backoff_s = _BACKOFF_MIN_S
        while True:
            try:
                async with self._turn(gang):
                    async with self._slots:
                        await self._create_once(gang)
                    is_settled = await self._wait_until_settled(gang)
            except ApiError as error:
                verdict = pod_states.creation_rejection(error.status, error.message)
                if verdict is not None:
                    for uid in gang.members:
                        self._reject(uid, verdict)
                    return
                reason = "ExceededQuota" if "exceeded quota" in error.message else "FailedCreate"
                self._notify(gang, Notice(reason, error.message, "Warning", pending=True))
                pause_s = max(backoff_s, error.retry_after_s)
            except (ApiUnavailable, ConfigError) as error:
                self._notify(gang, unavailable(str(error)))
                pause_s = backoff_s
            except OSError as error:  # the manifests cannot be read
                log.warning("The gang %s cannot be created: %s", gang.uid, error)
                pause_s = backoff_s
            else:
                if is_settled:
                    gang.is_created = True
                    return
                pause_s = max(backoff_s, _WITHDRAWN_PAUSE_S)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
            backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)

    def _turn(self, gang: KubernetesGang) -> contextlib.AbstractAsyncContextManager[object]:
        """A single pod holds nothing while it waits; several might hold what those of another gang need."""
        if len(gang.members) == 1:
            return contextlib.nullcontext()
        return self._pools.setdefault(gang.pool, asyncio.Lock())

    async def _wait_until_settled(self, gang: KubernetesGang) -> bool:
        """Wait until all pods have a node; False if the gang was withdrawn."""
        if len(gang.members) == 1:
            return True
        try:
            async with asyncio.timeout(self._gang_timeout_s):
                await gang.settled.wait()
        except TimeoutError:
            await self._withdraw(gang)
            return False
        return True

    async def _create_once(self, gang: KubernetesGang) -> None:
        """Secrets first: a pod that starts must find them. A name that exists is ours, of an earlier try."""
        manifests: Mapping[str, Any] = json.loads(gang.manifests())
        prefix = f"/api/v1/namespaces/{gang.namespace}"
        if not any(map(self._is_startable, gang.members)):
            return
        for secret in manifests["secrets"]:
            await self._create_object(f"{prefix}/secrets", secret)
        for pod in manifests["pods"]:
            # A pod that is gone was deleted: its attempt is lost, and its name is not used again.
            if self._is_startable(pod["metadata"]["name"]):
                await self._create_object(f"{prefix}/pods", pod)

    async def _create_object(self, path: str, manifest: Mapping[str, Any]) -> None:
        try:
            await self._client.create(path, manifest)
        except ApiError as error:
            if error.status != _EXISTS:
                raise


def unavailable(reason: str) -> Notice:
    text = f"Kubernetes does not respond: {reason}. It is tried again."
    return Notice(pod_states.KUBERNETES_UNAVAILABLE, text, "Warning", pending=True)
