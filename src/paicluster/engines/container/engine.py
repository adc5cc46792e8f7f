"""The container engine: what a task's image changes in how it is prepared, watched and cleaned up after.

Claims, supervisors, logs, records and hints are those of the process engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from openpaisdk.errors import NotFound
from paicluster.engines.container import box, complaints, finding
from paicluster.engines.container.cleaning import Cleaner, KeepImages
from paicluster.engines.container.client import Client
from paicluster.engines.container.finding import NoClient
from paicluster.engines.container.images import ImageRefused, Images, remove_logins
from paicluster.engines.interface import (
    Hint,
    Node,
    Observation,
    Phase,
    Remark,
    Say,
    TaskLaunch,
    unheard,
)
from paicluster.engines.process import accounts, folder
from paicluster.engines.process.engine import ProcessEngine
from pairuntime.supervisor import tree

log = logging.getLogger(__name__)

# How long it is taken for granted that there is nothing that could run an image.
_LOOK_AGAIN_S = 30.0
_SWEEP_AFTER_S = 20.0
_SWEEP_EVERY_S = 3600.0
REFUSED = -200


class ContainerEngine(ProcessEngine):
    """Tasks with an image run in a container of it, by whichever program is here; the others on the host.

    Where no container program works, tasks with an image run on the host too, and their job is told; unless
    ``refuse_without``, then they do not run at all. Nothing is looked for before a first image is wanted.
    """

    def __init__(
        self,
        home: Path,
        node: Node,
        *,
        programs: tuple[str, ...] = finding.KINDS,
        refuse_without: bool = False,
        host_network: bool = True,
        keep_images: KeepImages | None = None,
        enforce_limits: bool = False,
        **usual: Any,
    ):
        super().__init__(home, node, enforce_limits=enforce_limits, **usual)
        self._programs = programs
        self._refuse_without = refuse_without
        self._host_network = host_network
        self._keep_images = keep_images or KeepImages()
        self._enforce = enforce_limits
        self._scratch = home / "containers"
        self._cluster = hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]
        self._say: Say = unheard
        self._loop: asyncio.AbstractEventLoop
        self._finding = asyncio.Lock()
        self._found: tuple[float, Client | NoClient] | None = None
        self._images: Images | None = None
        self._cleaner: Cleaner | None = None
        # What each task that is being launched runs in, by the name its program knows it by.
        self._boxed: dict[str, str] = {}
        # Lost attempts whose containers are being removed, and those where nothing is left.
        self._clearing: set[str] = set()
        self._cleared: set[str] = set()
        self._work: set[asyncio.Task[Any]] = set()

    # -- life ----------------------------------------------------------------------------------

    async def start(self, hint: Hint, say: Say = unheard) -> None:
        await super().start(hint, say)
        self._say = say
        self._loop = asyncio.get_running_loop()
        if self._scratch.exists():
            # Containers were used here. What they left can wait until the server has started.
            remove_logins(self._scratch)
            self._in_background(self._sweep_now_and_then())

    async def close(self) -> None:
        self.give_up()
        if self._cleaner is not None:
            self._cleaner.close()
        for task in list(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await super().close()

    def give_up(self) -> None:
        """Whoever waits for a pull need not wait any longer: it begins anew with the next server."""
        if self._images is not None:
            self._images.give_up()

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _sweep_now_and_then(self) -> None:
        await asyncio.sleep(_SWEEP_AFTER_S)
        while True:
            client = await self._client()
            if isinstance(client, Client) and self._cleaner is not None:
                await self._cleaner.sweep(self._is_over)
                await self._cleaner.clean_images()
            await asyncio.sleep(_SWEEP_EVERY_S)

    def _is_over(self, uid: str) -> bool:
        path = folder.path_of(self._tasks, uid)
        return not path.exists() or folder.look(path).phase in (Phase.ENDED, Phase.LOST)

    async def _client(self) -> Client | NoClient:
        """What runs images here. Looked for once, when first needed; again later when there was nothing."""
        async with self._finding:
            loop = asyncio.get_running_loop()
            if self._found is not None and (
                isinstance(self._found[1], Client) or loop.time() - self._found[0] < _LOOK_AGAIN_S
            ):
                return self._found[1]
            self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            client = await finding.find(self._scratch, self._programs)
            self._found = loop.time(), client
            if isinstance(client, Client):
                self._images = Images(client, self._scratch)
                self._cleaner = Cleaner(client, self._images, self._cluster, self._keep_images)
            return client

    @property
    def runs_images(self) -> bool:
        found = self._found[1] if self._found is not None else None
        return isinstance(found, Client) or (found is None and finding.there(self._programs))

    # -- launching -----------------------------------------------------------------------------

    async def launch(self, gang: Sequence[TaskLaunch]) -> None:
        wanted = [task for task in gang if task.image and not self._was_launched(task.uid)]
        boxed: dict[str, str] = {}
        if wanted:
            try:
                boxed = await self._find_images(wanted)
            except ImageRefused as refused:
                self._refuse(gang, refused)
                raise
        self._boxed.update(boxed)
        if self._cleaner is not None:
            self._cleaner.busy()
        try:
            await super().launch(gang)
        finally:
            for uid in boxed:
                self._boxed.pop(uid, None)

    def _was_launched(self, uid: str) -> bool:
        try:
            return folder.complete(folder.path_of(self._tasks, uid), self._boot_id)
        except OSError:  # something else stands there: preparing it will tell
            return False

    async def _find_images(self, wanted: Sequence[TaskLaunch]) -> dict[str, str]:
        """By task, the image to run; those that are to run on the host are left out."""
        client = await self._client()
        if isinstance(client, NoClient):
            asked = sorted({task.image for task in wanted if task.image})
            if self._refuse_without:
                raise ImageRefused(
                    f"This cluster cannot run the image {asked[0]}, and does not run jobs without theirs: "
                    f"{client.reason}.",
                    exit_code=REFUSED,
                )
            images = ", ".join(asked)
            message = f"This cluster runs tasks without containers: {images} is not used ({client.reason})."
            self._say(wanted[0].uid, Remark("ImageNotUsed", message, "Warning"))
            return {}
        assert self._images is not None
        self._say_what_is_missing(wanted, client)
        found: dict[object, str] = {}
        for task in wanted:
            assert task.image is not None
            key = (task.image, task.login)
            if key not in found:
                # Said once of a gang, though all of it waits.
                found[key] = await self._images.have(task.image, task.login, partial(self._say, task.uid))
        return {task.uid: found[task.image, task.login] for task in wanted}

    def _say_what_is_missing(self, wanted: Sequence[TaskLaunch], client: Client) -> None:
        if not self._enforce:
            return
        able = (("cores", client.limits_cpu), ("memory", client.limits_memory))
        if missing := [what for what, can in able if not can]:
            message = (
                f"{client.kind} cannot limit the {' and the '.join(missing)} of a task on this machine: "
                "the job runs without."
            )
            self._say(wanted[0].uid, Remark("LimitsNotEnforced", message))

    def _refuse(self, gang: Sequence[TaskLaunch], refused: ImageRefused) -> None:
        """Nothing of the gang will ever run, and whoever looks finds why."""
        for task in gang:
            if not self._was_launched(task.uid):
                path = folder.path_of(self._tasks, task.uid)
                box.refuse(path, refused.message, refused.exit_code)
                folder.request_stop(path, task.uid, 0)

    def _is_boxed(self, task: TaskLaunch) -> bool:
        return task.uid in self._boxed or box.is_box(folder.path_of(self._tasks, task.uid))

    def _account_of(self, gang: Sequence[TaskLaunch]) -> accounts.Account | None:
        # A container has users of its own.
        return super()._account_of([task for task in gang if not self._is_boxed(task)])

    def _group_of(self, task: TaskLaunch) -> tree.Cgroup:
        return tree.Cgroup(tree.PROC, "") if self._is_boxed(task) else super()._group_of(task)

    def _limits_of(self, task: TaskLaunch) -> list[dict[str, object]]:
        return [] if self._is_boxed(task) else super()._limits_of(task)

    def _prepare(
        self,
        path: Path,
        task: TaskLaunch,
        spec: dict[str, object],
        shared_file: Path | None,
        account: accounts.Account | None,
    ) -> None:
        image = self._boxed.get(task.uid)
        if image is None:
            super()._prepare(path, task, spec, shared_file, account)
            return
        assert self._found is not None and isinstance(self._found[1], Client)
        ways = box.Ways(
            self._found[1],
            self._cluster,
            self._runtime,
            host_network=self._host_network,
            enforce_limits=self._enforce,
        )
        # What it is held by is the container.
        box.prepare(path, task, image, {**spec, "tree": {"mode": tree.PROC, "path": ""}}, ways)

    # -- looking -------------------------------------------------------------------------------

    def _settle(self, uid: str, seen: Observation) -> Observation:
        path = folder.path_of(self._tasks, uid)
        if not box.is_box(path):
            refusal = box.refusal_of(path) if seen.phase is Phase.ENDED and seen.started_ms is None else None
            if refusal is not None:
                return replace(
                    seen, refused=refusal[0], platform_code=refusal[1], stopped=False, killed_by_us=False
                )
            return super()._settle(uid, seen)
        if seen.phase is Phase.ENDED and seen.start_error:
            image = box.asked_image(path)
            if complaints.is_vanished(seen) and self._images is not None:
                self._images.forget(image)
            seen = complaints.explain(seen, image)
        settled = super()._settle(uid, seen)
        if settled.phase is Phase.ENDED:
            self._loop.call_soon_threadsafe(self._note_stopped, uid)
        elif settled.phase is Phase.LOST and uid not in self._cleared:
            # Only what its own program says tells that a container is gone.
            self._loop.call_soon_threadsafe(self._clear, uid)
            return Observation(Phase.RUNNING, started_ms=seen.started_ms)
        return settled

    def _note_stopped(self, uid: str) -> None:
        if self._cleaner is not None:
            self._cleaner.stopped(uid)

    def _clear(self, uid: str) -> None:
        if uid not in self._clearing and uid not in self._cleared:
            self._clearing.add(uid)
            self._in_background(self._clear_away(uid))

    async def _clear_away(self, uid: str) -> None:
        """Remove the container of an attempt whose supervisor died, as it was started."""
        told = box.removal(folder.path_of(self._tasks, uid))
        try:
            if told is not None:
                words, environment = told
                # Not marked as one of the attempt's own: those are being killed.
                environment.pop(folder.marker(uid).partition("=")[0], None)
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
                    log.warning(
                        "the container of %s cannot be removed: %s", uid, said.decode(errors="replace")
                    )
                    await asyncio.sleep(1.0)
                    return
            self._cleared.add(uid)
        finally:
            self._clearing.discard(uid)
            with contextlib.suppress(RuntimeError):  # the loop may be closing
                self._loop.call_soon(self._hint, uid)

    # -- beside a task -------------------------------------------------------------------------

    def inside(self, uid: str, command: Sequence[str], *, terminal: bool = False) -> Sequence[str]:
        path = folder.path_of(self._tasks, uid)
        if not box.is_box(path):
            return super().inside(uid, command, terminal=terminal)
        if folder.look(path).phase is not Phase.RUNNING:
            raise NotFound("The task does not run, so that nothing can be run beside it.")
        return box.inside_words(path, command, terminal=terminal)

    async def remove(self, uids: Sequence[str]) -> None:
        if self._cleaner is not None:
            for uid in uids:
                if box.is_box(folder.path_of(self._tasks, uid)):
                    self._cleaner.stopped(uid)
                self._cleared.discard(uid)
        await super().remove(uids)
