"""The container engine: what a task's image changes in how it is prepared, watched and cleaned up after.

Claims, supervisors, logs, records and hints are those of the process engine. What it takes to run images is
loaded when a first one is wanted.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openpaisdk.errors import NotFound
from paicluster.engines.common import attempt_folder, unix_accounts
from paicluster.engines.common.image_rejection import REJECTED_CODE, ImageRejected
from paicluster.engines.container import attempt_files, client_probe
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
from pairuntime.supervisor import process_tree

if TYPE_CHECKING:
    from paicluster.engines.container.container_runtime import ContainerRuntime

log = logging.getLogger(__name__)

# How long it is taken for granted that there is nothing that could run an image.
_LOOK_AGAIN_S = 30.0
_SWEEP_AFTER_S = 20.0
_SWEEP_EVERY_S = 3600.0


class ContainerEngine(ProcessEngine):
    """Tasks with an image run in a container of it, by whichever program is here; the others on the host.

    Where no container program works, tasks with an image run on the host too, and their job is told; unless
    ``refuse_without``, then they do not run at all. Nothing is looked for before a first image is wanted.
    Of the images that were pulled, ``keep_images_mb`` and ``keep_images_days`` (since the last use) are kept;
    None sets no limit.
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
        **usual: Any,
    ):
        super().__init__(home, node, enforce_limits=enforce_limits, **usual)
        self._programs = programs
        self._refuse_without = refuse_without
        self._host_network = host_network
        self._kept_images = keep_images_mb, keep_images_days
        self._enforce = enforce_limits
        self._scratch = home / "containers"
        self._cluster = hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]
        self._notify: Notify = ignore_notice
        self._loop: asyncio.AbstractEventLoop
        self._looking = asyncio.Lock()
        self._containers: ContainerRuntime | None = None
        # Why there is none, and when that was found out.
        self._unavailable: tuple[str, float] | None = None
        # What each task that is being launched runs in, by the name its program knows it by.
        self._launch_images: dict[str, str] = {}
        # Lost attempts whose containers are being removed, and those where nothing is left.
        self._clearing: set[str] = set()
        self._cleared: set[str] = set()
        self._work: set[asyncio.Task[Any]] = set()

    # -- life ----------------------------------------------------------------------------------

    async def start(self, hint: Hint, notify: Notify = ignore_notice) -> None:
        await super().start(hint, notify)
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        if self._scratch.exists():
            # Containers were used here. What they left can wait until the server has started.
            attempt_files.remove_logins(self._scratch)
            self._in_background(self._sweep_now_and_then())

    async def close(self) -> None:
        self.cancel_launches()
        if self._containers is not None:
            self._containers.close()
        for task in list(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await super().close()

    def cancel_launches(self) -> None:
        """Whoever waits for a pull need not wait any longer: it begins anew with the next server."""
        if self._containers is not None:
            self._containers.images.cancel_pulls()

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _sweep_now_and_then(self) -> None:
        await asyncio.sleep(_SWEEP_AFTER_S)
        while True:
            works = await self._find_containers()
            if works is not None:
                await works.clean(self._is_finished)
            await asyncio.sleep(_SWEEP_EVERY_S)

    def _is_finished(self, uid: str) -> bool:
        path = attempt_folder.path_of(self._tasks, uid)
        return not path.exists() or attempt_folder.observe(path).phase in (Phase.ENDED, Phase.LOST)

    # -- what runs images ----------------------------------------------------------------------

    @property
    def runs_images(self) -> bool:
        return self._containers is not None or (
            self._unavailable is None and client_probe.may_be_available(self._programs)
        )

    async def _find_containers(self) -> ContainerRuntime | None:
        """What runs images here. Looked for once, when first needed; again later when there was nothing."""
        async with self._looking:
            now = asyncio.get_running_loop().time()
            lacking = self._unavailable is not None and now - self._unavailable[1] < _LOOK_AGAIN_S
            if self._containers is not None or lacking:
                return self._containers
            from paicluster.engines.container import container_runtime as works

            self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            wishes = works.RuntimeOptions(
                self._scratch,
                self._cluster,
                self._runtime,
                host_network=self._host_network,
                enforce_limits=self._enforce,
                keep_mb=self._kept_images[0],
                keep_days=self._kept_images[1],
            )
            found = await works.open_runtime(wishes, self._programs)
            if isinstance(found, works.ContainerRuntime):
                self._containers = found
            else:
                self._unavailable = found.reason, now
            return self._containers

    # -- launching -----------------------------------------------------------------------------

    async def launch(self, gang: Sequence[TaskLaunch]) -> None:
        wanted = [task for task in gang if task.image and not self._was_launched(task.uid)]
        boxed: dict[str, str] = {}
        if wanted:
            try:
                boxed = await self._ensure_images(wanted)
            except ImageRejected as refused:
                self._refuse(gang, refused)
                raise
        self._launch_images.update(boxed)
        try:
            await super().launch(gang)
        finally:
            for uid in boxed:
                self._launch_images.pop(uid, None)

    async def launch_when_committed(self, gang: Sequence[TaskLaunch], committed: Awaitable[bool]) -> None:
        # Nobody is told what becomes of an image before it is certain that somebody wants it.
        if not any(task.image for task in gang):
            await super().launch_when_committed(gang, committed)
        elif await committed:
            await self.launch(gang)

    def _was_launched(self, uid: str) -> bool:
        try:
            return attempt_folder.is_complete(attempt_folder.path_of(self._tasks, uid), self._boot_id)
        except OSError:  # something else stands there: preparing it will tell
            return False

    async def _ensure_images(self, wanted: Sequence[TaskLaunch]) -> dict[str, str]:
        """By task, the image to run; those that are to run on the host are left out."""
        works = await self._find_containers()
        if works is not None:
            return await works.ensure_images(wanted, self._notify)
        why = self._unavailable[0] if self._unavailable is not None else ""
        images = ", ".join(sorted({task.image for task in wanted if task.image}))
        if self._refuse_without:
            raise ImageRejected(
                f"This cluster cannot run {images}, and does not run jobs without their image: {why}.",
                exit_code=REJECTED_CODE,
            )
        message = f"This cluster runs tasks without containers: {images} is not used ({why})."
        self._notify(wanted[0].uid, Notice("ImageNotUsed", message, "Warning"))
        return {}

    def _refuse(self, gang: Sequence[TaskLaunch], refused: ImageRejected) -> None:
        """Nothing of the gang will ever run, and whoever looks finds why."""
        for task in gang:
            if not self._was_launched(task.uid):
                path = attempt_folder.path_of(self._tasks, task.uid)
                attempt_files.write_rejection(path, refused.message, refused.exit_code)
                attempt_folder.request_stop(path, task.uid, 0)

    def _runs_in_container(self, task: TaskLaunch) -> bool:
        if task.image is None:
            return False
        return task.uid in self._launch_images or attempt_files.is_container(
            attempt_folder.path_of(self._tasks, task.uid)
        )

    def _account_of(self, gang: Sequence[TaskLaunch]) -> unix_accounts.Account | None:
        # A container has users of its own.
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
        # What it is held by is the container.
        self._containers.prepare(path, task, image, {**spec, "tree": {"mode": process_tree.PROC, "path": ""}})

    # -- looking -------------------------------------------------------------------------------

    def _settle(self, uid: str, seen: Observation) -> Observation:
        path = attempt_folder.path_of(self._tasks, uid)
        if seen.phase in (Phase.ABSENT, Phase.RUNNING):
            return super()._settle(uid, seen)
        if not attempt_files.is_container(path):
            refusal = attempt_files.read_rejection(path) if seen.started_ms is None else None
            if refusal is None:
                return super()._settle(uid, seen)
            why, code = refusal
            return replace(seen, rejection=why, platform_code=code, stopped=False, killed_by_us=False)
        if seen.start_error or seen.exit_code or seen.signal:
            from paicluster.engines.container.container_runtime import explain_exit

            seen = explain_exit(seen, path, self._containers)
        settled = super()._settle(uid, seen)
        if settled.phase is Phase.ENDED:
            self._loop.call_soon_threadsafe(self._note_stopped, uid)
        elif settled.phase is Phase.LOST and uid not in self._cleared:
            # Only what its own program says tells that a container is gone.
            self._loop.call_soon_threadsafe(self._clear, uid)
            return Observation(Phase.RUNNING, started_ms=seen.started_ms)
        return settled

    def _note_stopped(self, uid: str) -> None:
        if self._containers is not None:
            self._containers.cleaner.add_stopped(uid)

    def _clear(self, uid: str) -> None:
        if uid not in self._clearing and uid not in self._cleared:
            self._clearing.add(uid)
            self._in_background(self._clear_away(uid))

    async def _clear_away(self, uid: str) -> None:
        """Remove the container of an attempt whose supervisor died, as it was started."""
        told = attempt_files.remove_command(attempt_folder.path_of(self._tasks, uid))
        try:
            if told is not None and not await self._removed(uid, *told):
                await asyncio.sleep(1.0)
                return
            self._cleared.add(uid)
        finally:
            self._clearing.discard(uid)
            with contextlib.suppress(RuntimeError):  # the loop may be closing
                self._loop.call_soon(self._hint, uid)

    async def _removed(self, uid: str, words: list[str], environment: dict[str, str]) -> bool:
        # Not marked as one of the attempt's own: those are being killed.
        environment.pop(attempt_folder.environment_marker(uid).partition("=")[0], None)
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
        _, said = await process.communicate()
        gone = process.returncode == 0 or b"No such container" in said
        if not gone:
            log.warning("the container of %s cannot be removed: %s", uid, said.decode(errors="replace"))
        return gone

    async def stop(self, uids: Sequence[str], grace_s: float) -> None:
        await super().stop(uids, grace_s)
        if self._containers is not None:
            self._containers.images.release(uids)

    # -- beside a task, and after --------------------------------------------------------------

    def exec_command(self, uid: str, command: Sequence[str], *, terminal: bool = False) -> Sequence[str]:
        path = attempt_folder.path_of(self._tasks, uid)
        if not attempt_files.is_container(path):
            return super().exec_command(uid, command, terminal=terminal)
        if attempt_folder.observe(path).phase is not Phase.RUNNING:
            raise NotFound("The task does not run, so that nothing can be run beside it.")
        return attempt_files.exec_command(path, command, terminal=terminal)

    async def remove(self, uids: Sequence[str]) -> None:
        for uid in uids:
            if attempt_files.is_container(attempt_folder.path_of(self._tasks, uid)):
                self._note_stopped(uid)
            self._cleared.discard(uid)
        await super().remove(uids)
