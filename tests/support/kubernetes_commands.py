"""Command lines of the programs of a test cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.kubernetes_images import PAUSE

_ISSUER = "https://kubernetes.default.svc"


@dataclass(frozen=True)
class ControlPlane:
    """``programs``: folder of the built ones; ``arguments``: further ones, by program."""

    folder: Path
    programs: Path
    net: str
    host: str
    port: int
    etcd_ports: Sequence[int]
    node_grace_s: int
    evict_after_s: int
    arguments: Mapping[str, Sequence[str]]

    @property
    def pki(self) -> Path:
        return self.folder / "pki"


def etcd(plane: ControlPlane) -> list[str]:
    client, peer = (f"http://127.0.0.1:{port}" for port in plane.etcd_ports)
    command = ["etcd", "--data-dir", str(plane.folder / "etcd"), "--unsafe-no-fsync"]
    command += ["--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    return [*command, "--initial-cluster", f"default={peer}"]


def etcd_environment() -> dict[str, str]:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    return {"ETCD_UNSUPPORTED_ARCH": machine}


def api_server(plane: ControlPlane) -> list[str]:
    return [
        str(plane.programs / "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{plane.etcd_ports[0]}",
        f"--bind-address={plane.host}",
        f"--advertise-address={plane.host}",
        f"--secure-port={plane.port}",
        "--insecure-port=0",
        f"--client-ca-file={plane.pki}/ca.crt",
        f"--tls-cert-file={plane.pki}/apiserver.crt",
        f"--tls-private-key-file={plane.pki}/apiserver.key",
        f"--kubelet-certificate-authority={plane.pki}/ca.crt",
        f"--kubelet-client-certificate={plane.pki}/apiserver-kubelet.crt",
        f"--kubelet-client-key={plane.pki}/apiserver-kubelet.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-key-file={plane.pki}/sa.pub",
        f"--service-account-signing-key-file={plane.pki}/sa.key",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={plane.net}.64.0/20",
        f"--default-not-ready-toleration-seconds={plane.evict_after_s}",
        f"--default-unreachable-toleration-seconds={plane.evict_after_s}",
        *plane.arguments.get("kube-apiserver", ()),
    ]


def controller_manager(plane: ControlPlane) -> list[str]:
    return [
        str(plane.programs / "kube-controller-manager"),
        f"--kubeconfig={plane.pki}/controller-manager.kubeconfig",
        f"--service-account-private-key-file={plane.pki}/sa.key",
        f"--root-ca-file={plane.pki}/ca.crt",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--port=0",
        "--secure-port=0",
        f"--node-monitor-grace-period={plane.node_grace_s}s",
        "--node-monitor-period=1s",
        # Without these, few pods of a small cluster are evicted.
        "--node-eviction-rate=10",
        "--secondary-node-eviction-rate=10",
        "--large-cluster-size-threshold=0",
        "--unhealthy-zone-threshold=1",
        *plane.arguments.get("kube-controller-manager", ()),
    ]


def scheduler(plane: ControlPlane) -> list[str]:
    kubeconfig = f"--kubeconfig={plane.pki}/scheduler.kubeconfig"
    options = ["--leader-elect=false", "--port=0", "--secure-port=0"]
    return [str(plane.programs / "kube-scheduler"), kubeconfig, *options]


def kubelet(plane: ControlPlane, name: str, address: str, system_cgroup: str) -> list[str]:
    folder = plane.folder / name
    return [
        str(plane.programs / "kubelet"),
        f"--config={folder}/kubelet.json",
        f"--kubeconfig={folder}/kubeconfig",
        f"--cert-dir={folder}/kubelet/pki",
        "--root-dir=/var/lib/kubelet",
        f"--hostname-override={name}",
        f"--node-ip={address}",
        "--container-runtime=remote",
        "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
        f"--pod-infra-container-image={PAUSE}",
        f"--kubelet-cgroups=/{system_cgroup}",
        f"--runtime-cgroups=/{system_cgroup}",
        *plane.arguments.get("kubelet", ()),
    ]
