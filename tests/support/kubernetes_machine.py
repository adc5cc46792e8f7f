"""What test clusters of Kubernetes share on this machine: networks, mount points, cgroups, commands."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.external_services import debian
from support.kubernetes_node import hierarchies

_PACKAGES = [
    "etcd-server",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iproute2",
    "util-linux",
    "iptables",
]
_COMMANDS = ["etcd", "containerd", "runc", "ip", "iptables"]
_DEADLINE_S = 180.0
# Folders of the machine that nodes mount over; those that are missing are made, and removed with the last
# cluster.
_MOUNTED = (
    "/var/log/pods",
    "/var/log/containers",
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/run/netns",
    "/run/containerd",
)
_REGISTER = Path("/run/pai-test-kubernetes")


def install_programs() -> None:
    debian(_PACKAGES, commands=_COMMANDS, files=["/usr/lib/cni/bridge"])


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    _REGISTER.mkdir(exist_ok=True)
    with (_REGISTER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def add_cluster(name: str, bridge: str) -> str:
    """Make a bridge for a cluster, and the folders that its nodes mount over; return the start of its net."""
    with _locked():
        net = _free_net()
        checked("ip", "link", "add", bridge, "type", "bridge")
        checked("ip", "addr", "add", f"{host_address(net)}/24", "dev", bridge)
        checked("ip", "link", "set", bridge, "up")
        for path in map(Path, _MOUNTED):
            if not path.exists():
                path.mkdir(parents=True)
                with (_REGISTER / "made").open("a") as made:
                    made.write(f"{path}\n")
        (_REGISTER / name).write_text(str(os.getpid()))
    return net


def remove_cluster(name: str, bridge: str) -> None:
    run("ip", "link", "del", bridge)
    with _locked():
        (_REGISTER / name).unlink(missing_ok=True)
        if not list(_REGISTER.glob("pai-test-*")) and (_REGISTER / "made").exists():
            for line in reversed((_REGISTER / "made").read_text().splitlines()):
                with contextlib.suppress(OSError):
                    Path(line).rmdir()
            (_REGISTER / "made").unlink()


def host_address(net: str) -> str:
    """Address of this machine in a cluster's net."""
    return f"{net}.0.1"


def _free_net() -> str:
    routes = run("ip", "-4", "route", "show", "table", "all").stdout
    for number in range(111, 200):
        if f"10.{number}." not in routes:
            return f"10.{number}"
    raise RuntimeError("all networks are in use")


def make_cgroups(name: str) -> None:
    for top in hierarchies():
        path = top
        for part in name.split("/"):
            if (path / "cgroup.subtree_control").exists():
                for controller in ("cpu", "cpuset", "memory", "pids", "io"):
                    with contextlib.suppress(OSError):
                        (path / "cgroup.subtree_control").write_text(f"+{controller}")
            above, path = path, path / part
            path.mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems"):
                if top.name == "cpuset" and not (path / file).read_text().strip():
                    (path / file).write_text((above / file).read_text())


def remove_cgroups(*names: str) -> None:
    # Container runtimes make groups in that one, too.
    for path in (*hierarchies(), Path("/sys/fs/cgroup/unified")):
        for top in names:
            for _ in range(20):
                for folder, _, _ in os.walk(path / top, topdown=False):
                    with contextlib.suppress(OSError):
                        os.rmdir(folder)  # noqa: PTH106
                if not (path / top).exists():
                    break
                time.sleep(0.2)


def unmount_below(folder: Path) -> None:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for path in sorted(mounts, reverse=True):
        if path.startswith(f"{folder}/"):
            run("umount", "-l", path)


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def tried(done: Any) -> Any:
    def call() -> bool:
        try:
            return bool(done())
        except (OSError, RuntimeError, http.client.HTTPException):
            return False

    return call


def wait_for(what: str, done: Any, explain: Any = lambda: "") -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not done():
        if time.monotonic() > deadline:
            raise RuntimeError(f"timed out waiting for {what}\n{explain()}")
        time.sleep(0.1)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def checked(*command: str) -> None:
    done = run(*command)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
