"""What runs images here, once it was found: its images, its containers, and what they leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from paicluster.engines.container import box, complaints, finding, marks
from paicluster.engines.container.cleaning import Cleaner, KeepImages
from paicluster.engines.container.client import Client
from paicluster.engines.container.finding import NoClient
from paicluster.engines.container.images import Images
from paicluster.engines.interface import Observation, RegistryLogin, Remark, Say, TaskLaunch
from pairuntime.supervisor import contained


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a cluster wants its containers. ``scratch`` is a closed folder of its own."""

    scratch: Path
    cluster: str
    runtime: Path
    host_network: bool
    enforce_limits: bool
    # Of the images that were pulled: so many MB, and so many days since the last use.
    keep_mb: int | None
    keep_days: float | None


async def open_works(wishes: Wishes, programs: tuple[str, ...]) -> Works | NoClient:
    found = await finding.find(wishes.scratch, programs)
    return found if isinstance(found, NoClient) else Works(found, wishes)


class Works:
    def __init__(self, client: Client, wishes: Wishes):
        self.client = client
        self.images = Images(client, wishes.scratch)
        self.cleaner = Cleaner(
            client, self.images, wishes.cluster, KeepImages(wishes.keep_mb, wishes.keep_days)
        )
        self._wishes = wishes
        self._ways = box.Ways(
            client,
            wishes.cluster,
            wishes.runtime,
            host_network=wishes.host_network,
            enforce_limits=wishes.enforce_limits,
        )

    def close(self) -> None:
        self.cleaner.close()

    async def bring(self, wanted: Sequence[TaskLaunch], say: Say) -> dict[str, str]:
        """By task, the name to run its image by; those that are not here are pulled."""
        self._say_what_is_missing(wanted, say)
        found: dict[tuple[str, RegistryLogin | None], str] = {}
        for task in wanted:
            assert task.image is not None
            key = (task.image, task.login)
            if key not in found:
                waiting = [other.uid for other in wanted if (other.image, other.login) == key]
                # Said once of a gang, though all of it waits.
                found[key] = await self.images.have(*key, waiting, partial(say, task.uid))
        self.cleaner.busy()
        return {task.uid: found[str(task.image), task.login] for task in wanted}

    def _say_what_is_missing(self, wanted: Sequence[TaskLaunch], say: Say) -> None:
        able = (("cores", self.client.limits_cpu), ("memory", self.client.limits_memory))
        missing = [what for what, can in able if not can]
        if self._wishes.enforce_limits and missing:
            message = (
                f"{self.client.kind} cannot limit the {' and the '.join(missing)} of a task on this machine: "
                "the job runs without."
            )
            say(wanted[0].uid, Remark("LimitsNotEnforced", message))

    def prepare(self, path: Path, task: TaskLaunch, image: str, spec: Mapping[str, object]) -> None:
        box.prepare(path, task, image, spec, self._ways)

    async def clean(self, is_over: Callable[[str], bool]) -> None:
        await self.cleaner.sweep(is_over)
        await self.cleaner.clean_images()


def explain(seen: Observation, path: Path, works: Works | None) -> Observation:
    """Why the container did not start, for people; or that it ended because nobody ran it any more."""
    if not seen.start_error:
        return complaints.lost_with_daemon(seen, _said_by_client(path))
    image = marks.asked_image(path)
    if complaints.is_vanished(seen) and works is not None:
        works.images.forget(image)
    return complaints.explain(seen, image)


def _said_by_client(path: Path) -> str:
    try:
        return (path / contained.CLIENT_ERRORS).read_bytes()[-3000:].decode(errors="replace")
    except OSError:
        return ""
