"""The container engine: tasks with an image run in containers of podman or docker.

Claims, supervisors, logs, records and hints are those of the process engine. The modules that run images are
imported when the first image is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import time
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paicluster.engines.common import attempt_folder, external_wait, session_host, unix_accounts
from paicluster.engines.common.image_rejection import REJECTED_CODE, ImageRejected
from paicluster.engines.container import attempt_files, client_probe
from paicluster.engines.container.timings import DEFAULT_TIMINGS, ContainerTimings
from paicluster.engines.interface import (
    Hint,
    Node,
    Notice,
    Notify,
    Observation,
    Phase,
    TaskLaunch,
    ignore_notice,
)
from paicluster.engines.process.engine import ProcessEngine
from pairuntime.supervisor import conmon, process_tree

if TYPE_CHECKING:
    from paicluster.engines.container.container_runtime import ContainerRuntime

log = logging.getLogger(__name__)

# How long a failed detection of podman and docker, or a guess before it, is valid.
_DETECTION_TTL_S = 30.0
_FIRST_SWEEP_DELAY_S = 20.0
_SWEEP_INTERVAL_S = 3600.0


class ContainerEngine(ProcessEngine):
    """Tasks with an image run in a container, tasks without one on the host.

    If no container program works, tasks with an image run on the host too, with a notice; with
    ``refuse_without`` they are rejected. The program is detected when the first image is needed.
    ``keep_images_mb`` and ``keep_images_days`` (since the last use) limit the pulled images; None sets no
    limit.
    """

    def __init__(
        self,
        home: Path,
        node: Node,
        *,
        programs: tuple[str, ...] = client_probe.KINDS,
        refuse_without: bool = False,
        host_network: bool = True,
        keep_images_mb: int | None = 100_000,
        keep_images_days: float | None = 30.0,
        enforce_limits: bool = False,
        timings: ContainerTimings = DEFAULT_TIMINGS,
        **process_options: Any,
    ):
        super().__init__(home, node, enforce_limits=enforce_limits, **process_options)
        self._programs = programs
        self._refuse_without = refuse_without
        self._host_network = host_network
        self._kept_images = keep_images_mb, keep_images_days
        self._enforce = enforce_limits
        self._timings = timings
        self._scratch = home / "containers"
        self._cluster = hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]
        self._notify: Notify = ignore_notice
        self._loop: asyncio.AbstractEventLoop
        self._detecting = asyncio.Lock()
        self._containers: ContainerRuntime | None = None
        # Why no container program works, and when that was detected.
        self._unavailable: tuple[str, float] | None = None
        # Whether a container program may work, as long as none was started.
        self._guess = False
        self._guess_valid_until = -math.inf
        # Local image names of the tasks that are being launched, by uid.
        self._launch_images: dict[str, str] = {}
        # Lost attempts whose containers are being removed, and those whose container is removed.
        self._removing: set[str] = set()
        self._removed_containers: set[str] = set()
        self._background: set[asyncio.Task[Any]] = set()

    # -- lifecycle -----------------------------------------------------------------------------

    async def start(self, hint: Hint, notify: Notify = ignore_notice) -> None:
        await super().start(hint, notify)
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        if self._scratch.exists():
            # Containers were used before. Their cleanup can wait until the server has started.
            attempt_files.remove_logins(self._scratch)
            self._in_background(self._sweep_periodically())

    async def close(self) -> None:
        self.cancel_launches()
        if self._containers is not None:
            self._containers.close()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await super().close()

    def cancel_launches(self) -> None:
        """Cancel pulls: the next server starts them again."""
        if self._containers is not None:
            self._containers.images.cancel_pulls()

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _sweep_periodically(self) -> None:
        await asyncio.sleep(_FIRST_SWEEP_DELAY_S)
        while True:
            containers = await self._find_containers()
            if containers is not None:
                await containers.clean(self._is_finished)
            await asyncio.sleep(_SWEEP_INTERVAL_S)

    # -- container program ---------------------------------------------------------------------

    @property
    def runs_images(self) -> bool:
        return self._containers is not None or (self._unavailable is None and self._may_find_containers())

    def _may_find_containers(self) -> bool:
        """Guess without starting a program. Kept for a while: it searches the whole PATH."""
        now = time.monotonic()
        if now >= self._guess_valid_until:
            self._guess = client_probe.may_be_available(self._programs)
            self._guess_valid_until = now + _DETECTION_TTL_S
        return self._guess

    async def _find_containers(self) -> ContainerRuntime | None:
        """The container runtime, detected on first use; a failed detection is repeated later."""
        async with self._detecting:
            now = asyncio.get_running_loop().time()
            still_unavailable = (
                self._unavailable is not None and now - self._unavailable[1] < _DETECTION_TTL_S
            )
            if self._containers is not None or still_unavailable:
                return self._containers
            from paicluster.engines.container import container_runtime

            self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            options = container_runtime.RuntimeOptions(
                self._scratch,
                self._cluster,
                self._runtime,
                host_network=self._host_network,
                enforce_limits=self._enforce,
                max_processes=self._max_processes,
                keep_mb=self._kept_images[0],
                keep_days=self._kept_images[1],
                timings=self._timings,
            )
            runtime = await container_runtime.open_runtime(options, self._programs)
            if isinstance(runtime, container_runtime.ContainerRuntime):
                self._containers = runtime
            else:
                self._unavailable = runtime.reason, now
            return self._containers

    # -- launching -----------------------------------------------------------------------------

    async def launch(self, gang: Sequence[TaskLaunch]) -> None:
        new = [task for task in gang if task.image and not self._was_launched(task.uid)]
        images: dict[str, str] = {}
        if new:
            try:
                images = await external_wait.outside(self._ensure_images(new))
            except ImageRejected as rejected:
                self._reject(gang, rejected)
                raise
        self._launch_images.update(images)
        try:
            await super().launch(gang)
        finally:
            for uid in images:
                self._launch_images.pop(uid, None)

    async def launch_when_committed(self, gang: Sequence[TaskLaunch], committed: Awaitable[bool]) -> None:
        # No notice about an image may be sent before the launch is committed.
        if not any(task.image for task in gang):
            await super().launch_when_committed(gang, committed)
        elif await committed:
            await self.launch(gang)

    def _was_launched(self, uid: str) -> bool:
        try:
            return attempt_folder.is_complete(attempt_folder.path_of(self._tasks, uid), self._boot_id)
        except OSError:  # the path is not a folder: preparing it will report the error
            return False

    async def _ensure_images(self, tasks: Sequence[TaskLaunch]) -> dict[str, str]:
        """Local image names by task uid; without the tasks that run on the host."""
        containers = await self._find_containers()
        if containers is not None:
            return await containers.ensure_images(tasks, self._notify)
        reason = self._unavailable[0] if self._unavailable is not None else ""
        images = ", ".join(sorted({task.image for task in tasks if task.image}))
        if self._refuse_without:
            raise ImageRejected(
                f"This cluster cannot run {images}, and does not run jobs without their image: {reason}.",
                exit_code=REJECTED_CODE,
            )
        message = f"This cluster runs tasks without containers: {images} is not used ({reason})."
        self._notify(tasks[0].uid, Notice("ImageNotUsed", message, "Warning"))
        return {}

    def _reject(self, gang: Sequence[TaskLaunch], rejected: ImageRejected) -> None:
        """Record for all tasks of the gang that they will never run, and why."""
        for task in gang:
            if not self._was_launched(task.uid):
                path = attempt_folder.path_of(self._tasks, task.uid)
                attempt_files.write_rejection(path, rejected.message, rejected.exit_code)
                attempt_folder.request_stop(path, task.uid, 0)

    def _runs_in_container(self, task: TaskLaunch) -> bool:
        if task.image is None:
            return False
        return task.uid in self._launch_images or attempt_files.is_container(
            attempt_folder.path_of(self._tasks, task.uid)
        )

    def _account_of(self, gang: Sequence[TaskLaunch]) -> unix_accounts.Account | None:
        # A container has its own users.
        return super()._account_of([task for task in gang if not self._runs_in_container(task)])

    def _group_of(self, task: TaskLaunch) -> process_tree.Cgroup:
        return (
            process_tree.Cgroup(process_tree.PROC, "")
            if self._runs_in_container(task)
            else super()._group_of(task)
        )

    def _limits_of(self, task: TaskLaunch) -> list[dict[str, object]]:
        return [] if self._runs_in_container(task) else super()._limits_of(task)

    def _prepare(
        self,
        path: Path,
        task: TaskLaunch,
        spec: dict[str, object],
        shared_file: Path | None,
        account: unix_accounts.Account | None,
    ) -> None:
        image = self._launch_images.get(task.uid)
        if image is None:
            super()._prepare(path, task, spec, shared_file, account)
            return
        assert self._containers is not None
        # The container controls the process tree.
        self._containers.prepare(
            path, task, image, {**spec, "cgroup": {"mode": process_tree.PROC, "path": ""}}
        )

    # -- observation ---------------------------------------------------------------------------

    def _verify(self, uid: str, seen: Observation) -> Observation:
        path = attempt_folder.path_of(self._tasks, uid)
        if seen.phase in (Phase.ABSENT, Phase.RUNNING):
            return super()._verify(uid, seen)
        if not attempt_files.is_container(path):
            rejection = attempt_files.read_rejection(path) if seen.started_ms is None else None
            if rejection is None:
                return super()._verify(uid, seen)
            message, code = rejection
            return replace(seen, rejection=message, platform_code=code, stopped=False, killed_by_us=False)
        if seen.start_error or seen.exit_code or seen.signal:
            from paicluster.engines.container.container_runtime import explain_exit

            seen = explain_exit(seen, path, self._containers)
        verified = super()._verify(uid, seen)
        if verified.phase is Phase.ENDED:
            self._loop.call_soon_threadsafe(self._note_stopped, uid)
        elif verified.phase is Phase.LOST and uid not in self._removed_containers:
            # Only the container program can confirm that the container is removed.
            self._loop.call_soon_threadsafe(self._start_removal, uid)
            return Observation(Phase.RUNNING, started_ms=seen.started_ms)
        return verified

    def _note_stopped(self, uid: str) -> None:
        if self._containers is not None:
            self._containers.cleaner.add_stopped(uid)

    def _start_removal(self, uid: str) -> None:
        if uid not in self._removing and uid not in self._removed_containers:
            self._removing.add(uid)
            self._in_background(self._remove_container(uid))

    async def _remove_container(self, uid: str) -> None:
        """Remove the container of an attempt whose supervisor died, with the client that started it."""
        command = attempt_files.remove_command(attempt_folder.path_of(self._tasks, uid))
        try:
            if command is not None:
                if not await self._run_removal(uid, *command):
                    await asyncio.sleep(1.0)
                    return
                await asyncio.to_thread(conmon.kill_left, command[0][-1])
            self._removed_containers.add(uid)
        finally:
            self._removing.discard(uid)
            with contextlib.suppress(RuntimeError):  # the loop may be closing
                self._loop.call_soon(self._hint, uid)

    async def _run_removal(self, uid: str, command: list[str], environment: dict[str, str]) -> bool:
        # Without the attempt's marker: marked processes are being killed.
        environment.pop(attempt_folder.environment_marker(uid).partition("=")[0], None)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
        _, error = await process.communicate()
        removed = process.returncode == 0 or b"No such container" in error
        if not removed:
            log.warning(
                "The container of attempt %s cannot be removed: %s", uid, error.decode(errors="replace")
            )
        return removed

    async def stop(self, uids: Sequence[str], grace_s: float) -> None:
        await super().stop(uids, grace_s)
        if self._containers is not None:
            self._containers.images.release(uids)

    def _is_container(self, folder: Path) -> bool:
        return attempt_files.is_container(folder)

    # -- exec and removal ----------------------------------------------------------------------

    def exec_command(self, uid: str, command: Sequence[str], *, terminal: bool = False) -> Sequence[str]:
        path = attempt_folder.path_of(self._tasks, uid)
        if not attempt_files.is_container(path):
            return super().exec_command(uid, command, terminal=terminal)
        return attempt_files.exec_command(self._folder_of_running(uid), command, terminal=terminal)

    def session_command(self, uid: str, *, terminal: bool = False) -> Sequence[str]:
        if not attempt_files.is_container(attempt_folder.path_of(self._tasks, uid)):
            return super().session_command(uid, terminal=terminal)
        return session_host.host_with_command(self.exec_command(uid, (), terminal=terminal))

    def forward_command(self, uid: str) -> Sequence[str]:
        path = attempt_folder.path_of(self._tasks, uid)
        if self._host_network or not attempt_files.is_container(path):
            return super().forward_command(uid)
        return session_host.local_forwarder(self._folder_of_running(uid), attempt_files.pid_command(path))

    async def remove(self, uids: Sequence[str]) -> None:
        for uid in uids:
            if attempt_files.is_container(attempt_folder.path_of(self._tasks, uid)):
                self._note_stopped(uid)
            self._removed_containers.discard(uid)
        await super().remove(uids)
