"""Registration of the Kubernetes engine."""

from __future__ import annotations

from typing import Any

from paicluster.engines.engine_kind import DetectedConfig, EngineContext, EngineKind
from paicluster.engines.router import ReadableEngine
from paicluster.engines.setting_types import NAME
from paiprotocol.errors import ConfigError
from paiprotocol.jobs.schema_nodes import (
    Anything,
    Bool,
    Fields,
    ListOf,
    MappingOf,
    Node,
    Nullable,
    Text,
)


class RunAs(Node):
    """The user of containers."""

    expected = "the number of a user, or image"

    def accepts(self, value: Any) -> bool:
        return value == "image" or (type(value) is int and 0 <= value < 1 << 31)


_DNS_NAME = Text(pattern=r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", form="a name of Kubernetes, in lower case")

_PODS: dict[str, Node] = {
    "namespace": Text(
        "Where pods are created.", pattern=r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", form="a namespace"
    ),
    "node-selector": MappingOf(Text(), "Labels that nodes must have."),
    "tolerations": ListOf(MappingOf(Anything()), "Taints that do not matter, as Kubernetes writes them."),
    "priority-class": _DNS_NAME,
    "runtime-class": _DNS_NAME,
    "pull-secrets": ListOf(_DNS_NAME, "Secrets of the namespace with logins for registries."),
    "gpu-resource": Text("What GPUs are called among the resources of a node."),
    "queue": Text("Queue of Kueue, as a label of the pods."),
    "claims": MappingOf(
        _DNS_NAME,
        "Claims of persistent volumes that every task sees: the path, and the name of the claim.",
        key=Text(pattern=r"/[^:]+", form="a path from /"),
    ),
    "host-network": Bool("Whether pods use the network of their node."),
}

_OPTIONS: dict[str, Node] = {
    "kubeconfig": Text("By default KUBECONFIG, ~/.kube/config, or inside a pod its service account."),
    "context": Text("Of the kubeconfig; by default its current one."),
    **_PODS,
    "clusters": MappingOf(Nullable(Fields(_PODS)), "By virtual cluster, where it differs.", key=NAME),
    "runtime-image": Text("Image with Python 3.6 or newer, for the container beside each task."),
    "image": Text("Image of jobs that name none."),
    "run-as": RunAs("User and group of the containers; image: the users that the images have."),
}


def _build(context: EngineContext) -> ReadableEngine:
    from paicluster.engines.kubernetes import cluster_access
    from paicluster.engines.kubernetes.engine import KubernetesEngine
    from paicluster.engines.kubernetes.options import options_of

    if context.external_url is None:
        raise ConfigError(
            f"Tasks of the engine {context.name} report over the network, and external-url is not set.",
            hint="Give the address by which pods reach this server: external-url, under listen.",
        )
    options = options_of(context.options, context.cluster_home)
    if not options.kubeconfig and cluster_access.is_in_pod():
        access = cluster_access.of_service_account()
    else:
        files = cluster_access.kubeconfig_files(options.kubeconfig)
        access = cluster_access.of_kubeconfig(files, options.context)
    return KubernetesEngine(
        context.home,
        options,
        access,
        url=context.external_url,
        grace_s=context.grace_s,
        ca_certificates=context.ca_certificates,
    )


def _detect() -> DetectedConfig:
    from paicluster.engines.kubernetes.detect_config import detect

    return detect()


KUBERNETES = EngineKind(
    "kubernetes",
    _OPTIONS,
    _build,
    schedules_itself=True,
    is_admitted_by_us=True,
    detect=_detect,
    init_help="configure it for the Kubernetes cluster of the current kubeconfig",
)
