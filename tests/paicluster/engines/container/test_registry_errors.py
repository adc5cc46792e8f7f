"""What becomes of a job whose registry answers with anything but the image."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from paicluster.engines.common.container_errors import pull_error
from paicluster.engines.common.image_rejection import ImageRejected
from paicluster.engines.container.engine import ContainerEngine
from paicluster.engines.container.timings import ContainerTimings
from paicluster.engines.interface import LaunchFailed, Phase
from support.container_rig import ContainerRig, in_image
from support.engine_rig import DEADLINE_S, Driven, appears

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("images")]


class _Registry(ThreadingHTTPServer):
    """Is there, and answers every question about an image with ``status``; with None not at all."""

    daemon_threads = True

    def __init__(self, status: int | None, words: bytes):
        super().__init__(("127.0.0.1", 0), _Answers)
        self.status = status
        self.words = words
        self.asked = 0
        self.leaving = threading.Event()

    @property
    def image(self) -> str:
        return f"127.0.0.1:{self.server_port}/some/{uuid.uuid4().hex[:12]}:503"


class _Answers(BaseHTTPRequestHandler):
    server: _Registry

    def do_GET(self) -> None:
        about_image = self.path.rstrip("/") != "/v2"
        self.server.asked += about_image
        if about_image and self.server.status is None:
            self.server.leaving.wait()
            return
        body = self.server.words if about_image else b"{}"
        self.send_response(self.server.status or 200 if about_image else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def registry(status: int | None, code: str = "UNKNOWN") -> Iterator[_Registry]:
    words = b'{"errors": [{"code": "%s", "message": "so it is"}]}' % code.encode()
    with _Registry(status, words) as made:
        serving = threading.Thread(target=made.serve_forever)
        serving.start()
        try:
            yield made
        finally:
            made.leaving.set()
            made.shutdown()
            serving.join()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ContainerRig]:
    made = ContainerRig(tmp_path, "podman")
    yield made
    made.close()


@pytest.mark.parametrize("status", [500, 503])
async def test_registry_server_error_is_retried(rig: ContainerRig, status: int) -> None:
    with registry(status) as troubled:
        one = in_image(rig, troubled.image, "true")
        async with Driven(rig) as driven:
            with pytest.raises(LaunchFailed, match=f"could not be pulled: .*{status}") as failed:
                await driven.launch(one)
            assert failed.value.transient
            assert (await driven.look(one.uid)).phase is Phase.ABSENT


async def test_tag_is_not_taken_for_an_http_status(rig: ContainerRig) -> None:
    """Its tag is 503, which says nothing of the registry."""
    with registry(404, "MANIFEST_UNKNOWN") as empty:
        one = in_image(rig, empty.image, "true")
        async with Driven(rig) as driven:
            with pytest.raises(ImageRejected, match="There is no image"):
                await driven.launch(one)


@pytest.mark.parametrize(
    ("said", "lasting"),
    [
        # Messages of docker and podman.
        ("Error response from daemon: toomanyrequests: You have reached your pull rate limit.", False),
        ("Error: initializing source: reading manifest 403 in h/x: too many requests to registry", False),
        ("Error response from daemon: received unexpected HTTP status: 500 Internal Server Error", False),
        ("Error: pinging container registry h: invalid status code from registry 502 (Bad Gateway)", False),
        ("Error: reading manifest 401 in h.io/forbidden/timeout: dial tcp: connection refused", False),
        ("Error response from daemon: error parsing HTTP 403 response body: invalid character", True),
        ("Error: reading manifest 1 in h.io/forbidden/timeout: manifest unknown", True),
        ("Error: pinging container registry h:99999: dial tcp: address 99999: invalid port", True),
        ("invalid reference format: repository name (library/Foo) must be lowercase", True),
    ],
)
def test_only_permanent_errors_reject_the_image(said: str, lasting: bool) -> None:
    assert pull_error("h.io/forbidden/timeout:1", "", said).transient is not lasting


async def test_pull_from_a_silent_registry_times_out(rig: ContainerRig) -> None:
    timings = ContainerTimings(progress_interval_s=0.05, manifest_timeout_s=0.5)
    with registry(None) as silent:
        one = in_image(rig, silent.image, "true")
        async with Driven(rig, timings=timings) as driven:
            with pytest.raises(LaunchFailed, match="has sent nothing for") as failed:
                await asyncio.wait_for(driven.launch(one), 90)
            assert failed.value.transient
            assert (await driven.look(one.uid)).phase is Phase.ABSENT
            assert rig.leftovers(one.image or "") == []


async def test_pull_without_waiting_attempts_is_cancelled(rig: ContainerRig) -> None:
    with registry(None) as silent:
        image = silent.image
        one, other = (in_image(rig, image, "true") for _ in range(2))
        async with Driven(rig) as driven:
            assert isinstance(driven.engine, ContainerEngine)
            launches = [asyncio.create_task(driven.launch(each)) for each in (one, other)]
            await appears(lambda: silent.asked, "the pull")
            waiting = {one.uid, other.uid}
            await appears(lambda: {uid for uid, _ in driven.notices} >= waiting, "both of them wait for it")
            await driven.engine.stop([one.uid], 0)
            assert rig.leftovers(image), "another still waits for it"
            await driven.engine.stop([other.uid], 0)
            ends = await asyncio.wait_for(asyncio.gather(*launches, return_exceptions=True), DEADLINE_S)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends)
            assert rig.leftovers(image) == []
            for each in (one, other):
                assert (await driven.ended(each.uid)).stopped
            # A later launch does not join a pull that has ended.
            asked = silent.asked
            late = in_image(rig, image, "true")
            launch = asyncio.create_task(driven.launch(late))
            await appears(lambda: silent.asked > asked, "another pull")
            await driven.engine.stop([late.uid], 0)
            await asyncio.wait([launch], timeout=DEADLINE_S)
            assert launch.done()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Some/Image:1", "must be lowercase"),
        ("127.0.0.1:1/image@sha256:abc", "invalid reference"),
        ("127.0.0.1:99999/image", "invalid port"),
    ],
)
async def test_invalid_image_name_is_explained(rig: ContainerRig, name: str, why: str) -> None:
    async with Driven(rig) as driven:
        with pytest.raises(ImageRejected, match=f"'{name}' is not a valid image name: .*{why}"):
            await driven.launch(in_image(rig, name, "true"))
