"""Images with podman on the nodes of a real Slurm: local, missing, and invalid ones."""

from __future__ import annotations

import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paicluster.engines.container.client import Client
from paicluster.engines.interface import Observation, Phase, RegistryLogin
from support.container_images import NO_SHELL, PLAIN, bring, make, make_own
from support.docker_and_registry import registry
from support.engine_rig import Driven, appears, task
from support.ports import free_ports
from support.slurm_cluster import RealSlurm
from support.slurm_rig import SlurmRig

pytestmark = [pytest.mark.slow, pytest.mark.service]

USER, PASSWORD = "me", "pass:'word"
# Names that no other test uses or removes.
_ODD = "localhost/pai-test/odd-over-slurm:1"
_WATCHED = "localhost/pai-test/watched-over-slurm:1"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry(tmp_path_factory.mktemp("shelf")) as address:
        yield address


@pytest.fixture(scope="module")
def locked_shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry(tmp_path_factory.mktemp("locked"), {USER: PASSWORD}) as address:
        yield address


@pytest.fixture(params=["shared", "reported"])
def rig(
    request: pytest.FixtureRequest, slurm: RealSlurm, podman: Client, tmp_path: Path
) -> Iterator[SlurmRig]:
    made = SlurmRig(slurm, tmp_path / "home", podman)
    if request.param == "reported":
        (made.port,) = free_ports(1)
    yield made
    made.close()


async def run(rig: SlurmRig, image: str, script: str, **more: Any) -> tuple[Observation, str, list[str]]:
    """Observation, log and notices."""
    one = task(rig, script, image=image, memory_mb=200, **more)
    async with Driven(rig) as driven:
        (seen,) = await driven.run(one)
        said = [f"{remark.reason}: {remark.message}" for _, remark in driven.notices]
        return (
            seen,
            driven.log(one.uid).decode(),
            [words for words in said if "FailedScheduling" not in words],
        )


async def test_unknown_image_fails_the_task_with_a_message(rig: SlurmRig, shelf: str) -> None:
    image = f"{shelf}/no/such:1"
    seen, _, said = await run(rig, image, "true")
    assert (seen.platform_code, seen.exit_code) == (254, None)
    assert seen.start_error == f"There is no image {image}: the registry {shelf} does not have it."
    assert said == [f"FailedToStart: {seen.start_error}"]


async def test_missing_localhost_image_is_not_pulled(rig: SlurmRig) -> None:
    seen, _, _ = await run(rig, "localhost/no-such:1", "true")
    assert seen.platform_code == 254
    assert "There is no image localhost/no-such:1 on the node" in seen.start_error
    assert any(node in seen.start_error for node in rig.slurm.nodes)


async def test_registry_login_is_required_checked_and_used(rig: SlurmRig, locked_shelf: str) -> None:
    image = f"{locked_shelf}/pai-test/{uuid.uuid4().hex[:12]}:1"
    make_own("podman", image)
    for words in (
        ["push", "-q", "--tls-verify=false", "--creds", f"{USER}:{PASSWORD}", image],
        ["rmi", image],
    ):
        subprocess.run(["podman", *words], check=True, capture_output=True)
    try:
        seen, _, said = await run(rig, image, "true")
        assert seen.platform_code == 254 and "requires a login" in said[-1]
        seen, _, said = await run(rig, image, "true", login=RegistryLogin(USER, "not-" + PASSWORD))
        assert seen.platform_code == 254 and f"to the user {USER!r}" in said[-1]
        seen, log, said = await run(rig, image, "exit 125", login=RegistryLogin(USER, PASSWORD))
        # The exit code is the task's own, even one that podman itself uses.
        assert (seen.exit_code, seen.start_error, seen.platform_code) == (125, "", None), log
        assert said == []
    finally:
        subprocess.run(["podman", "rmi", "--ignore", image], check=True, capture_output=True)


async def test_unavailable_registry_is_retried(rig: SlurmRig) -> None:
    (port,) = free_ports(1)
    seen, _, said = await run(rig, f"127.0.0.1:{port}/some/image:1", "true")
    assert seen.platform_code == -120
    assert "could not be pulled" in said[-1] and "connection refused" in said[-1]


async def test_invalid_image_name_and_missing_shell_are_reported(rig: SlurmRig) -> None:
    bring("podman", "", NO_SHELL)
    seen, _, _ = await run(rig, "Not/A/Name", "true")
    assert seen.platform_code == 254 and "is not a valid image name" in seen.start_error
    seen, _, _ = await run(rig, NO_SHELL, "true")
    assert seen.platform_code == -1203 and "has no shell" in seen.start_error


async def test_short_image_name_is_local_or_from_docker_hub(rig: SlurmRig) -> None:
    bring("podman", "", PLAIN)
    seen, _, _ = await run(rig, PLAIN.removeprefix("localhost/"), "exit 3")
    assert seen.exit_code == 3
    seen, log, _ = await run(rig, f"pai-{uuid.uuid4().hex}", "true")
    # Docker Hub is not reachable here.
    assert "docker.io/library/pai-" in log and "short-name" not in log, log


async def test_task_has_variables_of_image_and_job(rig: SlurmRig) -> None:
    """The image's PATH, not the server's; its home; and values of any kind."""
    changes = ["ENV PATH=/odd:/bin", "ENV OWN=image", "USER somebody", 'ENTRYPOINT ["/bin/false"]']
    make("podman", PLAIN, changes, _ODD)
    value = "a'b\"c\n$(x) `y` \\ ü%*"
    script = 'echo "$PATH $HOME $(id -u) $OWN $LANG $SLURM_JOB_NAME"; printf "%s\\n" "$VALUE"; touch made'
    environment = {"VALUE": value, "LD_LIBRARY_PATH": "/nowhere"}
    seen, log, _ = await run(rig, _ODD, f"{script}; echo ${{LD_LIBRARY_PATH-none}}", environment=environment)
    first, rest = log.split("\n", 1)
    path, *words = first.split(" ")
    assert path.startswith("/odd:/bin:") and path.endswith("/bin") and path.count(":") == 2, log
    assert words == ["/root", "0", "image", "C.UTF-8", "pai"]
    assert (rest, seen.exit_code) == (f"{value}\nnone\n", 0)


async def test_gang_tasks_have_variables_of_image_and_job(rig: SlurmRig) -> None:
    make("podman", PLAIN, ["ENV PATH=/odd:/bin"], _ODD + "-gang")
    shared = {"HOME": "/nobody", "VIRTUAL_ENV": "/nobody", "COMMON": "all", "LANG": "C.UTF-8"}
    script = 'echo "${PATH%:*} $HOME $COMMON ${VIRTUAL_ENV-none}"'
    gang = [
        task(rig, script, image=_ODD + "-gang", memory_mb=200, shared_environment=shared) for _ in range(2)
    ]
    async with Driven(rig) as driven:
        for one, seen in zip(gang, await driven.run(*gang), strict=True):
            assert (seen.exit_code, driven.log(one.uid)) == (0, b"/odd:/bin /root all none\n")


async def test_healthcheck_of_an_image_is_disabled(rig: SlurmRig, tmp_path: Path) -> None:
    bring("podman", "", PLAIN)
    recipe = f"FROM {PLAIN}\nHEALTHCHECK CMD true\n".encode()
    (tmp_path / "nothing").mkdir()
    words = ["podman", "build", "--format=docker", "-t", _WATCHED, "-f", "-", str(tmp_path / "nothing")]
    subprocess.run(words, input=recipe, check=True, capture_output=True)
    seen, log, _ = await run(rig, _WATCHED, "echo up")
    assert (seen.exit_code, log) == (0, "up\n")


async def test_task_pulling_its_image_can_be_stopped_and_times_out(rig: SlurmRig) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        image = f"127.0.0.1:{silent.getsockname()[1]}/some/image:1"
        one, two = (task(rig, "true", image=image, memory_mb=200, time_limit_s=limit) for limit in (None, 2))
        async with Driven(rig) as driven:
            await driven.launch(one)
            await driven.until(one.uid, Phase.RUNNING)
            await driven.engine.stop([one.uid], 1)
            seen = await driven.ended(one.uid)
            assert seen.stopped and not seen.start_error, driven.log(one.uid)
            (seen,) = await driven.run(two)
            assert seen.timed_out and not seen.start_error, driven.log(two.uid)
        for ended in (one, two):
            await appears(lambda uid=ended.uid: not rig.leftovers(f"pai-{uid}"), "the end of all of it")
