"""Deletions of objects, each repeated until it succeeded."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from typing import Any

from paicluster.engines.kubernetes.api_client import ApiClient, ApiError, ApiUnavailable
from paiprotocol.errors import ConfigError

log = logging.getLogger(__name__)

_BACKOFF_MIN_S = 0.5
_BACKOFF_MAX_S = 30.0


class Deletions:
    """Deletions under way, by the path of the object, and what waits for several of them."""

    def __init__(self, client: ApiClient):
        self._client = client
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def delete(self, path: str, *, grace_s: int) -> asyncio.Task[None]:
        """Delete an object. One that is being deleted already keeps its grace period."""
        return self.run(path, self._delete(path, grace_s))

    def run(self, key: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run in the background, unless work of this name runs already."""
        known = self._tasks.get(key)
        if known is not None:
            work.close()
            return known
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))
        return task

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _delete(self, path: str, grace_s: int) -> None:
        backoff_s = _BACKOFF_MIN_S
        while True:
            try:
                await self._client.delete(path, grace_s=grace_s)
            except (ApiError, ApiUnavailable, ConfigError) as error:
                log.warning("%s cannot be deleted: %s", path, error)
            else:
                return
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.5))
            backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)
