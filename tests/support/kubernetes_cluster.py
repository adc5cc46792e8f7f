"""A real Kubernetes for tests: etcd, API server, controllers, scheduler, nodes with kubelet and containerd.

A node is a process tree in namespaces of its own, with its own address and range of addresses for pods. Pods
reach servers of this machine at `host`. Nothing of the machine is changed, and nothing is left after `stop`.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import fcntl
import http.client
import ipaddress
import itertools
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from support import kubernetes_build
from support.container_images import tar_of
from support.external_services import debian, missing
from support.kubernetes_node import hierarchies
from support.ports import free_ports

PACKAGES = [
    "etcd-server",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iproute2",
    "util-linux",
    "iptables",
]
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
_ISSUER = "https://kubernetes.default.svc"
_CTR = ["ctr", "-a", "/run/containerd/containerd.sock", "-n", "k8s.io"]
_numbers = itertools.count()


class _Authority:
    """Makes the certificates of one cluster."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pai-test-kubernetes")])
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), True)
        self.certificate = builder.add_extension(usage, True).sign(self._key, hashes.SHA256())
        self._write("ca", self.certificate, self._key)
        account = rsa.generate_private_key(65537, 2048)
        (folder / "sa.key").write_bytes(_private(account))
        public = account.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (folder / "sa.pub").write_bytes(public)

    def issue(self, name: str, user: str, group: str = "", addresses: Sequence[str] = ()) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        both = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = self._builder(x509.Name(attributes), key).add_extension(x509.ExtendedKeyUsage(both), False)
        names: list[x509.GeneralName] = []
        for address in addresses:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(address)))
            except ValueError:
                names.append(x509.DNSName(address))
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        self._write(name, builder.sign(self._key, hashes.SHA256()), key)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name)
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        since = now - datetime.timedelta(days=1)
        return builder.not_valid_before(since).not_valid_after(now + datetime.timedelta(days=365))

    def _write(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        (self.folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (self.folder / f"{name}.key").write_bytes(_private(key))

    def kubeconfig(self, path: Path, name: str, server: str) -> None:
        def data(file: str) -> str:
            return base64.b64encode((self.folder / file).read_bytes()).decode()

        cluster = {"server": server, "certificate-authority-data": data("ca.crt")}
        user = {"client-certificate-data": data(f"{name}.crt"), "client-key-data": data(f"{name}.key")}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(document))  # JSON is YAML
        path.chmod(0o600)


def _private(key: Any) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    return bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))


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
        debian(
            PACKAGES, commands=["etcd", "containerd", "runc", "ip", "iptables"], files=["/usr/lib/cni/bridge"]
        )
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
        self._etcd_ports: list[int] = []

    # -- lifecycle -----------------------------------------------------------------------------

    def start(self) -> None:
        for name in ("pki", "log"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        with _registered() as register:
            self._net = _free_net()
            _checked("ip", "link", "add", self._bridge, "type", "bridge")
            _checked("ip", "addr", "add", f"{self.host}/24", "dev", self._bridge)
            _checked("ip", "link", "set", self._bridge, "up")
            for path in map(Path, _MOUNTED):
                if not path.exists():
                    path.mkdir(parents=True)
                    with (register / "made").open("a") as made:
                        made.write(f"{path}\n")
            (register / self._cgroup).write_text(str(os.getpid()))
        self._etcd_ports = free_ports(2)
        self.port = free_ports(1)[0]
        self._make_certificates()
        self._start_etcd()
        self.start_api_server()
        self._start("controller-manager", self._controller_manager())
        self._start("scheduler", self._scheduler())
        self._pause = self._pause_archive()
        for number, name in enumerate(self.nodes):
            self._prepare_node(number)
            _checked("ip", "route", "add", self._pod_net(number), "via", self._address(number))
            self.start_node(name, wait=False)
        for name in self.nodes:
            self.wait_until_ready(name)
        wait_for("the default service account", lambda: self._has_account(), self._tail)

    def stop(self) -> None:
        for name in self.nodes:
            self.kill_node(name)
        for name in list(self._processes):
            self._kill(name)
        _run("ip", "link", "del", self._bridge)
        self._remove_cgroups()
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for path in sorted(mounts, reverse=True):
            if path.startswith(f"{self.folder}/"):
                _run("umount", "-l", path)
        with _registered() as register:
            (register / self._cgroup).unlink(missing_ok=True)
            if not list(register.glob("pai-test-*")) and (register / "made").exists():
                for line in reversed((register / "made").read_text().splitlines()):
                    with contextlib.suppress(OSError):
                        Path(line).rmdir()
                (register / "made").unlink()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- what tests use ------------------------------------------------------------------------

    @property
    def host(self) -> str:
        """Address of this machine, for pods."""
        return f"{self._net}.0.1"

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
        for pid in _children(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()

    def kill_kubelet(self, name: str) -> None:
        """Only the kubelet: containers go on."""
        folder = self.folder / name
        (folder / "kubelet-wanted").unlink()
        inner = int((folder / "kubelet.pid").read_text())
        _run(*self._inside(name), "kill", "-KILL", str(inner))

    def start_kubelet(self, name: str) -> None:
        (self.folder / name / "kubelet-wanted").touch()
        self.wait_until_ready(name)

    def start_node(self, name: str, *, wait: bool = True) -> None:
        number = self.nodes.index(name)
        self._remove_cgroups(f"{self._cgroup}/{name}")
        for group in (f"{self._cgroup}/{name}", f"{self._cgroup}-system/{name}"):
            _make_cgroups(group)
        (self.folder / name / "kubelet-wanted").touch()
        outside = Path("/proc/self/ns/net").readlink()
        command = ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child"]
        command += ["--mount-proc", "--propagation", "private", "--"]
        program = Path(__file__).with_name("kubernetes_node.py")
        process = self._start(
            name, [*command, sys.executable, str(program), str(self.folder / name / "node.json")]
        )

        def has_network() -> bool:
            return any(Path(f"/proc/{pid}/ns/net").readlink() != outside for pid in _children(process.pid))

        wait_for(name, has_network, self._tail)
        pid = _children(process.pid)[0]
        cable = f"{self._bridge}n{number}"
        _run("ip", "link", "del", cable)
        _checked("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        _checked("ip", "link", "set", cable, "master", self._bridge, "up")
        if wait:
            self.wait_until_ready(name)

    def wait_until_ready(self, name: str) -> None:
        def is_ready() -> bool:
            conditions = self.request("GET", f"/api/v1/nodes/{name}")["status"]["conditions"]
            return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

        wait_for(f"{name} to be ready", _tried(is_ready), self._tail)

    def start_api_server(self) -> None:
        self._start("api-server", self._api_server())
        wait_for("the API server", _tried(lambda: self.request("GET", "/readyz") == "ok"), self._tail)

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

    def _make_certificates(self) -> None:
        authority = _Authority(self.folder / "pki")
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
        authority.issue(
            "apiserver", "kube-apiserver", addresses=[*names, "127.0.0.1", self.host, f"{self._net}.64.1"]
        )
        for name, user, group in (
            ("apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters"),
            ("admin", "admin", "system:masters"),
            ("controller-manager", "system:kube-controller-manager", ""),
            ("scheduler", "system:kube-scheduler", ""),
        ):
            authority.issue(name, user, group)
        authority.kubeconfig(self.kubeconfig, "admin", self.server)
        for name in ("controller-manager", "scheduler"):
            authority.kubeconfig(self.folder / f"pki/{name}.kubeconfig", name, self.server)
        self._authority = authority

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in self._etcd_ports)
        command = ["etcd", "--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync"]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"default={peer}"]
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
        self._start("etcd", command, {"ETCD_UNSUPPORTED_ARCH": machine})

    def _api_server(self) -> list[str]:
        pki = self.folder / "pki"
        return [
            str(self._programs / "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{self._etcd_ports[0]}",
            f"--bind-address={self.host}",
            f"--advertise-address={self.host}",
            f"--secure-port={self.port}",
            "--insecure-port=0",
            f"--client-ca-file={pki}/ca.crt",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--kubelet-certificate-authority={pki}/ca.crt",
            f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
            f"--kubelet-client-key={pki}/apiserver-kubelet.key",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-issuer={_ISSUER}",
            f"--service-account-key-file={pki}/sa.pub",
            f"--service-account-signing-key-file={pki}/sa.key",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--service-cluster-ip-range={self._net}.64.0/20",
            f"--default-not-ready-toleration-seconds={self._evict_after_s}",
            f"--default-unreachable-toleration-seconds={self._evict_after_s}",
            *self._arguments.get("kube-apiserver", ()),
        ]

    def _controller_manager(self) -> list[str]:
        pki = self.folder / "pki"
        return [
            str(self._programs / "kube-controller-manager"),
            f"--kubeconfig={pki}/controller-manager.kubeconfig",
            f"--service-account-private-key-file={pki}/sa.key",
            f"--root-ca-file={pki}/ca.crt",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--port=0",
            "--secure-port=0",
            f"--node-monitor-grace-period={self._node_grace_s}s",
            "--node-monitor-period=1s",
            # Without these, few pods of a small cluster are evicted.
            "--node-eviction-rate=10",
            "--secondary-node-eviction-rate=10",
            "--large-cluster-size-threshold=0",
            "--unhealthy-zone-threshold=1",
            *self._arguments.get("kube-controller-manager", ()),
        ]

    def _scheduler(self) -> list[str]:
        kubeconfig = f"--kubeconfig={self.folder}/pki/scheduler.kubeconfig"
        options = ["--leader-elect=false", "--port=0", "--secure-port=0"]
        return [str(self._programs / "kube-scheduler"), kubeconfig, *options]

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

    def _prepare_node(self, number: int) -> None:
        name = self.nodes[number]
        folder, pki = self.folder / name, self.folder / "pki"
        (folder / "cni-conf").mkdir(parents=True)
        (folder / "containerd").mkdir()
        address = self._address(number)
        self._authority.issue(name, f"system:node:{name}", "system:nodes", [name, address, "127.0.0.1"])
        self._authority.kubeconfig(folder / "kubeconfig", name, self.server)
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        (folder / "containerd.toml").write_text(
            _CONTAINERD.format(folder=folder, snapshotter=_snapshotter(folder))
        )
        network = {
            "cniVersion": "0.4.0",
            "name": "test",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": True,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": "/var/lib/cni/networks",
                        "ranges": [[{"subnet": self._pod_net(number)}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }
        (folder / "cni-conf/10-test.conflist").write_text(json.dumps(network))
        system = f"{self._cgroup}-system/{name}"
        configuration = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{pki}/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": f"{pki}/{name}.crt",
            "tlsPrivateKeyFile": f"{pki}/{name}.key",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}/{name}",
            "resolvConf": str(folder / "resolv.conf"),
            "clusterDNS": ["127.0.0.1"],
            "clusterDomain": "cluster.local",
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "maxPods": 240,
            "readOnlyPort": 0,
            "serializeImagePulls": False,
            "nodeLeaseDurationSeconds": self._node_grace_s,
            "nodeStatusUpdateFrequency": "2s",
            "nodeStatusReportFrequency": "5m",
            "volumePluginDir": "/var/lib/kubelet/volumeplugins",
            # The disk of the machine may be nearly full: that is no matter of the tests.
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        }
        (folder / "kubelet.json").write_text(json.dumps(configuration))
        kubelet = [
            str(self._programs / "kubelet"),
            f"--config={folder}/kubelet.json",
            f"--kubeconfig={folder}/kubeconfig",
            f"--cert-dir={folder}/kubelet/pki",
            "--root-dir=/var/lib/kubelet",
            f"--hostname-override={name}",
            f"--node-ip={address}",
            "--container-runtime=remote",
            "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
            "--pod-infra-container-image=local/pause:1",
            f"--kubelet-cgroups=/{system}",
            f"--runtime-cgroups=/{system}",
            *self._arguments.get("kubelet", ()),
        ]
        node = {
            "name": name,
            "folder": str(folder),
            "ip": address,
            "gateway": self.host,
            "routes": {
                self._pod_net(other): self._address(other)
                for other in range(len(self.nodes))
                if other != number
            },
            "system_cgroup": system,
            "pause": str(self._pause),
            "containerd": ["containerd", "--config", f"{folder}/containerd.toml"],
            "ctr": _CTR,
            "kubelet": kubelet,
        }
        (folder / "node.json").write_text(json.dumps(node))

    def _inside(self, name: str) -> list[str]:
        pid = _children(self._processes[name].pid)[0]
        return ["nsenter", "-t", str(pid), "-m", "-p", "-n", "-u", "-i", "--"]

    def _import(self, name: str, archive: Path) -> None:
        _checked(*self._inside(name), *_CTR, "images", "import", str(archive))

    def _pause_archive(self) -> Path:
        root = self.folder / "pause.rootfs.tar"
        with tarfile.open(root, "w") as archive:
            archive.add(self._programs / "pause", "pause")
        made = self.folder / "pause.tar"
        write_archive(made, "local/pause:1", root, ("/pause",))
        return made

    # -- processes and cgroups -----------------------------------------------------------------

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

    def _remove_cgroups(self, name: str = "") -> None:
        # Container runtimes make groups in that one, too.
        for path in (*hierarchies(), Path("/sys/fs/cgroup/unified")):
            for top in (name,) if name else (self._cgroup, f"{self._cgroup}-system"):
                for _ in range(20):
                    for folder, _, _ in os.walk(path / top, topdown=False):
                        with contextlib.suppress(OSError):
                            os.rmdir(folder)  # noqa: PTH106
                    if not (path / top).exists():
                        break
                    time.sleep(0.2)

    def _tail(self) -> str:
        """The ends of all logs."""
        files = [*(self.folder / "log").glob("*.log"), *self.folder.glob("node*/*.log")]
        return "\n".join(f"{file.name}: {file.read_text(errors='replace')[-1500:]}" for file in files)


_CONTAINERD = """\
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", \
"io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "local/pause:1"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{folder}/cni-conf"
"""


def write_archive(archive: Path, image: str, root: Path, program: Sequence[str]) -> None:
    """A root file system as an image of one layer, as `ctr images import` reads it."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    config = {
        "architecture": machine,
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Cmd": list(program),
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(root.read_bytes()).hexdigest()}"]},
    }
    name = image if "." in image.split("/")[0] or image.startswith("localhost/") else f"docker.io/{image}"
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    folder = archive.with_suffix(".parts")
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with tarfile.open(archive, "w") as made:
        for name in ("manifest.json", "config.json"):
            made.add(folder / name, name)
        made.add(root, "layer.tar")
    shutil.rmtree(folder)


def _snapshotter(folder: Path) -> str:
    """overlayfs, unless the folder is on a file system below which there can be none."""
    parts = {name: folder / f"probe-{name}" for name in ("lower", "upper", "work", "merged")}
    for path in parts.values():
        path.mkdir()
    options = f"lowerdir={parts['lower']},upperdir={parts['upper']},workdir={parts['work']}"
    works = _run("mount", "-t", "overlay", "-o", options, "overlay", str(parts["merged"])).returncode == 0
    if works:
        _checked("umount", str(parts["merged"]))
    for path in parts.values():
        shutil.rmtree(path)
    return "overlayfs" if works else "native"


def _make_cgroups(name: str) -> None:
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


@contextlib.contextmanager
def _registered() -> Iterator[Path]:
    """Folder of the clusters of this machine, locked: two that start at once take other addresses."""
    _REGISTER.mkdir(exist_ok=True)
    with (_REGISTER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield _REGISTER


def _free_net() -> str:
    routes = _run("ip", "-4", "route", "show", "table", "all").stdout
    for number in range(111, 200):
        if f"10.{number}." not in routes:
            return f"10.{number}"
    raise RuntimeError("all networks are in use")


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _tried(done: Any) -> Any:
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


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def _checked(*command: str) -> None:
    done = _run(*command)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKubernetes]:
    """One cluster with one node, for all tests of a worker."""
    # Paths of sockets and of mounts are limited; those of pytest are long.
    cluster = RealKubernetes(tmp_path_factory.mktemp("k8s"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
