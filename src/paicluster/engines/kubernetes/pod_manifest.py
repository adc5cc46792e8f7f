"""Manifests of a task's pod and of the Secret of its gang, as plain values. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paicluster.engines.common import image_names
from paicluster.engines.interface import RegistryLogin, TaskLaunch
from paicluster.engines.kubernetes.options import KubernetesOptions, PodSettings
from pairuntime.kubernetes import pod_runtime, shim

# Mount points. The user's container sees the exchange only.
EXCHANGE = "/pai"
WORK = f"{EXCHANGE}/{pod_runtime.WORK}"
STATE = "/pai-state"
_LAUNCH = "/pai-launch"
# Containers.
TASK = "task"
RUNTIME = "pai-runtime"
# Key of the Secret.
_BOOTSTRAP = "bootstrap.py"

CLUSTER_LABEL = "openpaisdk/cluster"
GANG_LABEL = "openpaisdk/gang"
_LABELS = {"app.kubernetes.io/managed-by": "openpaisdk", "app.kubernetes.io/component": "task"}
_KUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_MAX_LABEL_CHARS = 63

# Of the runtime. It is small: Python, and what it sends. It is taken from what the task requests, so that a
# pod takes as much of a node as the job says, and as our scheduler counts.
_RUNTIME_CPU_MILLIS = 20
_RUNTIME_MEMORY_MB = 64
_RUNTIME_MEMORY_LIMIT_MB = 256
# Of the exchange, without the working folder: scripts, and the runtime's files for tasks.
_EXCHANGE_MB = 64
# Of what the runtime keeps beside logs that are not uploaded yet.
_STATE_MB = 256
_STREAMS = 3


@dataclass(frozen=True, slots=True)
class PodContext:
    """What the pods of a gang have in common."""

    # Identifies the cluster among others that use the same namespace.
    cluster: str
    gang: str
    settings: PodSettings
    options: KubernetesOptions
    grace_s: float


def pod_manifest(task: TaskLaunch, context: PodContext) -> dict[str, Any]:
    """The pod of a task. Its name is the attempt's uid: it can be created once only."""
    settings, options = context.settings, context.options
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": int(context.grace_s) + options.drain_s,
        "securityContext": _pod_security(options),
        "containers": [_runtime_container(task, context), _task_container(task, context)],
        "volumes": _volumes(task, context),
    }
    optional = {
        "nodeSelector": dict(settings.node_selector),
        "tolerations": [dict(each) for each in settings.tolerations],
        "priorityClassName": settings.priority_class,
        "runtimeClassName": settings.runtime_class,
        "imagePullSecrets": [{"name": name} for name in _pull_secrets(task, context)],
        "hostNetwork": settings.host_network,
    }
    spec.update({key: value for key, value in optional.items() if value})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": task.uid,
            "labels": _labels(task, context),
            # Without the limits of a label.
            "annotations": {"openpaisdk/job": f"{task.owner}~{task.job}", "openpaisdk/vc": task.vc},
        },
        "spec": spec,
    }


def secret_manifest(context: PodContext, bootstrap: str) -> dict[str, Any]:
    """The Secret of a gang: its bootstrap, with the ticket by which its tasks report."""
    return _secret(context, secret_name(context.gang), "Opaque", {_BOOTSTRAP: bootstrap})


def login_manifest(context: PodContext, image: str, login: RegistryLogin) -> dict[str, Any]:
    """The Secret with the login of a gang at its registry."""
    content = {".dockerconfigjson": image_names.login_file(image, login)}
    return _secret(context, login_name(context.gang), "kubernetes.io/dockerconfigjson", content)


def secret_name(gang: str) -> str:
    return gang


def login_name(gang: str) -> str:
    return f"{gang}-login"


def _secret(context: PodContext, name: str, kind: str, content: Mapping[str, str]) -> dict[str, Any]:
    labels = {**_LABELS, CLUSTER_LABEL: context.cluster, GANG_LABEL: context.gang}
    data = {key: base64.b64encode(text.encode()).decode() for key, text in content.items()}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "data": data}


def _pull_secrets(task: TaskLaunch, context: PodContext) -> list[str]:
    own = [login_name(context.gang)] if task.login is not None else []
    return [*own, *context.settings.pull_secrets]


def _labels(task: TaskLaunch, context: PodContext) -> dict[str, str]:
    labels = {
        **_LABELS,
        CLUSTER_LABEL: context.cluster,
        GANG_LABEL: context.gang,
        "openpaisdk/user": label_value(task.owner),
        "openpaisdk/vc": label_value(task.vc),
        "openpaisdk/job": label_value(task.job),
    }
    if context.settings.queue_label:
        labels[_KUEUE_LABEL] = context.settings.queue_label
    return labels


def label_value(text: str) -> str:
    """A text as the value of a label: at most 63 characters, of a few kinds."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)[:_MAX_LABEL_CHARS].strip("_.-")


def _pod_security(options: KubernetesOptions) -> dict[str, Any]:
    security: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if options.run_as is not None:
        # The group of the volumes, too.
        account = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), options.run_as)
        security.update(account, runAsNonRoot=options.run_as != 0)
    return security


_CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "privileged": False,
    "capabilities": {"drop": ["ALL"]},
}


def _runtime_container(task: TaskLaunch, context: PodContext) -> dict[str, Any]:
    memory = {"memory": f"{_RUNTIME_MEMORY_MB}Mi"}
    return {
        "name": RUNTIME,
        "image": context.options.runtime_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-I", "-S", f"{_LAUNCH}/{_BOOTSTRAP}"],
        "env": [
            {"name": pod_runtime.UID_VARIABLE, "value": task.uid},
            _field(pod_runtime.NODE_VARIABLE, "spec.nodeName"),
            _field(pod_runtime.ADDRESS_VARIABLE, "status.podIP"),
        ],
        "resources": {
            "requests": {"cpu": f"{_RUNTIME_CPU_MILLIS}m", **memory},
            "limits": {"memory": f"{_RUNTIME_MEMORY_LIMIT_MB}Mi"},
        },
        "securityContext": {**_CONTAINER_SECURITY, "readOnlyRootFilesystem": True},
        "volumeMounts": [
            {"name": "launch", "mountPath": _LAUNCH, "readOnly": True},
            {"name": "state", "mountPath": STATE},
            *_exchange_mounts(),
        ],
    }


def _field(variable: str, path: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _task_container(task: TaskLaunch, context: PodContext) -> dict[str, Any]:
    requests = {"cpu": f"{max(0, task.cpu * 1000 - _RUNTIME_CPU_MILLIS)}m"}
    limits: dict[str, str] = {}
    if task.memory_mb:
        limits["memory"] = f"{task.memory_mb}Mi"
        # Not less than half of it.
        requests["memory"] = f"{max(task.memory_mb - _RUNTIME_MEMORY_MB, task.memory_mb // 2)}Mi"
    if task.gpu_count:
        # Of these, Kubernetes wants the limit.
        limits[context.settings.gpu_resource] = str(task.gpu_count)
    return {
        "name": TASK,
        "image": task.image or context.options.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", shim.SCRIPT, "pai-shim", EXCHANGE],
        "resources": {"requests": requests, "limits": limits},
        "securityContext": dict(_CONTAINER_SECURITY),
        "volumeMounts": [
            *_exchange_mounts(),
            *([{"name": "shm", "mountPath": "/dev/shm"}] if task.shm_mb else []),
            *(
                {"name": f"claim-{number}", "mountPath": path}
                for number, path in enumerate(context.settings.claims)
            ),
        ],
    }


def _exchange_mounts() -> list[dict[str, Any]]:
    return [{"name": "exchange", "mountPath": EXCHANGE}, {"name": "work", "mountPath": WORK}]


def _volumes(task: TaskLaunch, context: PodContext) -> list[dict[str, Any]]:
    options = context.options
    state_mb = _STATE_MB + _STREAMS * ((options.log_limit + options.log_segment) >> 20)
    volumes: list[dict[str, Any]] = [
        {"name": "launch", "secret": {"secretName": secret_name(context.gang), "defaultMode": 0o444}},
        {"name": "state", "emptyDir": {"sizeLimit": f"{state_mb}Mi"}},
        {"name": "exchange", "emptyDir": {"sizeLimit": f"{_EXCHANGE_MB}Mi"}},
        {"name": "work", "emptyDir": {}},
    ]
    for number, name in enumerate(context.settings.claims.values()):
        volumes.append({"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": name}})
    if task.shm_mb:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{task.shm_mb}Mi"}})
    return volumes
