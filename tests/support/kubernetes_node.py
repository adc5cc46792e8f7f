"""First process of a node of a test cluster, in namespaces of its own. Run by `kubernetes_cluster`.

Killing it is a power cut: everything of the node ends at once.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

_DEADLINE_S = 120.0
# What the kubelet insists on, and would set for the whole machine: it is shown its own values.
_SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def main() -> None:
    node: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(node["folder"])
    ctr = node["ctr"]
    enter_cgroup(node["system_cgroup"])
    _mount(folder)
    socket.sethostname(node["name"])
    _network(node)
    log = {name: (folder / f"{name}.log").open("ab") for name in ("containerd", "kubelet", "images")}
    subprocess.Popen(
        node["containerd"],
        stdout=log["containerd"],
        stderr=log["containerd"],
    )
    _until("containerd", lambda: _run([*ctr, "version"]).returncode == 0)
    known = _run([*ctr, "images", "ls", "-q"]).stdout
    if "/pause:1" not in known:
        subprocess.run(
            [*ctr, "images", "import", node["pause"]],
            stdout=log["images"],
            stderr=log["images"],
            check=True,
        )
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kubelet = None
    wanted = folder / "kubelet-wanted"
    while True:
        # The test kills the kubelet alone, or has it started again.
        if wanted.exists() and (kubelet is None or kubelet.poll() is not None):
            kubelet = subprocess.Popen(node["kubelet"], stdout=log["kubelet"], stderr=log["kubelet"])
            (folder / "kubelet.pid").write_text(str(kubelet.pid))
        _reap(kubelet)
        time.sleep(0.1)


def _reap(kubelet: subprocess.Popen[bytes] | None) -> None:
    """As the first process of its namespace it inherits orphans."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or (kubelet is not None and found.si_pid == kubelet.pid and kubelet.poll() is None):
            return
        try:
            os.waitpid(found.si_pid, 0)
        except ChildProcessError:
            pass


def hierarchies() -> list[Path]:
    """Mount points of cgroup controllers."""
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        return [root]
    found = [path for path in root.iterdir() if path.name != "unified" and not path.is_symlink()]
    return [path for path in found if (path / "cgroup.procs").exists()]


def enter_cgroup(name: str) -> None:
    for path in hierarchies():
        (path / name / "cgroup.procs").write_text(str(os.getpid()))


def _mount(folder: Path) -> None:
    _checked("mount", "--make-rshared", "/")
    for name, target in (
        ("log-pods", "/var/log/pods"),
        ("log-containers", "/var/log/containers"),
        ("kubelet", "/var/lib/kubelet"),
        ("cni", "/var/lib/cni"),
    ):
        (folder / name).mkdir(exist_ok=True)
        _checked("mount", "--bind", str(folder / name), target)
    _checked("mount", "--make-shared", "/var/lib/kubelet")
    for target in ("/run/netns", "/run/containerd"):
        _checked("mount", "-t", "tmpfs", "-o", "mode=755", "node", target)
        _checked("mount", "--make-shared", target)
    # Names are refused at once: the kubelet asks for those of clouds.
    _run(["mount", "--bind", str(folder / "resolv.conf"), "/etc/resolv.conf"])
    shown = Path("/run/containerd/shown")
    shown.mkdir()
    for name, value in {**_SYSCTLS, "kernel/random/boot_id": str(uuid.uuid4())}.items():
        own = shown / name.replace("/", "-")
        own.write_text(value + "\n")
        if Path("/proc/sys", name).exists():
            _checked("mount", "--bind", str(own), f"/proc/sys/{name}")


def _network(node: dict[str, Any]) -> None:
    _until("the network", lambda: _run(["ip", "link", "show", "eth0"]).returncode == 0)
    _checked("ip", "link", "set", "lo", "up")
    _checked("ip", "addr", "add", f"{node['ip']}/24", "dev", "eth0")
    _checked("ip", "link", "set", "eth0", "up")
    _checked("ip", "route", "add", "default", "via", node["gateway"])
    _checked("ip", "route", "add", "unreachable", "169.254.0.0/16")
    for subnet, address in node["routes"].items():
        _checked("ip", "route", "add", subnet, "via", address)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _until(what: str, done: Any) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not done():
        if time.monotonic() > deadline:
            sys.exit(f"timed out waiting for {what}")
        time.sleep(0.1)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _checked(*command: str) -> None:
    done = _run(list(command))
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")


if __name__ == "__main__":
    main()
