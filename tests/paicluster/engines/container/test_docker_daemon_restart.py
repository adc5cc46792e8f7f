"""What becomes of tasks when the docker daemon ends under them, and comes back."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.controller.exit_classification import task_exit
from paicluster.engines.container.timings import ContainerTimings
from paicluster.engines.interface import Loss, Observation
from support.container_rig import ContainerRig
from support.docker_and_registry import dockerd
from support.engine_rig import Driven, appears, mark, nothing_left, task

pytestmark = [pytest.mark.service, pytest.mark.slow]


@pytest.fixture
def daemon() -> Iterator[Path]:
    """The folder of one; it runs when a test starts it. Its path is short: it has to fit into sockets'."""
    folder = Path(tempfile.mkdtemp(prefix="pai-daemon-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def rig(tmp_path: Path, daemon: Path) -> Iterator[ContainerRig]:
    with dockerd(daemon) as address:
        made = ContainerRig(tmp_path / "rig", "docker", {"DOCKER_HOST": address})
    yield made
    os.environ.pop("DOCKER_HOST", None)


async def lose(rig: ContainerRig, daemon: Path, how: signal.Signals, driven: Driven) -> Observation:
    """How a task ended whose daemon got this signal. Nothing of it may run any more."""
    word = mark()
    one = task(rig, "echo up; exec sleep 600", environment={"MARK": word})
    await driven.launch(one)
    await driven.wait_for_output(one.uid, b"up")
    os.kill(int((daemon / "pid").read_text()), how)
    seen = await driven.ended(one.uid)
    await nothing_left(rig, word)
    return seen


async def test_task_is_lost_with_its_daemon_and_cleaned_up_after_its_restart(
    rig: ContainerRig, daemon: Path
) -> None:
    timings = ContainerTimings(removal_delay_s=0.1, removal_retry_interval_s=0.5)
    async with Driven(rig, timings=timings) as driven:
        with dockerd(daemon):
            seen = await lose(rig, daemon, signal.SIGTERM, driven)
        assert seen.loss is Loss.DAEMON
        # Not the user's fault: retried without counting.
        assert task_exit(seen, stop_code=None).code == -101
        (early,) = await driven.run(task(rig, "exit 3"))
        assert early.start_error.startswith("The docker daemon does not respond")
        assert task_exit(early, stop_code=None).code == -120
        with dockerd(daemon):
            (again,) = await driven.run(task(rig, "exit 3"))
            assert again.exit_code == 3
            await appears(lambda: rig.containers() == [], "the removal of what is over")


async def test_task_is_lost_when_its_daemon_is_killed(rig: ContainerRig, daemon: Path) -> None:
    async with Driven(rig) as driven:
        try:
            with dockerd(daemon):
                seen = await lose(rig, daemon, signal.SIGKILL, driven)
        finally:
            mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
            below = sorted((path for path in mounted if path.startswith(str(daemon))), reverse=True)
            subprocess.run(["umount", "--lazy", *below], check=False)
            for left in rig.leftovers(str(daemon)):
                if "containerd-shim" in left:
                    os.kill(int(left.split()[0]), signal.SIGKILL)
            shutil.rmtree(daemon, ignore_errors=True)
    assert seen.loss is Loss.DAEMON
