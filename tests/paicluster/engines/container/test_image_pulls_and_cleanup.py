"""How images come and go: pulled, refused, logged in for, cleaned up; with a real podman and registry."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import uuid
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from paicluster.engines.common.image_rejection import ImageRejected
from paicluster.engines.container.client import Client, own_environment
from paicluster.engines.container.engine import ContainerEngine
from paicluster.engines.container.images import Images
from paicluster.engines.container.timings import ContainerTimings
from paicluster.engines.interface import LaunchFailed, Phase, RegistryLogin
from support.container_images import PLAIN, is_here, make_own
from support.container_rig import ContainerRig, in_image, podman
from support.docker_and_registry import registry
from support.engine_rig import DEADLINE_S, Driven, appears, mark, task
from support.ports import free_port

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("images")]

USER, PASSWORD = "reader", "open-sesame-7"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ContainerRig]:
    made = ContainerRig(tmp_path, "podman")
    yield made
    made.close()


# All images that were pushed to the registry.
_NAMES: list[str] = []


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry for everybody."""
    with registry(tmp_path_factory.mktemp("shelf")) as address:
        yield address
    forget(address)


@pytest.fixture(scope="module")
def locked_shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry that wants a login."""
    with registry(tmp_path_factory.mktemp("locked"), {USER: PASSWORD}) as address:
        yield address
    forget(address)


def forget(shelf: str) -> None:
    """What came from there goes. To list all images would fail when others remove theirs meanwhile."""
    for name in _NAMES:
        if name.startswith(shelf):
            podman("rmi", "--ignore", name)


def put_on(shelf: str, login: str = "", *, digest_in: Path | None = None) -> str:
    """An image of a name of its own on the shelf, and not on this machine.

    Its digest comes into that file: to ask podman for it fails while others remove their images.
    """
    name = f"{shelf}/pai-test/{uuid.uuid4().hex[:12]}:1"
    said = ["--creds", login] if login else []
    if digest_in is not None:
        said += ["--digestfile", str(digest_in)]
    _NAMES.append(name)
    make_own("podman", name)
    for words in (["push", "-q", "--tls-verify=false", *said, name], ["rmi", name]):
        podman(*words)
    return name


def reasons(driven: Driven) -> list[str]:
    """Reasons of the notices, each once in a row: a pull that takes long reports its progress."""
    return [reason for reason, _ in groupby(notice.reason for _, notice in driven.notices)]


async def test_missing_image_is_pulled_with_notices(rig: ContainerRig, shelf: str) -> None:
    image = put_on(shelf)
    async with Driven(rig) as driven:
        (seen,) = await driven.run(in_image(rig, image, "echo hello"))
        assert seen.exit_code == 0
        assert reasons(driven) == ["Pulling", "Pulled"]
        assert image in driven.notices[0][1].message
        driven.notices.clear()
        # It is present now, also for a restarted server.
        await driven.run(in_image(rig, image, "true"))
    async with Driven(rig) as again:
        await again.run(in_image(rig, image, "true"))
        assert driven.notices == again.notices == []


async def test_image_may_be_named_by_its_digest_with_or_without_a_tag(
    rig: ContainerRig, shelf: str, tmp_path: Path
) -> None:
    image = put_on(shelf, digest_in=tmp_path / "digest")
    repository = image.rpartition(":")[0]
    digest = (tmp_path / "digest").read_text().strip()
    for name in (f"{image}@{digest}", f"{repository}@{digest}"):
        async with Driven(rig) as driven:
            assert [seen.exit_code for seen in await driven.run(in_image(rig, name, "exit 7"))] == [7]
            assert reasons(driven) == ["Pulling", "Pulled"]
        podman("rmi", "--force", f"{repository}@{digest}")


async def test_a_gang_waits_for_one_pull(rig: ContainerRig, shelf: str) -> None:
    image = put_on(shelf)
    async with Driven(rig) as driven:
        seen = await driven.run(*(in_image(rig, image, f"exit {n}") for n in range(3)))
        assert [one.exit_code for one in seen] == [0, 1, 2]
        assert reasons(driven) == ["Pulling", "Pulled"]


async def test_missing_image_rejects_the_attempt(rig: ContainerRig, shelf: str) -> None:
    word = mark()
    gang = [task(rig, "true"), in_image(rig, f"{shelf}/no/such:1", "true", environment={"MARK": word})]
    async with Driven(rig) as driven:
        with pytest.raises(LaunchFailed, match=f"There is no image {shelf}/no/such:1") as refused:
            await driven.launch(*gang)
        assert not refused.value.transient
        for one in gang:
            seen = await driven.ended(one.uid)
            assert seen.started_ms is None and "no/such" in seen.rejection
            assert (seen.platform_code, seen.stopped) == (254, False)
        await driven.engine.stop([one.uid for one in gang], 0)  # as the controller does after a failure
        assert (await driven.ended(gang[0].uid)).platform_code == 254
    async with Driven(rig) as again:
        assert (await again.ended(gang[0].uid)).rejection


async def test_invalid_image_name_is_rejected(rig: ContainerRig) -> None:
    async with Driven(rig) as driven:
        with pytest.raises(ImageRejected, match="not a valid image name"):
            await driven.launch(in_image(rig, "Not A Name", "true"))


async def test_unreachable_registry_is_retried(rig: ContainerRig) -> None:
    one = in_image(rig, f"127.0.0.1:{free_port()}/some/image:1", "true")
    async with Driven(rig) as driven:
        with pytest.raises(LaunchFailed, match="could not be pulled") as failed:
            await driven.launch(one)
        assert failed.value.transient
        assert (await driven.look(one.uid)).phase is Phase.ABSENT


async def test_login_is_required_checked_and_used(rig: ContainerRig, locked_shelf: str) -> None:
    image = put_on(locked_shelf, f"{USER}:{PASSWORD}")
    seen_lines: list[str] = []
    async with Driven(rig) as driven:
        with pytest.raises(ImageRejected, match="requires a login"):
            await driven.launch(in_image(rig, image, "true"))
        wrong = RegistryLogin(USER, "not-" + PASSWORD)
        with pytest.raises(ImageRejected, match=f"to the user '{USER}'") as refused:
            await driven.launch(in_image(rig, image, "true", login=wrong))
        assert PASSWORD not in refused.value.message
        right = in_image(
            rig, image, "echo in", login=RegistryLogin(USER, PASSWORD, f"http://{locked_shelf}/v2/")
        )
        running = asyncio.create_task(driven.run(right))
        while not running.done():
            seen_lines += _command_lines()
            await asyncio.sleep(0.005)
        (seen,) = await running
        assert seen.exit_code == 0
    assert not [line for line in seen_lines if PASSWORD in line]
    assert any("--authfile" in line for line in seen_lines)
    # The login is stored nowhere, except as a secret that the supervisor masks.
    files = [path for path in rig.home.rglob("*") if path.is_file()]
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []


def _command_lines() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().decode(errors="replace")
        except OSError:
            continue


async def test_pull_is_cancelled_by_shutdown_and_by_stop(
    rig: ContainerRig,
) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        image = f"127.0.0.1:{deaf.getsockname()[1]}/some/image:1"
        one, other = (in_image(rig, image, "true") for _ in range(2))
        async with Driven(rig) as driven:
            launches = [asyncio.create_task(driven.launch(each)) for each in (one, other)]
            waiting = {one.uid, other.uid}
            await appears(lambda: {uid for uid, _ in driven.notices} == waiting, "both of them wait for it")
            await driven.engine.stop([one.uid], 60)
            assert (await driven.ended(one.uid)).stopped
            assert isinstance(driven.engine, ContainerEngine)
            driven.engine.cancel_launches()
            # The registry would keep them waiting forever.
            ends = await asyncio.wait_for(asyncio.gather(*launches, return_exceptions=True), DEADLINE_S)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends)
            # The next server pulls as if for the first time.
            assert (await driven.look(other.uid)).phase is Phase.ABSENT
    assert list((rig.home / "containers").glob("pull-*")) == []


async def test_pull_sends_progress_notices(rig: ContainerRig) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        one = in_image(rig, f"127.0.0.1:{deaf.getsockname()[1]}/some/image:1", "true")
        async with Driven(rig, timings=ContainerTimings(progress_interval_s=0.05)) as driven:
            launch = asyncio.create_task(driven.launch(one))
            await appears(lambda: len(driven.notices) >= 3, "some progress")
            assert {notice.reason for _, notice in driven.notices} == {"Pulling"}
            assert "has sent nothing for" in driven.notices[-1][1].message
            assert isinstance(driven.engine, ContainerEngine)
            driven.engine.cancel_launches()
            await asyncio.gather(launch, return_exceptions=True)


async def test_removed_image_is_pulled_for_the_next_attempt(rig: ContainerRig, shelf: str) -> None:
    image = put_on(shelf)
    async with Driven(rig) as driven:
        await driven.run(first := in_image(rig, image, "true"))
        await driven.engine.remove([first.uid])
        podman("rm", "-f", f"pai-{first.uid}")
        podman("rmi", image)
        (seen,) = await driven.run(in_image(rig, image, "true"))
        assert "was removed" in seen.start_error and seen.platform_code == -120
        (seen,) = await driven.run(in_image(rig, image, "exit 3"))
        assert seen.exit_code == 3


async def test_least_recently_used_pulled_images_are_removed(rig: ContainerRig, shelf: str) -> None:
    images = [put_on(shelf) for _ in range(3)]
    async with Driven(rig, keep_images_days=1.0) as driven:
        for image in images:
            await driven.run(one := in_image(rig, image, "true"))
            podman("rm", "-f", f"pai-{one.uid}")
        engine = driven.engine
        assert isinstance(engine, ContainerEngine) and engine._containers is not None
        kept = json.loads((rig.home / "containers/pulled.json").read_text())
        assert sorted(kept) == sorted(images)
        kept[images[1]] -= 2 * 86_400
        (rig.home / "containers/pulled.json").write_text(json.dumps(kept))
        await engine._containers.cleaner.clean_images()
        assert sorted(json.loads((rig.home / "containers/pulled.json").read_text())) == sorted(images[::2])
        assert [is_here("podman", image) for image in images] == [True, False, True]
        again = in_image(rig, images[1], "exit 4")  # and can be had again
        (seen,) = await driven.run(again)
        assert seen.exit_code == 4
        podman("rm", "-f", f"pai-{again.uid}")
    assert is_here("podman", PLAIN)  # not ours
    async with Driven(rig, keep_images_mb=0, keep_images_days=None) as driven:
        await driven.run(task(rig, "true"))
        assert isinstance(driven.engine, ContainerEngine) and driven.engine._containers is not None
        await driven.engine._containers.cleaner.clean_images()
        assert not any(is_here("podman", image) for image in images)


async def test_image_is_found_while_others_are_removed(rig: ContainerRig) -> None:
    images = Images(Client("podman", "podman", environment=own_environment()), rig.home / "looks")
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            make_own("podman", name := f"localhost/pai-test/{uuid.uuid4().hex[:12]}:1")
            podman("rmi", name)

    busy = [asyncio.create_task(asyncio.to_thread(come_and_go)) for _ in range(3)]
    try:
        for _ in range(25):
            assert all(await asyncio.gather(*(images.is_present(PLAIN) for _ in range(3))))
    finally:
        over.set()
        await asyncio.gather(*busy)
    assert not await images.is_present("localhost/pai-test/nobody-has-this:1")
