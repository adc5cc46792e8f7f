"""Container runtime: images, containers and cleanup of the detected client."""

from __future__ import annotations

import os
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
from paicluster.engines.container.timings import DEFAULT_TIMINGS, ContainerTimings
from paicluster.engines.interface import Notice, Notify, Observation, RegistryLogin, TaskLaunch
from pairuntime.supervisor import container_attempt

# The end of what the container client wrote about a failure: enough for its last messages.
_CLIENT_OUTPUT_BYTES = 3000


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """Container settings of a cluster. ``scratch`` is a private folder."""

    scratch: Path
    cluster: str
    runtime: Path
    host_network: bool
    enforce_limits: bool
    # Of each container; 0: no limit.
    max_processes: int
    # Retention of pulled images: total size, and days since the last use.
    keep_mb: int | None
    keep_days: float | None
    timings: ContainerTimings = DEFAULT_TIMINGS


async def open_runtime(options: RuntimeOptions, programs: tuple[str, ...]) -> ContainerRuntime | NoClient:
    client = await client_detection.detect(options.scratch, programs)
    return client if isinstance(client, NoClient) else ContainerRuntime(client, options)


class ContainerRuntime:
    def __init__(self, client: Client, options: RuntimeOptions):
        self.client = client
        self.images = Images(client, options.scratch, options.timings)
        self.cleaner = Cleaner(
            client,
            self.images,
            options.cluster,
            ImageRetention(options.keep_mb, options.keep_days),
            options.timings,
        )
        self._options = options
        self._container_options = container_spec.ContainerOptions(
            client,
            options.cluster,
            options.runtime,
            host_network=options.host_network,
            enforce_limits=options.enforce_limits,
            max_processes=options.max_processes,
        )

    def close(self) -> None:
        self.cleaner.close()

    async def ensure_images(self, tasks: Sequence[TaskLaunch], notify: Notify) -> dict[str, str]:
        """Names of the local images by task uid; missing images are pulled."""
        self._notify_missing_limits(tasks, notify)
        names: dict[tuple[str, RegistryLogin | None], str] = {}
        for task in tasks:
            assert task.image is not None
            key = (task.image, task.login)
            if key not in names:
                waiting = [other.uid for other in tasks if (other.image, other.login) == key]
                # One notice for a gang, though all of its tasks wait.
                names[key] = await self.images.ensure_image(*key, waiting, partial(notify, task.uid))
        self.cleaner.postpone()
        return {task.uid: names[str(task.image), task.login] for task in tasks}

    def _notify_missing_limits(self, tasks: Sequence[TaskLaunch], notify: Notify) -> None:
        limits = (("cores", self.client.limits_cpu), ("memory", self.client.limits_memory))
        missing = [name for name, can_limit in limits if not can_limit]
        if self._options.enforce_limits and missing:
            message = (
                f"{self.client.kind} cannot limit the {' and the '.join(missing)} of a task on this machine: "
                "the job runs without this limit."
            )
            notify(tasks[0].uid, Notice("LimitsNotEnforced", message))

    def prepare(self, path: Path, task: TaskLaunch, image: str, spec: Mapping[str, object]) -> None:
        container_spec.prepare(path, task, image, spec, self._container_options)

    async def clean(self, is_finished: Callable[[str], bool]) -> None:
        await self.cleaner.sweep(is_finished)
        await self.cleaner.clean_images()


def explain_exit(seen: Observation, path: Path, runtime: ContainerRuntime | None) -> Observation:
    """The observation with a message why the container did not start, or that its daemon ended."""
    if not seen.start_error:
        return container_errors.lost_with_daemon(seen, _client_output(path))
    image = attempt_files.requested_image(path)
    if container_errors.is_missing_image(seen) and runtime is not None:
        runtime.images.forget(image)
    return container_errors.classify(seen, image)


def _client_output(path: Path) -> str:
    try:
        with (path / container_attempt.CLIENT_ERRORS).open("rb") as f:
            f.seek(max(0, os.fstat(f.fileno()).st_size - _CLIENT_OUTPUT_BYTES))
            return f.read(_CLIENT_OUTPUT_BYTES).decode(errors="replace")
    except OSError:
        return ""
