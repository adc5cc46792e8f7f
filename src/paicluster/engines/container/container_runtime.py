"""What runs images here, once it was found: its images, its containers, and what they leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from paicluster.engines.common import container_errors
from paicluster.engines.container import attempt_files, client_detection, container_spec
from paicluster.engines.container.cleanup import Cleaner, ImageRetention
from paicluster.engines.container.client import Client
from paicluster.engines.container.client_detection import NoClient
from paicluster.engines.container.images import Images
from paicluster.engines.interface import Notice, Notify, Observation, RegistryLogin, TaskLaunch
from pairuntime.supervisor import container_attempt


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """How a cluster wants its containers. ``scratch`` is a closed folder of its own."""

    scratch: Path
    cluster: str
    runtime: Path
    host_network: bool
    enforce_limits: bool
    # Of the images that were pulled: so many MB, and so many days since the last use.
    keep_mb: int | None
    keep_days: float | None


async def open_runtime(options: RuntimeOptions, programs: tuple[str, ...]) -> ContainerRuntime | NoClient:
    found = await client_detection.detect(options.scratch, programs)
    return found if isinstance(found, NoClient) else ContainerRuntime(found, options)


class ContainerRuntime:
    def __init__(self, client: Client, options: RuntimeOptions):
        self.client = client
        self.images = Images(client, options.scratch)
        self.cleaner = Cleaner(
            client, self.images, options.cluster, ImageRetention(options.keep_mb, options.keep_days)
        )
        self._wishes = options
        self._ways = container_spec.ContainerOptions(
            client,
            options.cluster,
            options.runtime,
            host_network=options.host_network,
            enforce_limits=options.enforce_limits,
        )

    def close(self) -> None:
        self.cleaner.close()

    async def ensure_images(self, tasks: Sequence[TaskLaunch], notify: Notify) -> dict[str, str]:
        """By task, the name to run its image by; those that are not here are pulled."""
        self._say_what_is_missing(tasks, notify)
        found: dict[tuple[str, RegistryLogin | None], str] = {}
        for task in tasks:
            assert task.image is not None
            key = (task.image, task.login)
            if key not in found:
                waiting = [other.uid for other in tasks if (other.image, other.login) == key]
                # Said once of a gang, though all of it waits.
                found[key] = await self.images.ensure_image(*key, waiting, partial(notify, task.uid))
        self.cleaner.postpone()
        return {task.uid: found[str(task.image), task.login] for task in tasks}

    def _say_what_is_missing(self, wanted: Sequence[TaskLaunch], say: Notify) -> None:
        able = (("cores", self.client.limits_cpu), ("memory", self.client.limits_memory))
        missing = [what for what, can in able if not can]
        if self._wishes.enforce_limits and missing:
            message = (
                f"{self.client.kind} cannot limit the {' and the '.join(missing)} of a task on this machine: "
                "the job runs without."
            )
            say(wanted[0].uid, Notice("LimitsNotEnforced", message))

    def prepare(self, path: Path, task: TaskLaunch, image: str, spec: Mapping[str, object]) -> None:
        container_spec.prepare(path, task, image, spec, self._ways)

    async def clean(self, is_finished: Callable[[str], bool]) -> None:
        await self.cleaner.sweep(is_finished)
        await self.cleaner.clean_images()


def explain_exit(seen: Observation, path: Path, runtime: ContainerRuntime | None) -> Observation:
    """Why the container did not start, for people; or that it ended because nobody ran it any more."""
    if not seen.start_error:
        return container_errors.lost_with_daemon(seen, _said_by_client(path))
    image = attempt_files.requested_image(path)
    if container_errors.is_missing_image(seen) and runtime is not None:
        runtime.images.forget(image)
    return container_errors.classify(seen, image)


def _said_by_client(path: Path) -> str:
    try:
        return (path / container_attempt.CLIENT_ERRORS).read_bytes()[-3000:].decode(errors="replace")
    except OSError:
        return ""
