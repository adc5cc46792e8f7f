"""Images on this machine: presence, pulls, and record of the pulled ones."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from paicluster.engines.common import image_names
from paicluster.engines.common.container_errors import is_invalid_name, plain_text, pull_error
from paicluster.engines.common.image_rejection import ImageRejected
from paicluster.engines.container.attempt_files import PULL_PREFIX
from paicluster.engines.container.client import Client, proxies
from paicluster.engines.container.timings import DEFAULT_TIMINGS, ContainerTimings
from paicluster.engines.interface import LaunchFailed, Notice, RegistryLogin

log = logging.getLogger(__name__)

# Between SIGTERM and SIGKILL of a pull that was cancelled.
_TERMINATION_TIMEOUT_S = 20.0
_MAX_LINES = 50

_NOT_HERE = re.compile(r"no such (image|object)", re.I)

NoticeListener = Callable[[Notice], None]


@dataclass(slots=True)
class _Pull:
    """A pull under way, its listeners, and the attempts that wait for it."""

    task: asyncio.Task[str]
    listeners: list[NoticeListener] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)


class Images:
    """Images of this machine. ``scratch``: a private folder, for logins during a pull."""

    def __init__(self, client: Client, scratch: Path, timings: ContainerTimings = DEFAULT_TIMINGS):
        self._client = client
        self._timings = timings
        self._scratch = scratch
        # Present images: the name that jobs use to the name for `run`.
        self._present: dict[str, str] = {}
        self._pulls: dict[tuple[str, RegistryLogin | None], _Pull] = {}
        self._pulled = scratch / "pulled.json"

    async def ensure_image(
        self, image: str, login: RegistryLogin | None, waiting: Iterable[str], notify: NoticeListener
    ) -> str:
        """The name for `run`; pulls a missing image. Raises ImageRejected or LaunchFailed.

        ``waiting``: the attempts that need it. When all of them are released during a pull, it is cancelled.
        """
        known = self._present.get(image)
        if known is None:
            known = await self._find(image)
        if known is not None:
            self._note_use(known)
            return known
        if image_names.registry_of(image) == "localhost":
            raise ImageRejected(
                f"There is no image {image} on this machine, and images of `localhost` cannot be pulled."
            )
        pull = self._pulls.get((image, login))
        if pull is None:
            pull = _Pull(asyncio.create_task(self._pull(image, login)))
            self._pulls[image, login] = pull
            pull.task.add_done_callback(lambda _: self._drop(pull))
        pull.waiting.update(waiting)
        notify(
            Notice("Pulling", f"The image {image} is not on this machine and is being pulled.", pending=True)
        )
        pull.listeners.append(notify)
        # Shielded: another launch may wait for the same pull.
        name = await asyncio.shield(pull.task)
        self._note_use(name)
        return name

    def forget(self, image: str) -> None:
        """Forget an image that was removed from the machine."""
        self._present.pop(image, None)

    def forget_all(self) -> None:
        self._present.clear()

    def release(self, attempts: Iterable[str]) -> None:
        """Attempts no longer need their image; a pull without waiting attempts is cancelled."""
        released = set(attempts)
        for pull in list(self._pulls.values()):
            if pull.waiting & released:
                pull.waiting -= released
                if not pull.waiting:
                    self._drop(pull)
                    pull.task.cancel()

    def _drop(self, pull: _Pull) -> None:
        """Forget a pull: later launches start a new one."""
        self._pulls = {key: other for key, other in self._pulls.items() if other is not pull}

    def cancel_pulls(self) -> None:
        """Cancel all pulls for a shutdown; the next server pulls again."""
        for pull in self._pulls.values():
            pull.task.cancel()

    async def _find(self, image: str) -> str | None:
        for name in dict.fromkeys((image, image_names.full_name(image))):
            if await self.is_present(name):
                self._present[image] = name
                return name
        return None

    async def is_present(self, name: str) -> bool:
        """Whether the image is here. ImageRejected: the name is invalid. LaunchFailed: the client failed."""
        client = self._client
        if client.kind == "podman":
            # Its `inspect` reads all images, and fails while another one is being removed.
            result = await client.call("image", "exists", name)
            missing = result.status == 1
        else:
            result = await client.call("image", "inspect", "--format", "{{.Id}}", name)
            missing = bool(_NOT_HERE.search(result.err))
        # docker reports an invalid name as missing, too.
        if result.status != 0 and is_invalid_name(result.err):
            raise ImageRejected(f"{name!r} is not a valid image name: {plain_text(result.error_text)}.")
        if result.status == 0 or missing:
            return result.status == 0
        raise LaunchFailed(
            f"{client.kind} could not check whether the image {name} is on this machine: "
            f"{plain_text(result.error_text)}."
        )

    # -- pulling -------------------------------------------------------------------------------

    async def _pull(self, image: str, login: RegistryLogin | None) -> str:
        name = image_names.full_name(image)
        began = time.monotonic()
        self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=PULL_PREFIX, dir=self._scratch) as folder:  # made 0700
            command = self._pull_command(name, login, Path(folder))
            lines: list[str] = []
            status = await self._follow(command, image, login, lines)
        if status != 0:
            raise pull_error(image, "" if login is None else login.username, "\n".join(lines))
        self._present[image] = name
        self._notify(image, login, Notice("Pulled", f"The image {image} was pulled in {_elapsed(began)}."))
        self._note_pulled(name)
        return name

    def _pull_command(self, name: str, login: RegistryLogin | None, folder: Path) -> list[str]:
        client, options = self._client, list[str]()
        if client.kind == "podman" and image_names.is_local_registry(image_names.registry_of(name)):
            options.append("--tls-verify=false")
        if login is None:
            return client.command("pull", *options, name)
        file = folder / "config.json"
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as f:
            f.write(image_names.login_file(name, login))
        if client.kind == "podman":
            return client.command("pull", "--authfile", str(file), *options, name)
        return [client.program, "--config", str(folder), *client.options, "pull", *options, name]

    async def _follow(
        self, command: list[str], image: str, login: RegistryLogin | None, lines: list[str]
    ) -> int:
        """Run the pull, collect its last lines of output, and send progress notices."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**self._client.environment, **proxies()},
            cwd="/",
            start_new_session=True,
        )
        assert process.stdout is not None
        layers: dict[str, bool] = {}
        began = time.monotonic()
        interval = self._timings.progress_interval_s
        due = began + interval
        try:
            while True:
                try:
                    async with asyncio.timeout(max(0.0, due - time.monotonic())):
                        line = await process.stdout.readline()
                except TimeoutError:
                    if not layers and time.monotonic() - began >= self._timings.manifest_timeout_s:
                        raise LaunchFailed(
                            f"The image {image} could not be pulled: the registry "
                            f"{image_names.registry_of(image)} has sent nothing for "
                            f"{self._timings.manifest_timeout_s:.0f} s."
                        ) from None
                    self._notify(image, login, _progress(image, layers, began))
                    interval = min(2 * interval, self._timings.progress_interval_max_s)
                    due += interval
                    continue
                if not line:
                    return await process.wait()
                text = line.decode(errors="replace").strip()
                lines.append(text)
                del lines[:-_MAX_LINES]
                _note_layer(text, layers)
        finally:
            await _end(process)

    def _notify(self, image: str, login: RegistryLogin | None, notice: Notice) -> None:
        pull = self._pulls.get((image, login))
        for listener in pull.listeners if pull is not None else ():
            listener(notice)

    # -- record of pulls -----------------------------------------------------------------------

    def pulled_images(self) -> dict[str, float]:
        """Images that this cluster pulled, with the time of their last use."""
        try:
            return {str(name): float(when) for name, when in json.loads(self._pulled.read_text()).items()}
        except (OSError, ValueError):
            return {}

    def _write_pulled(self, pulled: dict[str, float]) -> None:
        staging = self._pulled.with_suffix(".staging")
        try:
            staging.write_text(json.dumps(pulled))
            staging.rename(self._pulled)
        except OSError as error:
            log.warning("The list of pulled images could not be written: %s", error)

    def forget_pulled(self, names: Iterable[str]) -> None:
        pulled = self.pulled_images()
        if removed := pulled.keys() & set(names):
            self._write_pulled({name: when for name, when in pulled.items() if name not in removed})

    def _note_pulled(self, name: str) -> None:
        self._write_pulled({**self.pulled_images(), name: time.time()})

    def _note_use(self, name: str) -> None:
        pulled = self.pulled_images()
        if name in pulled and time.time() - pulled[name] > 3600:  # hourly is precise enough
            self._write_pulled({**pulled, name: time.time()})


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a pull that is no longer needed. The client removes what it has of the image, if it still can."""
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(_TERMINATION_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _note_layer(line: str, layers: dict[str, bool]) -> None:
    """Both clients print a layer when they start it; docker also when it is complete."""
    if match := re.match(r"Copying blob (?:sha256:)?([0-9a-f]{8,})(.*)", line):
        layers[match[1][:12]] = bool(re.search(r"done|skipped", match[2])) or layers.get(match[1][:12], False)
    elif match := re.match(r"([0-9a-f]{12}): (.*)", line):
        layers[match[1]] = bool(re.match(r"Pull complete|Already exists", match[2])) or layers.get(
            match[1], False
        )


def _progress(image: str, layers: dict[str, bool], began: float) -> Notice:
    since = f"{time.monotonic() - began:.0f} s"
    if not layers:
        return Notice("Pulling", f"The registry of {image} has sent nothing for {since}.", pending=True)
    done = sum(layers.values())
    parts = f"{len(layers)} layers" if not done else f"{done} of {len(layers)} layers are complete"
    return Notice("Pulling", f"The image {image} has been pulled for {since}: {parts}.", pending=True)


def _elapsed(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"
