"""What a task finds in its container, and how containers go; by a real podman."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import stat
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paicluster.engines.container import client_detection, client_probe, gpu_options
from paicluster.engines.container.client import Client
from paicluster.engines.container.engine import ContainerEngine
from paicluster.engines.container.timings import ContainerTimings
from paicluster.engines.interface import LaunchFailed, Mount, Phase, TaskLaunch
from pairuntime.supervisor import process_tree
from support.container_images import PLAIN, WITH_BASH, make
from support.container_rig import ContainerRig, in_image, podman
from support.engine_node import NODE
from support.engine_rig import DEADLINE_S, Driven, appears, mark, missing, nothing_left, task
from support.hosted_forwarder import HostedForwarder
from support.ports import free_port
from support.task_service import EchoServer, receive_all

pytestmark = pytest.mark.service


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ContainerRig]:
    made = ContainerRig(tmp_path, "podman")
    yield made
    made.close()


def podman_that_runs(instead: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A podman that does this in a shell instead of the creation of a task's container."""
    program = folder / "podman"
    folder.mkdir()
    case = f'case " $* " in *" run --name pai-"*) {instead};; esac'
    program.write_text(f'#!/bin/sh\n{case}\nexec {shutil.which("podman")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


async def test_task_whose_client_was_killed_before_the_start_is_retried(
    rig: ContainerRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This podman waits, instead of creating the container, until it is killed."""
    podman_that_runs("exec sleep 600", tmp_path / "bin", monkeypatch)
    one = in_image(rig, WITH_BASH, "true")

    def client() -> list[int]:
        if not (rig.attempt(one.uid) / "claim").exists():
            return []
        children = process_tree.children(rig.supervisor(one.uid))
        return [pid for pid in children if b"600" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    async with Driven(rig) as driven:
        await driven.launch(one)
        await appears(client, "the client")
        (pid,) = client()
        os.kill(pid, signal.SIGKILL)
        seen = await driven.ended(one.uid)
    assert "the container program was killed by signal 9" in seen.start_error
    assert seen.platform_code == -120


async def test_task_whose_container_was_killed_before_the_start_is_retried(
    rig: ContainerRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This podman ends as podman does then: with the status of a killed program, and without a word."""
    podman_that_runs("exit 137", tmp_path / "bin", monkeypatch)
    one = in_image(rig, WITH_BASH, "true")
    async with Driven(rig) as driven:
        await driven.launch(one)
        seen = await driven.ended(one.uid)
    assert "the container was killed before its program started" in seen.start_error
    assert seen.platform_code == -120


@pytest.mark.parametrize("killed", ["client", "supervisor"])
async def test_nothing_is_left_of_a_container_whose_creation_was_interrupted(
    rig: ContainerRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """podman removes the container, and does not know of the conmon that it started for it."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    slow, wrapped = bin_folder / "slow-runtime", bin_folder / "podman"
    # The container exists, and podman is not told.
    creates = (
        f'case " $* " in *" create "*) {shutil.which("runc")} "$@"; touch {tmp_path}/made; sleep 600;; esac'
    )
    slow.write_text(f'#!/bin/sh\n{creates}\nexec {shutil.which("runc")} "$@"\n')
    runs = f'case " $* " in *" run --name pai-"*) set -- --runtime {slow} "$@";; esac'
    wrapped.write_text(f'#!/bin/sh\n{runs}\nexec {shutil.which("podman")} "$@"\n')
    for path in (slow, wrapped):
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    one = in_image(rig, WITH_BASH, "true")

    def left() -> list[str]:
        lines = {path: _command_line(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
        return [line for path, line in lines.items() if one.uid in line or str(slow) in line]

    async with Driven(rig) as driven:
        await driven.launch(one)
        await appears((tmp_path / "made").exists, "the container")
        supervisor = rig.supervisor(one.uid)
        (client,) = [
            pid for pid in process_tree.children(supervisor) if "run" in _command_line(Path(f"/proc/{pid}"))
        ]
        os.kill(client if killed == "client" else supervisor, signal.SIGKILL)
        seen = await driven.until(one.uid, Phase.ENDED if killed == "client" else Phase.LOST)
        assert seen.platform_code == (-120 if killed == "client" else None)
        await appears(lambda: not left(), "the end of conmon and of what it started")


def _command_line(process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


async def test_user_folder_and_environment_come_from_image_and_job(rig: ContainerRig) -> None:
    name = "localhost/pai-test/somebody:1"
    changes = ["USER somebody", "WORKDIR /tmp", "ENV OF_THE_IMAGE=yes", "ENTRYPOINT false"]
    make("podman", WITH_BASH, changes, name)
    environment = {"HOME": "/home/me", "VIRTUAL_ENV": "/venv", "OWN": "mine"}
    environment["PAI_HOST_IP_my-role_0"] = "1.2.3.4"  # a name no shell can have
    one = in_image(
        rig,
        name,
        'id -u; pwd; echo "$PAI_WORK_DIR $OF_THE_IMAGE $OWN ${VIRTUAL_ENV-none} $HOME"; '
        "env | grep my-role; ls /usr/local/pai; touch here; type python3 || true",
        environment=environment,
    )
    async with Driven(rig) as driven:
        (seen,) = await driven.run(one)
        said = driven.log(one.uid, "stdout").decode().split("\n")
    assert seen.exit_code == 0
    assert said[:4] == ["1234", "/tmp", "/tmp yes mine none /tmp", "PAI_HOST_IP_my-role_0=1.2.3.4"]
    assert {"runtime", "config", "work", "shared"} <= set(said[4:])


async def test_container_has_sources_mounts_and_shared_memory(rig: ContainerRig, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.txt").write_text("from afar\n")
    with tarfile.open(tmp_path / "sources.tar", "w") as tar:
        tar.add(tmp_path / "src/train.txt", "train.txt")
    for name in ("data, with a comma", "results"):
        (tmp_path / name).mkdir()
    (tmp_path / "data, with a comma/x").write_text("x\n")
    one = dataclasses.replace(
        task(
            rig,
            "cat train.txt /data/x; echo y >/results/y; echo no >/data/no || true; df -m /dev/shm | tail -1; "
            "echo no >/usr/local/pai/runtime/x || echo read-only; pwd",
            sources=tmp_path / "sources.tar",
            shm_mb=77,
        ),
        mounts=(
            Mount(tmp_path / "data, with a comma", "/data", read_only=True),
            Mount(tmp_path / "results", "/results"),
        ),
    )
    async with Driven(rig) as driven:
        (seen,) = await driven.run(one)
        said = driven.log(one.uid, "stdout").decode()
    assert seen.exit_code == 0, said
    assert said.startswith("from afar\nx\n") and " 77 " in said
    assert said.endswith("read-only\n/usr/local/pai/work\n")
    assert (tmp_path / "results/y").read_text() == "y\n"
    assert not (tmp_path / "data, with a comma/no").exists()


async def test_container_cannot_create_devices_on_a_storage(rig: ContainerRig, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    storage.mkdir()
    one = in_image(
        rig, PLAIN, "! mknod /data/disk b 1 0 || exit 3", mounts=(Mount(storage, "/data"),), owner="eve"
    )
    async with Driven(rig) as driven:
        (seen,) = await driven.run(one)
    assert seen.exit_code == 0
    assert list(storage.iterdir()) == []


@pytest.mark.parametrize(
    ("mode", "content", "reason"),
    [
        (0o755, "link", "no link is followed"),
        (0o1777, "foreign", "every account may replace"),
        (0o777, "folder", "every account may replace"),
        (0o1777, "folder", ""),
        (0o755, "foreign", ""),
        (0o755, "nothing", ""),
    ],
)
async def test_users_folder_that_may_be_another_is_not_mounted(
    rig: ContainerRig, tmp_path: Path, mode: int, content: str, reason: str
) -> None:
    """Its link to another folder would be followed with the rights of the server."""
    storage, secret = tmp_path / "storage", tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret\n")
    storage.mkdir()
    own = storage / "eve"
    if content == "link":
        own.symlink_to(secret)
    elif content != "nothing":
        own.mkdir()
        if content == "foreign":
            os.chown(own, 1234, 1234)
    storage.chmod(mode)
    mounts = (Mount(own, "/data", create=True),)
    one = in_image(rig, PLAIN, "! cat /data/key; echo mine >/data/file", mounts=mounts, owner="eve")
    async with Driven(rig) as driven:
        if reason:
            with pytest.raises(LaunchFailed, match=reason):
                await driven.launch(one)
        else:
            (seen,) = await driven.run(one)
            assert seen.exit_code == 0
    assert (own / "file").exists() == (not reason)
    assert [file.name for file in secret.iterdir()] == ["key"]


# In the place of the image's shell, which is the init process of its container.
_SHELL_THAT_LIES = """#!/bin/sh
: >/usr/local/pai/shared/started
echo '{status}' >/usr/local/pai/shared/status
exit 7
"""


@pytest.mark.parametrize("status", ["-1003", "9" * 60, "256", "0x7", ""])
async def test_exit_status_that_no_program_has_is_not_believed(
    rig: ContainerRig, tmp_path: Path, status: str
) -> None:
    """-1003 is that of a preempted task, which is retried for ever; the database takes no larger numbers."""
    name = "localhost/pai-test/lying:1"
    make("podman", WITH_BASH, ["ENV PATH=/evil:/bin"], name)
    shell = tmp_path / "evil" / "sh"
    shell.parent.mkdir()
    shell.write_text(_SHELL_THAT_LIES.format(status=status))
    shell.chmod(0o755)
    one = in_image(rig, name, "true", mounts=(Mount(shell.parent, "/evil"),))
    async with Driven(rig) as driven:
        (seen,) = await driven.run(one)
    assert (seen.exit_code, seen.signal) == (7, None)


async def test_container_cores_and_memory_are_limited(rig: ContainerRig) -> None:
    old = "memory/memory.limit_in_bytes cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us"
    script = f"cd /sys/fs/cgroup; cat {old} || cat memory.max cpu.max"
    one = task(rig, script, memory_mb=77, cpu=2)
    async with Driven(rig, enforce_limits=True) as driven:
        (seen,) = await driven.run(one)
        memory, quota, period = map(int, driven.log(one.uid, "stdout").split())
    assert (seen.exit_code, memory, quota) == (0, 77 << 20, 2 * period)


@pytest.mark.parametrize("network", ["host", "own"])
async def test_task_port_is_a_port_of_the_node(rig: ContainerRig, network: str) -> None:
    port = free_port()
    serve = f"echo hello >/tmp/index.html; echo up; exec httpd -f -p {port} -h /tmp"
    one = task(rig, serve, ports={"http": (port,)})

    def answers() -> bool:
        with socket.socket() as client:
            client.settimeout(5)
            try:
                client.connect(("127.0.0.1", port))
                client.sendall(b"GET /index.html HTTP/1.0\r\n\r\n")
                return b"200 OK" in client.recv(1000)
            except OSError:
                return False

    async with Driven(rig, host_network=network == "host") as driven:
        await driven.launch(one)
        await driven.wait_for_output(one.uid, b"up")
        await appears(answers, "an answer from the task")
        await driven.engine.stop([one.uid], 1)
        await driven.ended(one.uid)


def fetch(forwarder: HostedForwarder, port: int) -> bytes:
    connection = forwarder.open(port)
    if isinstance(connection, str):  # it does not listen yet
        return b""
    with connection:
        connection.sendall(b"GET /index.html HTTP/1.0\r\n\r\n")
        return receive_all(connection)


async def test_forward_enters_the_network_of_the_container(rig: ContainerRig) -> None:
    """On its loopback, and not on that of the node."""
    port = free_port()
    one = task(rig, f"echo hello >/tmp/index.html; exec httpd -f -p 127.0.0.1:{port} -h /tmp")
    on_node = EchoServer()

    async with Driven(rig, host_network=False) as driven:
        assert isinstance(driven.engine, ContainerEngine)
        await driven.launch(one)
        # Its container is still on its way.
        while (await driven.engine.observe([one.uid]))[one.uid].phase is not Phase.RUNNING:
            await asyncio.sleep(0.01)
        forwarder = HostedForwarder(driven.engine.forward_command(one.uid))
        await appears(lambda: b"hello" in fetch(forwarder, port), "an answer from the task")
        assert forwarder.open(on_node.port) == "refused"
        forwarder.close()
        await driven.engine.stop([one.uid], 1)
        await driven.ended(one.uid)
    on_node.close()


async def test_forward_is_not_led_into_the_container_of_another_task(rig: ContainerRig) -> None:
    """The other one has the same variable, and listens on the same port."""
    port = free_port()
    serve = f"exec httpd -f -p 127.0.0.1:{port} -h /tmp"
    one = task(rig, f"echo mine >/tmp/index.html; echo up; {serve}")
    thief = task(rig, f"echo stolen >/tmp/index.html; export PAI_ATTEMPT_UID={one.uid}; echo up; {serve}")

    async with Driven(rig, host_network=False) as driven:
        for each in (thief, one):  # the thief's processes are found first
            await driven.launch(each)
            await driven.wait_for_output(each.uid, b"up")
        assert isinstance(driven.engine, ContainerEngine)
        forwarder = HostedForwarder(driven.engine.forward_command(one.uid))
        answer = b""
        async with asyncio.timeout(DEADLINE_S):
            while not answer:
                answer = await asyncio.to_thread(fetch, forwarder, port)
        forwarder.close()
        await driven.engine.stop([one.uid, thief.uid], 1)
        await driven.all_ended([one.uid, thief.uid])
    assert b"mine" in answer and b"stolen" not in answer


@pytest.fixture
def four_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Devices that are none, under the names and the number of NVIDIA's, and a driver."""
    if os.geteuid() != 0:
        missing("root, who can make devices")
    dev, lib = tmp_path / "dev", tmp_path / "lib"
    for folder in (dev, lib):
        folder.mkdir()
    for name, minor in [*((f"nvidia{n}", n) for n in range(4)), ("nvidiactl", 255)]:
        os.mknod(dev / name, 0o666 | stat.S_IFCHR, os.makedev(195, minor))
    (lib / "libcuda.so.1").write_text("a driver\n")
    monkeypatch.setattr(gpu_options, "_DEVICES", dev)
    monkeypatch.setattr(gpu_options, "_LIBRARY_FOLDERS", (str(lib),))
    monkeypatch.setattr(gpu_options, "_CDI_FOLDERS", ())
    return dev


_LOOK = (
    "ls /dev | grep nvidia | tr '\\n' ' '; echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES; "
    'cat "${LD_LIBRARY_PATH-none}/libcuda.so.1" || true'
)


async def test_task_sees_exactly_its_gpus_without_the_nvidia_toolkit(
    rig: ContainerRig, four_gpus: Path
) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "1,3", "NVIDIA_VISIBLE_DEVICES": "1,3"}
    two = task(rig, _LOOK, gpus=(1, 3), environment=environment)
    none = task(rig, "ls /dev | grep -c nvidia || true")
    async with Driven(rig) as driven:
        await driven.run(two, none)
        assert driven.log(two.uid, "stdout") == b"nvidia1 nvidia3 nvidiactl 0,1 1,3\na driver\n"
        assert driven.log(none.uid, "stdout") == b"0\n"


async def test_task_sees_exactly_its_gpus_with_cdi(
    rig: ContainerRig, four_gpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By CDI, as NVIDIA's toolkit writes it."""
    folder = Path("/var/run/cdi")
    folder.mkdir(exist_ok=True)
    described = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {
                "name": str(n),
                "containerEdits": {
                    "deviceNodes": [{"path": f"/dev/nvidia{n}", "type": "c", "major": 195, "minor": n}]
                },
            }
            for n in range(4)
        ],
    }
    file = folder / "pai-test.json"
    monkeypatch.setattr(gpu_options, "_CDI_FOLDERS", (str(folder),))
    environment = {"CUDA_VISIBLE_DEVICES": "2", "NVIDIA_VISIBLE_DEVICES": "2"}
    one = task(rig, _LOOK, gpus=(2,), environment=environment)
    try:
        file.write_text(json.dumps(described))
        async with Driven(rig) as driven:
            (seen,) = await driven.run(one)
            assert seen.exit_code == 0, seen
            assert driven.log(one.uid, "stdout") == b"nvidia2 0 2\n"
    finally:
        file.unlink()


def test_container_gets_only_its_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    podman, docker = Client("podman", "podman"), Client("docker", "docker")
    assert gpu_options.gpu_options(podman, ()) == ([], False)
    (tmp_path / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    monkeypatch.setattr(gpu_options, "_CDI_FOLDERS", (str(tmp_path),))
    words, by_hand = gpu_options.gpu_options(podman, (1, 3))
    assert words == ["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3"] and not by_hand
    monkeypatch.setattr(gpu_options, "_has_docker_hook", lambda: True)
    assert gpu_options.gpu_options(docker, (1, 3)) == (["--gpus", '"device=1,3"'], False)
    monkeypatch.setattr(gpu_options, "_CDI_FOLDERS", ())
    with pytest.raises(LaunchFailed, match="nvidia42"):
        gpu_options.gpu_options(podman, (42,))


async def test_stopped_containers_are_removed(rig: ContainerRig) -> None:
    async with Driven(rig, timings=ContainerTimings(removal_delay_s=0.1)) as driven:
        one, long = task(rig, "true"), task(rig, "echo up; sleep 60")
        await driven.launch(long)
        await driven.wait_for_output(long.uid, b"up")
        await driven.run(one)
        await appears(lambda: f"pai-{one.uid}" not in rig.containers(), "the removal")
        assert f"pai-{long.uid}" in rig.containers()
        await driven.engine.stop([long.uid], 0)
        await driven.ended(long.uid)


async def test_server_removes_only_containers_of_finished_attempts(rig: ContainerRig) -> None:
    async with Driven(rig) as driven:
        over, running = task(rig, "true"), task(rig, "echo up; sleep 60")
        await driven.launch(running)
        await driven.wait_for_output(running.uid, b"up")
        await driven.run(over)
    # One as a killed client leaves it, and one of another cluster.
    stranger = f"pai-{uuid.uuid4()}"
    podman("create", "--name", stranger, "--label", "org.openpai.cluster=somebody-elses", PLAIN, "true")
    try:
        async with Driven(rig) as driven:
            engine = driven.engine
            assert isinstance(engine, ContainerEngine)
            works = await engine._find_containers()
            assert works is not None
            await works.clean(engine._is_finished)
            names = rig.containers()
            assert f"pai-{over.uid}" not in names
            assert {f"pai-{running.uid}", stranger} <= set(names)
            await engine.stop([running.uid], 0)
            await driven.ended(running.uid)
    finally:
        podman("rm", "-f", stranger)


async def test_container_ends_without_server_and_supervisor(rig: ContainerRig) -> None:
    """The supervisor is killed while no server runs."""
    word = mark()
    async with Driven(rig) as driven:
        one = task(rig, "trap '' TERM; echo up; while :; do sleep 0.05; done", environment={"MARK": word})
        await driven.launch(one)
        await driven.wait_for_output(one.uid, b"up")
    rig.kill_supervisor(one.uid)
    await nothing_left(rig, word)
    async with Driven(rig) as driven:
        assert (await driven.until(one.uid, Phase.LOST)).phase is Phase.LOST
    assert f"pai-{one.uid}" not in rig.containers()


async def test_killed_server_and_supervisor_leave_nothing_and_run_once(
    rig: ContainerRig, tmp_path: Path
) -> None:
    """Between the moment at which its container is made and that at which it is started, too."""
    ran, word = tmp_path / "ran", mark()
    for delay in (0.02, 0.06, 0.1, 0.15, 0.2, 0.3):
        script = f"echo $ATTEMPT >> {ran}; exec sleep 600"
        one = task(rig, script, environment={"MARK": word, "ATTEMPT": f"at-{delay}"})
        server = rig.launch_elsewhere([one])
        await appears((rig.attempt(one.uid) / "claim").exists, "the claim")
        await asyncio.sleep(delay)
        os.kill(server, signal.SIGKILL)
        rig.kill_supervisor(one.uid)
        async with Driven(rig) as driven:
            await driven.launch(one)  # as the next server does
            await driven.until(one.uid, Phase.LOST)
            await nothing_left(rig, word)
            assert rig.containers(f"name=pai-{one.uid}") == []
    lines = ran.read_text().split() if ran.exists() else []
    assert len(lines) == len(set(lines))


async def test_container_ends_when_its_client_is_killed(rig: ContainerRig) -> None:
    word = mark()
    async with Driven(rig) as driven:
        one = task(rig, "echo up; exec sleep 600", environment={"MARK": word})
        await driven.launch(one)
        await driven.wait_for_output(one.uid, b"up")
        children = Path(f"/proc/{rig.supervisor(one.uid)}/task/{rig.supervisor(one.uid)}/children")
        (client,) = children.read_text().split()
        os.kill(int(client), signal.SIGKILL)
        seen = await driven.ended(one.uid)
        assert (seen.signal, seen.killed_by_us) == (signal.SIGKILL, False)
        await nothing_left(rig, word)


async def test_foreign_kill_of_a_container_is_not_ours(rig: ContainerRig) -> None:
    async with Driven(rig) as driven:
        one = task(rig, "echo up; exec sleep 600")
        await driven.launch(one)
        await driven.wait_for_output(one.uid, b"up")
        podman("kill", f"pai-{one.uid}")
        seen = await driven.ended(one.uid)
        assert (seen.signal, seen.killed_by_us, seen.stopped) == (signal.SIGKILL, False, False)


async def test_client_detection_is_cached(
    rig: ContainerRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await client_detection.detect(tmp_path / "scratch", ("podman",))
    assert isinstance(found, Client)
    assert found.limits_memory == found.limits_cpu == (os.geteuid() == 0)
    with monkeypatch.context() as nobody_asks:
        nobody_asks.delattr(Client, "call")
        assert await client_detection.detect(tmp_path / "scratch", ("podman",)) == found
    kept = json.loads((tmp_path / "scratch/podman.json").read_text())
    (tmp_path / "scratch/podman.json").write_text(json.dumps({**kept, "key": "of an earlier boot"}))
    assert await client_detection.detect(tmp_path / "scratch", ("podman",)) == found


async def test_without_a_client_a_job_runs_on_the_host_or_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("bash", "sh"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert not client_probe.may_be_available()

    class Rig:
        node = NODE.name

        def __init__(self, **settings: Any):
            self.settings = settings

        def engine(self) -> ContainerEngine:
            return ContainerEngine(tmp_path / "home", NODE, **self.settings)

        def dress(self, task: TaskLaunch) -> TaskLaunch:
            return dataclasses.replace(task, image="some/image")

    rig: Any = Rig()
    async with Driven(rig) as driven:
        (seen,) = await driven.run(task(rig, "exit 5"))
        assert seen.exit_code == 5
        ((_, notice),) = driven.notices
        assert (notice.type, notice.reason) == ("Warning", "ImageNotUsed")
        assert "some/image" in notice.message and "neither podman nor docker" in notice.message
    rig = Rig(refuse_without=True)
    async with Driven(rig) as driven:
        one = task(rig, "exit 5")
        with pytest.raises(LaunchFailed, match="some/image"):
            await driven.launch(one)
        assert (await driven.ended(one.uid)).platform_code == -200
