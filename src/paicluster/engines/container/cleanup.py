"""Removes what containers leave: those that have stopped, and images nobody wanted for long."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from paicluster.engines.container.client import CLUSTER_LABEL, Client
from paicluster.engines.container.container_spec import container_name
from paicluster.engines.container.images import Images
from paicluster.engines.interface import LaunchFailed

log = logging.getLogger(__name__)

# Stopped ones are removed together, when it has been quiet for so long or so many have come together.
_QUIET_S = 3.0
_MANY = 20
# What could not be removed is tried again: a docker daemon may be away.
_AGAIN_S = 60.0
# podman's look at one image fails while somebody removes another.
_LOOKS = 5


@dataclass(frozen=True, slots=True)
class ImageRetention:
    """What is kept of the images that we pulled; others are not ours to remove. None sets no limit."""

    mb: int | None = 100_000
    days: float | None = 30.0


class Cleaner:
    def __init__(self, client: Client, images: Images, cluster: str, keep: ImageRetention):
        self._client = client
        self._images = images
        self._cluster = cluster
        self._keep = keep
        self._stopped: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        # Containers that could not be removed, and when they are tried again.
        self._left: set[str] = set()
        self._again: asyncio.TimerHandle | None = None
        self._work: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        for timer in (self._timer, self._again):
            if timer is not None:
                timer.cancel()
        for task in self._work:
            task.cancel()

    def add_stopped(self, uid: str) -> None:
        """Its container is over. On the loop."""
        if uid in self._stopped:
            return
        self._stopped.add(uid)
        if self._timer is not None:
            self._timer.cancel()
        wait = _QUIET_S if len(self._stopped) < _MANY else 0.0
        self._timer = asyncio.get_running_loop().call_later(wait, self._start, self._remove_stopped)

    def postpone(self) -> None:
        """Somebody waits for a container to start: what has stopped can wait."""
        if self._timer is not None and len(self._stopped) < _MANY:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(_QUIET_S, self._start, self._remove_stopped)

    def _start(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        task = asyncio.get_running_loop().create_task(work())
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _remove_stopped(self) -> None:
        stopped, self._stopped = self._stopped, set()
        await self._remove([container_name(uid) for uid in stopped])

    async def _remove(self, found: list[str]) -> None:
        if found:
            answer = await self._client.call(*self._client.remove_arguments(*found))
            if answer.status != 0:
                log.info("containers could not be removed: %s", answer.error_text)
                self._left.update(found)
                if self._again is None:
                    loop = asyncio.get_running_loop()
                    self._again = loop.call_later(_AGAIN_S, self._start, self._remove_left)

    async def _remove_left(self) -> None:
        left, self._left, self._again = self._left, set(), None
        there = await self._names()
        # docker also complains of those that are gone.
        await self._remove([name for name in left if there is None or name in there])

    async def _names(self) -> list[str] | None:
        """The containers of this cluster; None when nobody can tell."""
        answer = await self._client.call(
            "ps", "--all", "--filter", f"label={CLUSTER_LABEL}={self._cluster}", "--format", "{{.Names}}"
        )
        return answer.out.split() if answer.status == 0 else None

    async def sweep(self, is_finished: Callable[[str], bool]) -> None:
        """Remove every container of this cluster whose attempt is over, whoever left it."""
        prefix = container_name("")
        names = await self._names() or ()
        uids = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        await self._remove([container_name(uid) for uid in uids if is_finished(uid)])

    async def clean_images(self) -> None:
        """Those we pulled and nobody wanted for longest go first. One in use stays: the program refuses."""
        pulled, gone = self._images.pulled_images(), set[str]()
        sizes: dict[str, int] = {}
        for name in pulled:
            size = await self._size_of(name)
            if size is None:
                gone.add(name)
            else:
                sizes[name] = size
        self._images.forget_pulled(gone)
        room = None if self._keep.mb is None else self._keep.mb << 20
        oldest = None if self._keep.days is None else time.time() - self._keep.days * 86_400
        total = sum(sizes.values())
        for name in sorted(sizes, key=pulled.__getitem__):
            too_old = oldest is not None and pulled[name] < oldest
            if not too_old and (room is None or total <= room):
                break
            answer = await self._client.call("image", "rm", name)
            if answer.status == 0:
                log.info("the image %s was removed: nobody wanted it for long", name)
                total -= sizes[name]
                self._images.forget_pulled([name])
                self._images.forget_all()

    async def _size_of(self, name: str) -> int | None:
        """None of one that is gone, and nothing of one that nobody can tell the size of."""
        for _ in range(_LOOKS):
            answer = await self._client.call("image", "inspect", "--format", "{{.Size}}", name)
            if answer.status == 0 and answer.out.strip().isdigit():
                return int(answer.out)
            try:
                if not await self._images.is_present(name):
                    return None
            except LaunchFailed:
                break  # the next cleaning asks again
        return 0
