"""Options of a Kubernetes engine from the cluster's file, typed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Any image with Python 3.6 or newer: what runs in it is downloaded from the server.
DEFAULT_RUNTIME_IMAGE = "docker.io/library/python:3-slim"
# Not root, as the `restricted` standard wants, and no account of any image.
DEFAULT_RUN_AS = 1000


@dataclass(frozen=True, slots=True)
class PodSettings:
    """How the pods of a virtual cluster are made."""

    namespace: str = "default"
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    priority_class: str = ""
    runtime_class: str = ""
    # Names of Secrets of the namespace with logins for registries.
    pull_secrets: tuple[str, ...] = ()
    # Name of GPUs among a node's resources.
    gpu_resource: str = "nvidia.com/gpu"
    # Queue of Kueue or Volcano, as a label of the pods.
    queue_label: str = ""
    host_network: bool = False
    # Claims of persistent volumes, mounted in every task: by the path, the name of the claim.
    claims: Mapping[str, str] = field(default_factory=dict)

    @property
    def pool(self) -> str:
        """The nodes that these pods may use, as text: pods of other text do not compete with them."""
        nodes = [dict(self.node_selector), [dict(one) for one in self.tolerations], self.gpu_resource]
        return json.dumps([self.namespace, *nodes])


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """Options of the whole engine."""

    # Empty: KUBECONFIG, the account's, or inside a pod the service account.
    kubeconfig: str = ""
    context: str = ""
    default_pods: PodSettings = PodSettings()
    # By virtual cluster, where they differ.
    pods: Mapping[str, PodSettings] = field(default_factory=dict)
    runtime_image: str = DEFAULT_RUNTIME_IMAGE
    # Image of jobs that name none.
    image: str = DEFAULT_RUNTIME_IMAGE
    # User and group of both containers; None: the users of the images, as far as the cluster admits them.
    run_as: int | None = DEFAULT_RUN_AS
    # Added to the grace period of a task, in which the end of its log is uploaded.
    drain_s: int = 15
    # How long a claimed task that was killed waits for what Kubernetes says about it.
    reason_timeout_s: float = 10.0
    # How long a pod may wait for an image that cannot be pulled.
    image_timeout_s: float = 300.0
    # Until a gang that is not completely scheduled is withdrawn, to be created again later.
    gang_timeout_s: float = 300.0
    log_limit: int = 512 << 20
    log_segment: int = 64 << 20

    def pods_of(self, vc: str) -> PodSettings:
        return self.pods.get(vc, self.default_pods)

    def all_pods(self) -> tuple[PodSettings, ...]:
        return (self.default_pods, *self.pods.values())

    def namespaces(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.namespace for one in self.all_pods()))


def options_of(section: Mapping[str, object], home: Path) -> KubernetesOptions:
    """Options from the engine's section of the cluster's file; paths are relative to ``home``."""
    values: dict[str, Any] = dict(section)
    kubeconfig = str(values.get("kubeconfig") or "")
    default_pods = _pods(values, PodSettings())
    run_as = values.get("run-as", DEFAULT_RUN_AS)
    return KubernetesOptions(
        kubeconfig=str(home / Path(kubeconfig).expanduser()) if kubeconfig else "",
        context=str(values.get("context") or ""),
        default_pods=default_pods,
        pods={
            vc: _pods(settings or {}, default_pods) for vc, settings in (values.get("clusters") or {}).items()
        },
        runtime_image=str(values.get("runtime-image", DEFAULT_RUNTIME_IMAGE)),
        image=str(values.get("image", values.get("runtime-image", DEFAULT_RUNTIME_IMAGE))),
        run_as=None if run_as == "image" else int(run_as),
    )


def _pods(section: Mapping[str, Any], default: PodSettings) -> PodSettings:
    return PodSettings(
        namespace=str(section.get("namespace", default.namespace)),
        node_selector=dict(section.get("node-selector", default.node_selector)),
        tolerations=tuple(section.get("tolerations", default.tolerations)),
        priority_class=str(section.get("priority-class", default.priority_class)),
        runtime_class=str(section.get("runtime-class", default.runtime_class)),
        pull_secrets=tuple(section.get("pull-secrets", default.pull_secrets)),
        gpu_resource=str(section.get("gpu-resource", default.gpu_resource)),
        queue_label=str(section.get("queue", default.queue_label)),
        host_network=bool(section.get("host-network", default.host_network)),
        claims={str(path): str(name) for path, name in section.get("claims", default.claims).items()},
    )
