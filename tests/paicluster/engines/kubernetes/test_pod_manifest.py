"""Manifests of pods: what they contain, and the rules of the `restricted` Pod Security Standard."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from paicluster.engines.interface import RegistryLogin, TaskLaunch
from paicluster.engines.kubernetes import pod_manifest
from paicluster.engines.kubernetes.options import KubernetesOptions, PodSettings
from paicluster.engines.kubernetes.pod_manifest import PodContext, login_manifest
from paicluster.engines.kubernetes.pod_manifest import pod_manifest as manifest_of

SECRET = "swordfish"
# https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
VOLUMES = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
CAPABILITIES = ("NET_BIND_SERVICE",)


def task(**fields: Any) -> TaskLaunch:
    given: dict[str, Any] = {
        "uid": str(uuid.uuid4()),
        "node": "",
        "script": f"echo {SECRET}",
        "environment": {"KEY": SECRET},
        "secrets": (SECRET,),
        "owner": "alice",
        "vc": "default",
        "job": "train",
    }
    return TaskLaunch(**{**given, **fields})


def context(settings: PodSettings | None = None, **options: Any) -> PodContext:
    return PodContext("c1", "g1", settings or PodSettings(), KubernetesOptions(**options), 30)


def restricted_violations(pod: dict[str, Any]) -> Iterator[str]:
    """What the `restricted` standard, and the `baseline` in it, forbids of a pod."""
    spec = pod["spec"]
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield name
    for volume in spec.get("volumes", ()):
        kinds = set(volume) - {"name"}
        if not kinds <= set(VOLUMES):
            yield f"volume {volume['name']}: {kinds}"
    inherited = spec.get("securityContext", {})
    if inherited.get("sysctls"):
        yield "sysctls"
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        own = container.get("securityContext", {})
        name = container["name"]
        if own.get("privileged"):
            yield f"{name} is privileged"
        if own.get("allowPrivilegeEscalation") is not False:
            yield f"{name} may escalate"
        capabilities = own.get("capabilities", {})
        if "ALL" not in capabilities.get("drop", ()) or not set(capabilities.get("add", ())) <= set(
            CAPABILITIES
        ):
            yield f"{name} has capabilities"
        if not own.get("runAsNonRoot", inherited.get("runAsNonRoot")):
            yield f"{name} may be root"
        if own.get("runAsUser", inherited.get("runAsUser")) == 0:
            yield f"{name} is root"
        profile = own.get("seccompProfile", inherited.get("seccompProfile", {})).get("type")
        if profile not in ("RuntimeDefault", "Localhost"):
            yield f"{name} has no seccomp profile"
        if own.get("procMount", "Default") != "Default":
            yield f"{name} has another /proc"
        if any(port.get("hostPort") for port in container.get("ports", ())):
            yield f"{name} has ports of the host"


def test_pods_follow_the_restricted_standard() -> None:
    one = task(image="pytorch:2", memory_mb=100, gpu_count=2, shm_mb=64, login=RegistryLogin("a", "b"))
    assert list(restricted_violations(manifest_of(one, context()))) == []


def test_check_of_the_standard_finds_violations() -> None:
    pod = manifest_of(task(), context(PodSettings(host_network=True), run_as=0))
    pod["spec"]["volumes"].append({"name": "host", "hostPath": {"path": "/"}})
    pod["spec"]["containers"][1]["securityContext"] = {}
    found = " ".join(restricted_violations(pod))
    for word in ("hostNetwork", "hostPath", "task may escalate", "task has capabilities", "is root"):
        assert word in found


def test_images_that_must_be_root_violate_only_that_rule() -> None:
    found = list(restricted_violations(manifest_of(task(), context(run_as=None))))
    assert found == ["pai-runtime may be root", "task may be root"]


def test_pod_has_no_rights_in_the_cluster() -> None:
    spec = manifest_of(task(), context())["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["restartPolicy"] == "Never"
    assert "serviceAccountName" not in spec


def test_nothing_of_the_user_is_in_the_manifest() -> None:
    one = task(shared_environment={"MORE": SECRET}, login=RegistryLogin("alice", SECRET), image="r.io/a")
    assert SECRET not in json.dumps(manifest_of(one, context()))


def test_login_is_a_secret_that_the_kubelet_reads() -> None:
    made = login_manifest(context(), "r.io/a/b:1", RegistryLogin("alice", SECRET))
    assert made["type"] == "kubernetes.io/dockerconfigjson"
    content = json.loads(base64.b64decode(made["data"][".dockerconfigjson"]))
    assert base64.b64decode(content["auths"]["r.io"]["auth"]).decode() == f"alice:{SECRET}"
    pod = manifest_of(task(login=RegistryLogin("alice", SECRET), image="r.io/a/b:1"), context())
    assert pod["spec"]["imagePullSecrets"] == [{"name": made["metadata"]["name"]}]


def test_only_the_runtime_sees_its_volumes() -> None:
    containers = {one["name"]: one for one in manifest_of(task(shm_mb=1), context())["spec"]["containers"]}
    seen = {mount["name"] for mount in containers[pod_manifest.TASK]["volumeMounts"]}
    assert seen == {"exchange", "work", "shm"}
    assert containers[pod_manifest.TASK].get("env", []) == []


def test_resources_and_settings_of_the_virtual_cluster() -> None:
    settings = PodSettings(
        node_selector={"pool": "a100"},
        tolerations=({"key": "gpu", "operator": "Exists"},),
        priority_class="batch",
        runtime_class="nvidia",
        pull_secrets=("hub",),
        gpu_resource="amd.com/gpu",
        queue_label="team",
        claims={"/data": "sets"},
    )
    pod = manifest_of(task(cpu=4, memory_mb=2048, gpu_count=2), context(settings))
    spec = pod["spec"]
    assert spec["nodeSelector"] == {"pool": "a100"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert (spec["priorityClassName"], spec["runtimeClassName"]) == ("batch", "nvidia")
    assert spec["imagePullSecrets"] == [{"name": "hub"}]
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    resources = spec["containers"][1]["resources"]
    assert resources["requests"] == {"cpu": "3980m", "memory": "1984Mi"}
    assert resources["limits"] == {"memory": "2048Mi", "amd.com/gpu": "2"}
    assert spec["terminationGracePeriodSeconds"] == 45
    assert {"name": "claim-0", "persistentVolumeClaim": {"claimName": "sets"}} in spec["volumes"]
    assert {"name": "claim-0", "mountPath": "/data"} in spec["containers"][1]["volumeMounts"]
    assert list(restricted_violations(pod)) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [("train", "train"), ("a~b/ä", "a_b"), ("-x-", "x"), ("y" * 200, "y" * 63), ("", ""), ("." * 80, "")],
)
def test_any_name_makes_a_valid_label(text: str, value: str) -> None:
    assert pod_manifest.label_value(text) == value


def test_name_is_the_uid_of_the_attempt() -> None:
    one = task()
    pod = manifest_of(one, context())
    assert pod["metadata"]["name"] == one.uid
    assert pod["metadata"]["annotations"]["openpaisdk/job"] == "alice~train"
