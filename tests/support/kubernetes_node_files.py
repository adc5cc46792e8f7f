"""Files of a node of a test cluster: containerd, network of the pods, kubelet."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import kubernetes_commands
from support.kubernetes_certificates import CertificateAuthority
from support.kubernetes_commands import ControlPlane
from support.kubernetes_machine import checked, run

CTR = ["ctr", "-a", "/run/containerd/containerd.sock", "-n", "k8s.io"]
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


@dataclass(frozen=True)
class NodeNetwork:
    """``routes``: to the pods of the other nodes."""

    address: str
    pod_net: str
    routes: Mapping[str, str]


def write(
    plane: ControlPlane,
    authority: CertificateAuthority,
    name: str,
    network: NodeNetwork,
    cgroups: tuple[str, str],
    pause: Path,
) -> None:
    """``cgroups``: of the pods and of the node's own programs. ``pause``: archive of that image."""
    folder = plane.folder / name
    pods, system = cgroups
    (folder / "cni-conf").mkdir(parents=True)
    (folder / "containerd").mkdir()
    authority.issue(name, f"system:node:{name}", "system:nodes", [name, network.address, "127.0.0.1"])
    authority.kubeconfig(folder / "kubeconfig", name, f"https://{plane.host}:{plane.port}")
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    (folder / "containerd.toml").write_text(
        _CONTAINERD.format(folder=folder, snapshotter=_snapshotter(folder))
    )
    (folder / "cni-conf/10-test.conflist").write_text(json.dumps(_pod_network(network.pod_net)))
    (folder / "kubelet.json").write_text(json.dumps(_kubelet_configuration(plane, name, pods)))
    node = {
        "name": name,
        "folder": str(folder),
        "ip": network.address,
        "gateway": plane.host,
        "routes": dict(network.routes),
        "system_cgroup": system,
        "pause": str(pause),
        "containerd": ["containerd", "--config", f"{folder}/containerd.toml"],
        "ctr": CTR,
        "kubelet": kubernetes_commands.kubelet(plane, name, network.address, system),
    }
    (folder / "node.json").write_text(json.dumps(node))


def _pod_network(pod_net: str) -> dict[str, Any]:
    return {
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
                    "ranges": [[{"subnet": pod_net}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def _kubelet_configuration(plane: ControlPlane, name: str, cgroup: str) -> dict[str, Any]:
    folder = plane.folder / name
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{plane.pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{plane.pki}/{name}.crt",
        "tlsPrivateKeyFile": f"{plane.pki}/{name}.key",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "resolvConf": str(folder / "resolv.conf"),
        "clusterDNS": ["127.0.0.1"],
        "clusterDomain": "cluster.local",
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "maxPods": 240,
        "readOnlyPort": 0,
        "serializeImagePulls": False,
        "nodeLeaseDurationSeconds": plane.node_grace_s,
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


def _snapshotter(folder: Path) -> str:
    """overlayfs, unless the folder is on a file system below which there can be none."""
    parts = {name: folder / f"probe-{name}" for name in ("lower", "upper", "work", "merged")}
    for path in parts.values():
        path.mkdir()
    options = f"lowerdir={parts['lower']},upperdir={parts['upper']},workdir={parts['work']}"
    works = run("mount", "-t", "overlay", "-o", options, "overlay", str(parts["merged"])).returncode == 0
    if works:
        checked("umount", str(parts["merged"]))
    for path in parts.values():
        shutil.rmtree(path)
    return "overlayfs" if works else "native"
