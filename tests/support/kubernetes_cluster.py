"""A real Kubernetes for tests: etcd, API server, controllers, scheduler, nodes with kubelet and containerd.

A node is a process tree in namespaces of its own, with its own address and range of addresses for pods. Pods
reach servers of this machine at `host`. Nothing of the machine is changed, and nothing is left after `stop`.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from support import kubernetes_build, kubernetes_commands, kubernetes_node_files
from support import kubernetes_machine as machine
from support.container_images import tar_of
from support.external_services import missing
from support.kubernetes_certificates import issue_control_plane
from support.kubernetes_commands import ControlPlane
from support.kubernetes_images import write_archive, write_pause_archive
from support.kubernetes_node_files import NodeNetwork
from support.ports import free_ports

_numbers = itertools.count()


class RealKubernetes:
    """One cluster. A test restores what it breaks."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 1,
        node_grace_s: int = 40,
        evict_after_s: int = 300,
        arguments: Mapping[str, Sequence[str]] | None = None,
    ):
        """``node_grace_s``: until a silent node is not ready; ``evict_after_s``: until its pods are deleted.
        ``arguments``: further ones, by program."""
        if os.geteuid() != 0:
            missing("root, to run nodes of Kubernetes")
        machine.install_programs()
        self._programs = kubernetes_build.built()
        self.folder = folder
        self.nodes = [f"node{number}" for number in range(nodes)]
        self._node_grace_s = node_grace_s
        self._evict_after_s = evict_after_s
        self._arguments = arguments or {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._id = f"{os.getpid():x}-{next(_numbers)}"
        self._bridge = f"pk{self._id}"[:12]
        self._cgroup = f"pai-test-kubernetes-{self._id}"
        self._net = ""

    # -- lifecycle -----------------------------------------------------------------------------

    def start(self) -> None:
        for name in ("pki", "log"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._net = machine.add_cluster(self._cgroup, self._bridge)
        self.port = free_ports(1)[0]
        self._plane = ControlPlane(
            folder=self.folder,
            programs=self._programs,
            net=self._net,
            host=self.host,
            port=self.port,
            etcd_ports=free_ports(2),
            node_grace_s=self._node_grace_s,
            evict_after_s=self._evict_after_s,
            arguments=self._arguments,
        )
        authority = issue_control_plane(
            self._plane.pki, self.kubeconfig, self.server, [self.host, f"{self._net}.64.1"]
        )
        self._start("etcd", kubernetes_commands.etcd(self._plane), kubernetes_commands.etcd_environment())
        self.start_api_server()
        self._start("controller-manager", kubernetes_commands.controller_manager(self._plane))
        self._start("scheduler", kubernetes_commands.scheduler(self._plane))
        pause = write_pause_archive(self.folder, self._programs / "pause")
        for number, name in enumerate(self.nodes):
            others = [other for other in range(len(self.nodes)) if other != number]
            routes = {self._pod_net(other): self._address(other) for other in others}
            network = NodeNetwork(self._address(number), self._pod_net(number), routes)
            cgroups = f"{self._cgroup}/{name}", f"{self._cgroup}-system/{name}"
            kubernetes_node_files.write(self._plane, authority, name, network, cgroups, pause)
            machine.checked("ip", "route", "add", self._pod_net(number), "via", self._address(number))
            self.start_node(name, wait=False)
        for name in self.nodes:
            self.wait_until_ready(name)
        machine.wait_for("the default service account", lambda: self._has_account(), self._tail)

    def stop(self) -> None:
        for name in self.nodes:
            self.kill_node(name)
        for name in list(self._processes):
            self._kill(name)
        machine.remove_cgroups(self._cgroup, f"{self._cgroup}-system")
        machine.unmount_below(self.folder)
        machine.remove_cluster(self._cgroup, self._bridge)
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- what tests use ------------------------------------------------------------------------

    @property
    def host(self) -> str:
        """Address of this machine, for pods."""
        return machine.host_address(self._net)

    @property
    def server(self) -> str:
        return f"https://{self.host}:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Any:
        """A request as the administrator; raises RuntimeError unless it succeeds."""
        context = ssl.create_default_context(cafile=str(self.folder / "pki/ca.crt"))
        context.load_cert_chain(str(self.folder / "pki/admin.crt"), str(self.folder / "pki/admin.key"))
        connection = http.client.HTTPSConnection(self.host, self.port, timeout=20, context=context)
        try:
            headers = {"Content-Type": content_type}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
            if response.status >= 300:
                raise RuntimeError(f"{method} {path}: {response.status} {text[:500].decode()}")
            return json.loads(text) if text.startswith(b"{") else text.decode()
        finally:
            connection.close()

    def pods(self, namespace: str = "default") -> list[dict[str, Any]]:
        return list(self.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"])

    def secrets(self, namespace: str = "default") -> list[str]:
        """Names of those that are not of Kubernetes itself."""
        items = self.request("GET", f"/api/v1/namespaces/{namespace}/secrets")["items"]
        return [one["metadata"]["name"] for one in items if one["type"] == "Opaque"]

    def add_image(self, image: str, program: Sequence[str] = ("/bin/sh",)) -> None:
        """Put an image of `container_images` on all nodes, under its own name."""
        archive = self.folder / f"image-{sha256(image.encode()).hexdigest()[:12]}.tar"
        if not archive.exists():
            write_archive(archive, image, tar_of(image), program)
        for name in self.nodes:
            self._import(name, archive)

    def kill_node(self, name: str) -> None:
        """A power cut."""
        process = self._processes.pop(name, None)
        if process is None:
            return
        for pid in machine.children(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()

    def kill_kubelet(self, name: str) -> None:
        """Only the kubelet: containers go on."""
        folder = self.folder / name
        (folder / "kubelet-wanted").unlink()
        inner = int((folder / "kubelet.pid").read_text())
        machine.run(*self._inside(name), "kill", "-KILL", str(inner))

    def start_kubelet(self, name: str) -> None:
        (self.folder / name / "kubelet-wanted").touch()
        self.wait_until_ready(name)

    def start_node(self, name: str, *, wait: bool = True) -> None:
        number = self.nodes.index(name)
        machine.remove_cgroups(f"{self._cgroup}/{name}")
        for group in (f"{self._cgroup}/{name}", f"{self._cgroup}-system/{name}"):
            machine.make_cgroups(group)
        (self.folder / name / "kubelet-wanted").touch()
        outside = Path("/proc/self/ns/net").readlink()
        command = ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child"]
        command += ["--mount-proc", "--propagation", "private", "--"]
        program = Path(__file__).with_name("kubernetes_node.py")
        process = self._start(
            name, [*command, sys.executable, str(program), str(self.folder / name / "node.json")]
        )

        def has_network() -> bool:
            return any(
                Path(f"/proc/{pid}/ns/net").readlink() != outside for pid in machine.children(process.pid)
            )

        machine.wait_for(name, has_network, self._tail)
        pid = machine.children(process.pid)[0]
        cable = f"{self._bridge}n{number}"
        machine.run("ip", "link", "del", cable)
        machine.checked("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        machine.checked("ip", "link", "set", cable, "master", self._bridge, "up")
        if wait:
            self.wait_until_ready(name)

    def wait_until_ready(self, name: str) -> None:
        def is_ready() -> bool:
            conditions = self.request("GET", f"/api/v1/nodes/{name}")["status"]["conditions"]
            return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

        machine.wait_for(f"{name} to be ready", machine.tried(is_ready), self._tail)

    def start_api_server(self) -> None:
        self._start("api-server", kubernetes_commands.api_server(self._plane))
        machine.wait_for(
            "the API server", machine.tried(lambda: self.request("GET", "/readyz") == "ok"), self._tail
        )

    def stop_api_server(self) -> None:
        self._kill("api-server", signal.SIGTERM)

    def add_folder(self, name: str, folder: Path) -> None:
        """A claim of this name for a folder of this machine."""
        amount = {"resources": {"requests": {"storage": "1Gi"}}}
        common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        volume = {"capacity": {"storage": "1Gi"}, "hostPath": {"path": str(folder)}, **common}
        body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume}
        self.request("POST", "/api/v1/persistentvolumes", body)
        claim = {**common, **amount, "volumeName": name}
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": claim,
        }
        self.request("POST", "/api/v1/namespaces/default/persistentvolumeclaims", body)

    def set_resource(self, node: str, name: str, count: int) -> None:
        """Give a node an extended resource, such as GPUs."""
        amounts = {name: str(count)}
        body = {"status": {"capacity": amounts, "allocatable": amounts}}
        self.request("PATCH", f"/api/v1/nodes/{node}/status", body, "application/merge-patch+json")

    # -- control plane -------------------------------------------------------------------------

    def _has_account(self) -> bool:
        with contextlib.suppress(RuntimeError, OSError):
            return bool(
                self.request("GET", "/api/v1/namespaces/default/serviceaccounts/default").get("secrets")
            )
        return False

    # -- nodes ---------------------------------------------------------------------------------

    def _address(self, number: int) -> str:
        return f"{self._net}.0.{10 + number}"

    def _pod_net(self, number: int) -> str:
        return f"{self._net}.{128 + number}.0/24"

    def _inside(self, name: str) -> list[str]:
        pid = machine.children(self._processes[name].pid)[0]
        return ["nsenter", "-t", str(pid), "-m", "-p", "-n", "-u", "-i", "--"]

    def _import(self, name: str, archive: Path) -> None:
        machine.checked(*self._inside(name), *kubernetes_node_files.CTR, "images", "import", str(archive))

    # -- processes -----------------------------------------------------------------------------

    def _start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / f"log/{name}.log").open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._processes[name] = process
        return process

    def _kill(self, name: str, signum: int = signal.SIGKILL) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.send_signal(signum)
            process.wait()

    def _tail(self) -> str:
        """The ends of all logs."""
        files = [*(self.folder / "log").glob("*.log"), *self.folder.glob("node*/*.log")]
        return "\n".join(f"{file.name}: {file.read_text(errors='replace')[-1500:]}" for file in files)
