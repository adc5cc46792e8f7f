"""Removal of stopped containers and of images that no job used for long."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from paicluster.engines.container.client import CLUSTER_LABEL, Client
from paicluster.engines.container.container_spec import container_name
from paicluster.engines.container.images import Images
from paicluster.engines.container.timings import DEFAULT_TIMINGS, ContainerTimings
from paicluster.engines.interface import LaunchFailed

log = logging.getLogger(__name__)

_MAX_BATCH = 20
# Attempts at `podman image inspect`: it fails while another image is being removed.
_MAX_INSPECTS = 5


@dataclass(frozen=True, slots=True)
class ImageRetention:
    """Limits for images that this cluster pulled; others are never removed. None sets no limit."""

    mb: int | None = 100_000
    days: float | None = 30.0


class Cleaner:
    def __init__(
        self,
        client: Client,
        images: Images,
        cluster: str,
        keep: ImageRetention,
        timings: ContainerTimings = DEFAULT_TIMINGS,
    ):
        self._client = client
        self._images = images
        self._cluster = cluster
        self._keep = keep
        self._timings = timings
        self._stopped: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        # Containers whose removal failed, and the timer of the retry.
        self._failed: set[str] = set()
        self._retry_timer: asyncio.TimerHandle | None = None
        self._work: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        for timer in (self._timer, self._retry_timer):
            if timer is not None:
                timer.cancel()
        for task in self._work:
            task.cancel()

    def add_stopped(self, uid: str) -> None:
        """Schedule the removal of a stopped container. On the event loop."""
        if uid in self._stopped:
            return
        self._stopped.add(uid)
        if self._timer is not None:
            self._timer.cancel()
        wait = self._timings.removal_delay_s if len(self._stopped) < _MAX_BATCH else 0.0
        self._timer = asyncio.get_running_loop().call_later(wait, self._start, self._remove_stopped)

    def postpone(self) -> None:
        """Delay removals: a container is about to start."""
        if self._timer is not None and len(self._stopped) < _MAX_BATCH:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(
                self._timings.removal_delay_s, self._start, self._remove_stopped
            )

    def _start(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        task = asyncio.get_running_loop().create_task(work())
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _remove_stopped(self) -> None:
        stopped, self._stopped = self._stopped, set()
        await self._remove([container_name(uid) for uid in stopped])

    async def _remove(self, names: list[str]) -> None:
        if names:
            result = await self._client.call(*self._client.remove_arguments(*names))
            if result.status != 0:
                log.info("Containers could not be removed: %s", result.error_text)
                self._failed.update(names)
                if self._retry_timer is None:
                    loop = asyncio.get_running_loop()
                    self._retry_timer = loop.call_later(
                        self._timings.removal_retry_interval_s, self._start, self._retry_failed
                    )

    async def _retry_failed(self) -> None:
        failed, self._failed, self._retry_timer = self._failed, set(), None
        existing = await self._names()
        # docker also fails for containers that no longer exist.
        await self._remove([name for name in failed if existing is None or name in existing])

    async def _names(self) -> list[str] | None:
        """Containers of this cluster; None if the client fails."""
        result = await self._client.call(
            "ps", "--all", "--filter", f"label={CLUSTER_LABEL}={self._cluster}", "--format", "{{.Names}}"
        )
        return result.out.split() if result.status == 0 else None

    async def sweep(self, is_finished: Callable[[str], bool]) -> None:
        """Remove every container of this cluster whose attempt has finished."""
        prefix = container_name("")
        names = await self._names() or ()
        uids = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        await self._remove([container_name(uid) for uid in uids if is_finished(uid)])

    async def clean_images(self) -> None:
        """Remove pulled images, least recently used first. One in use stays: the client refuses."""
        pulled, deleted = self._images.pulled_images(), set[str]()
        sizes: dict[str, int] = {}
        for name in pulled:
            size = await self._size_of(name)
            if size is None:
                deleted.add(name)
            else:
                sizes[name] = size
        self._images.forget_pulled(deleted)
        max_bytes = None if self._keep.mb is None else self._keep.mb << 20
        oldest = None if self._keep.days is None else time.time() - self._keep.days * 86_400
        total = sum(sizes.values())
        for name in sorted(sizes, key=pulled.__getitem__):
            too_old = oldest is not None and pulled[name] < oldest
            if not too_old and (max_bytes is None or total <= max_bytes):
                break
            result = await self._client.call("image", "rm", name)
            if result.status == 0:
                log.info("Removed the image %s: not used for long", name)
                total -= sizes[name]
                self._images.forget_pulled([name])
                self._images.forget_all()

    async def _size_of(self, name: str) -> int | None:
        """Size of an image; None if it does not exist, 0 if the client cannot tell."""
        for _ in range(_MAX_INSPECTS):
            result = await self._client.call("image", "inspect", "--format", "{{.Size}}", name)
            if result.status == 0 and result.out.strip().isdigit():
                return int(result.out)
            try:
                if not await self._images.is_present(name):
                    return None
            except LaunchFailed:
                break  # the next cleanup tries again
        return 0
