"""A pod made of namespaces, from its manifest: what the kubelet does, as far as our containers see it.

For tests of the containers themselves, which need no cluster; what Kubernetes does with pods is tested on a
real one.
"""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from support.container_images import tar_of

_START = """\
set -e
root=$1 account=$2; shift 2
mount --make-rprivate /
mount -t tmpfs none "$root/proc" 2>/dev/null || true
mount -t proc proc "$root/proc"
while [ "$1" != -- ]; do mkdir -p "$root$2"; mount --bind "$1" "$root$2"; shift 2; done
shift
ln -sfn /proc/self/fd "$root/dev/fd"
for name in null zero urandom; do : > "$root/dev/$name"; mount --bind "/dev/$name" "$root/dev/$name"; done
exec chroot "--userspec=$account:$account" "$root" "$@"
"""


@cache
def _unpacked(image: str, _pid: int) -> Path:
    folder = Path(mkdtemp(prefix="pai-rootfs-"))
    with tarfile.open(tar_of(image)) as archive:
        if hasattr(tarfile, "fully_trusted_filter"):  # not in Python 3.11.2
            archive.extraction_filter = staticmethod(tarfile.fully_trusted_filter)
        archive.extractall(folder)
    folder.chmod(0o755)
    return folder


class NamespacePod:
    """The running containers of a pod, by name."""

    def __init__(
        self,
        manifest: Mapping[str, Any],
        secrets: Sequence[Mapping[str, Any]],
        folder: Path,
        *,
        ip: str = "127.0.0.1",
        node: str = "node",
        order: Sequence[str] = (),
        shared: Path | None = None,
    ):
        """``order``: of the start of the containers, where it is not that of the manifest."""
        self._folder = folder
        self._shared = shared
        self._fields = {"spec.nodeName": node, "status.podIP": ip}
        self._data = {one["metadata"]["name"]: one["data"] for one in secrets}
        spec = manifest["spec"]
        self._account = spec["securityContext"].get("runAsUser", 0)
        self.volumes = {one["name"]: self._volume(one) for one in spec["volumes"]}
        containers = {one["name"]: one for one in spec["containers"]}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in order or containers:
            self.processes[name] = self._start(containers[name])

    def _volume(self, volume: Mapping[str, Any]) -> Path:
        path = self._folder / volume["name"]
        path.mkdir(parents=True)
        path.chmod(0o777)
        if "secret" in volume:
            for key, value in self._data[volume["secret"]["secretName"]].items():
                (path / key).write_bytes(base64.b64decode(value))
        return path

    def _start(self, container: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        root = self._folder / f"root-{container['name']}"
        # Links: the files of an image are not changed.
        subprocess.run(["cp", "-al", str(_unpacked(container["image"], os.getpid())), str(root)], check=True)
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin", "KUBERNETES_PORT": "443"}

        for variable in container.get("env", ()):
            source = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            environment[variable["name"]] = self._fields[source] if source else variable["value"]
        mounts = [
            word
            for mount in container["volumeMounts"]
            for word in (str(self.volumes[mount["name"]]), mount["mountPath"])
        ]
        if self._shared is not None:
            mounts += [str(self._shared), str(self._shared)]
        start = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", _START, "sh"]
        return subprocess.Popen(
            [*start, str(root), str(self._account), *mounts, "--", *container["command"]],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=(self._folder / f"{container['name']}.log").open("wb"),
            stderr=subprocess.STDOUT,
        )

    def output(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def terminate(self, *names: str) -> None:
        """SIGTERM to the first process of the containers, as when a pod is deleted."""
        for name in names or self.processes:
            for pid in _children(self.processes[name].pid):
                os.kill(pid, signal.SIGTERM)

    def kill(self, name: str) -> None:
        """All processes of a container: the end of its first one ends the others."""
        for pid in _children(self.processes[name].pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait(self, name: str, timeout_s: float = 90.0) -> int:
        return self.processes[name].wait(timeout_s)

    def close(self) -> None:
        for name, process in self.processes.items():
            self.kill(name)
            process.wait()
        subprocess.run(["rm", "-rf", "--one-file-system", str(self._folder)], check=False)


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:  # it has ended
        return []
    return [int(word) for word in text.split()]
