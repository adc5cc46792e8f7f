"""Images on this machine: whether one is there, and pulling it when it is not."""

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
from paicluster.engines.interface import LaunchFailed, Notice, RegistryLogin

log = logging.getLogger(__name__)

# How soon somebody who waits is told how far it has come; then after twice the time, up to a minute.
_PROGRESS_S = 10.0
_CALM_S = 60.0
# How long a registry may take to say what an image is made of. podman itself tries for minutes where it is
# told that it asks too often.
_SILENCE_S = 600.0
_KEPT_LINES = 50

_NOT_HERE = re.compile(r"no such (image|object)", re.I)

NoticeListener = Callable[[Notice], None]


@dataclass(slots=True)
class _Pull:
    """One that is under way, those who hear of it, and the attempts that wait for it."""

    task: asyncio.Task[str]
    listeners: list[NoticeListener] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)


class Images:
    """``scratch`` is a closed folder of ours: logins lie there for as long as a pull takes."""

    def __init__(self, client: Client, scratch: Path):
        self._client = client
        self._scratch = scratch
        # What is there, by the name people use: the name to run it by.
        self._there: dict[str, str] = {}
        self._pulls: dict[tuple[str, RegistryLogin | None], _Pull] = {}
        self._pulled = scratch / "pulled.json"

    async def ensure_image(
        self, image: str, login: RegistryLogin | None, waiting: Iterable[str], notify: NoticeListener
    ) -> str:
        """The name to run it by, pulled if it is not there. Raises ImageRefused or LaunchFailed.

        ``waiting``: the attempts that need it. When all of them `leave` during a pull, this is cancelled.
        """
        known = self._there.get(image)
        if known is None:
            known = await self._look(image)
        if known is not None:
            self._note_use(known)
            return known
        if image_names.registry_of(image) == "localhost":
            raise ImageRejected(
                f"There is no image {image} on this machine, and those of `localhost` come from nowhere else."
            )
        pull = self._pulls.get((image, login))
        if pull is None:
            pull = _Pull(asyncio.create_task(self._pull(image, login)))
            self._pulls[image, login] = pull
            pull.task.add_done_callback(lambda _: self._drop(pull))
        pull.waiting.update(waiting)
        notify(Notice("Pulling", f"The image {image} is not on this machine and is being pulled."))
        pull.listeners.append(notify)
        # Another may wait for the same: that one of us is given up does not end the pull.
        name = await asyncio.shield(pull.task)
        self._note_use(name)
        return name

    def forget(self, image: str) -> None:
        """It was there, and is not any more."""
        self._there.pop(image, None)

    def forget_all(self) -> None:
        self._there.clear()

    def release(self, attempts: Iterable[str]) -> None:
        """These do not want their image any more; what nobody waits for is not pulled any further."""
        gone = set(attempts)
        for pull in list(self._pulls.values()):
            if pull.waiting & gone:
                pull.waiting -= gone
                if not pull.waiting:
                    self._drop(pull)
                    pull.task.cancel()

    def _drop(self, pull: _Pull) -> None:
        """Whoever comes from now on begins another."""
        self._pulls = {key: other for key, other in self._pulls.items() if other is not pull}

    def cancel_pulls(self) -> None:
        """The server leaves; the next one pulls again."""
        for pull in self._pulls.values():
            pull.task.cancel()

    async def _look(self, image: str) -> str | None:
        for name in dict.fromkeys((image, image_names.full_name(image))):
            if await self.is_present(name):
                self._there[image] = name
                return name
        return None

    async def is_present(self, name: str) -> bool:
        """Raises ImageRefused where that is no name, and LaunchFailed where nobody could tell."""
        client = self._client
        if client.kind == "podman":
            # Its `inspect` looks at all images, and fails while somebody removes one of the others.
            answer = await client.call("image", "exists", name)
            missing = answer.status == 1
        else:
            answer = await client.call("image", "inspect", "--format", "{{.Id}}", name)
            missing = bool(_NOT_HERE.search(answer.err))
        # docker calls what is no name missing, too.
        if answer.status != 0 and is_invalid_name(answer.err):
            raise ImageRejected(f"{name!r} is no name of an image: {plain_text(answer.error_text)}.")
        if answer.status == 0 or missing:
            return answer.status == 0
        raise LaunchFailed(
            f"Whether the image {name} is on this machine, {client.kind} could not say: "
            f"{plain_text(answer.error_text)}."
        )

    # -- pulling -------------------------------------------------------------------------------

    async def _pull(self, image: str, login: RegistryLogin | None) -> str:
        name = image_names.full_name(image)
        began = time.monotonic()
        self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=PULL_PREFIX, dir=self._scratch) as folder:  # made 0700
            words = self._pull_words(name, login, Path(folder))
            lines: list[str] = []
            status = await self._follow(words, image, login, lines)
        if status != 0:
            raise pull_error(image, "" if login is None else login.username, "\n".join(lines))
        self._there[image] = name
        self._tell(image, login, Notice("Pulled", f"The image {image} was pulled in {_length(began)}."))
        self._note_pulled(name)
        return name

    def _pull_words(self, name: str, login: RegistryLogin | None, folder: Path) -> list[str]:
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
        self, words: list[str], image: str, login: RegistryLogin | None, lines: list[str]
    ) -> int:
        """Run it, keep its last words, and tell those who wait how far it has come."""
        process = await asyncio.create_subprocess_exec(
            *words,
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
        pause, due = _PROGRESS_S, began + _PROGRESS_S
        try:
            while True:
                try:
                    line = await asyncio.wait_for(process.stdout.readline(), max(0.0, due - time.monotonic()))
                except TimeoutError:
                    if not layers and time.monotonic() - began >= _SILENCE_S:
                        raise LaunchFailed(
                            f"The image {image} could not be pulled: the registry "
                            f"{image_names.registry_of(image)} has sent nothing for {_SILENCE_S:.0f} s."
                        ) from None
                    self._tell(image, login, _progress(image, layers, began))
                    pause = min(2 * pause, _CALM_S)
                    due += pause
                    continue
                if not line:
                    return await process.wait()
                text = line.decode(errors="replace").strip()
                lines.append(text)
                del lines[:-_KEPT_LINES]
                _note_layer(text, layers)
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()

    def _tell(self, image: str, login: RegistryLogin | None, remark: Notice) -> None:
        pull = self._pulls.get((image, login))
        for tell in pull.listeners if pull is not None else ():
            tell(remark)

    # -- what we brought here ------------------------------------------------------------------

    def pulled_images(self) -> dict[str, float]:
        """The images that are here because of us, and when each was last wanted."""
        try:
            return {str(name): float(when) for name, when in json.loads(self._pulled.read_text()).items()}
        except (OSError, ValueError):
            return {}

    def _keep_pulled(self, kept: dict[str, float]) -> None:
        aside = self._pulled.with_suffix(".aside")
        try:
            aside.write_text(json.dumps(kept))
            aside.rename(self._pulled)
        except OSError as error:
            log.warning("the list of pulled images could not be kept: %s", error)

    def forget_pulled(self, gone: Iterable[str]) -> None:
        kept = self.pulled_images()
        if unwanted := kept.keys() & set(gone):
            self._keep_pulled({name: when for name, when in kept.items() if name not in unwanted})

    def _note_pulled(self, name: str) -> None:
        self._keep_pulled({**self.pulled_images(), name: time.time()})

    def _note_use(self, name: str) -> None:
        kept = self.pulled_images()
        if name in kept and time.time() - kept[name] > 3600:  # by the hour is near enough
            self._keep_pulled({**kept, name: time.time()})


def _note_layer(line: str, layers: dict[str, bool]) -> None:
    """Both programs name a layer when they begin with it; docker also says when it has it."""
    if match := re.match(r"Copying blob (?:sha256:)?([0-9a-f]{8,})(.*)", line):
        layers[match[1][:12]] = bool(re.search(r"done|skipped", match[2])) or layers.get(match[1][:12], False)
    elif match := re.match(r"([0-9a-f]{12}): (.*)", line):
        layers[match[1]] = bool(re.match(r"Pull complete|Already exists", match[2])) or layers.get(
            match[1], False
        )


def _progress(image: str, layers: dict[str, bool], began: float) -> Notice:
    since = f"{time.monotonic() - began:.0f} s"
    if not layers:
        return Notice("Pulling", f"The registry of {image} has sent nothing for {since}.")
    done = sum(layers.values())
    parts = f"{len(layers)} layers" if not done else f"{done} of {len(layers)} layers are here"
    return Notice("Pulling", f"The image {image} has been on its way for {since}: {parts}.")


def _length(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"
