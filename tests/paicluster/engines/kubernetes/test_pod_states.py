"""What the status of a pod means. The statuses are those that Kubernetes 1.20.2 was seen to have."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from paicluster.engines.interface import Loss
from paicluster.engines.kubernetes import pod_states
from paicluster.engines.kubernetes.api_objects import Pod

IMAGE = "registry.example.com/team/train:1"


def pod(**status: Any) -> Pod:
    spec = {"nodeName": status.pop("node")} if status.get("node") else {}
    metadata = {"name": "p", **status.pop("metadata", {})}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)


def waiting(reason: str, message: str = "", name: str = "task") -> Pod:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(node="n", phase="Pending", containerStatuses=[{"name": name, "state": state}])


def ended(name: str = "task", phase: str = "Failed", **terminated: Any) -> Pod:
    status = {"name": name, "state": {"terminated": terminated}}
    return pod(node="n", phase=phase, containerStatuses=[status])


def rejection(one: Pod, waited_s: float = 0.0) -> tuple[int | None, str]:
    verdict = pod_states.start_rejection(one, waited_s, 300, IMAGE, "")
    return (None, "") if verdict is None else (verdict.platform_code, verdict.rejection)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
            "0 of 3 nodes can run it now: 3 without enough free nvidia.com/gpu.",
        ),
        (
            "0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient memory.",
            "0 of 2 nodes can run it now: 2 without enough free cpu, 2 without enough free memory.",
        ),
        (
            "0/2 nodes are available: 1 node(s) were unschedulable, "
            "1 node(s) didn't match Pod's node affinity.",
            "0 of 2 nodes can run it now: 1 closed to new tasks, 1 that the virtual cluster does not use.",
        ),
        (
            "0/1 nodes are available: 1 node(s) had taint {gpu: only}, that the pod didn't tolerate.",
            "0 of 1 nodes can run it now: 1 reserved for others (a taint).",
        ),
        ("something new of a later release", "something new of a later release"),
    ],
)
def test_reason_of_the_scheduler_is_in_plain_words(message: str, words: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    notice = pod_states.pending_notice(pod(phase="Pending", conditions=[condition]))
    assert notice is not None and notice.message == words and notice.pending


@pytest.mark.parametrize("reason", ["InvalidImageName", "ErrImageNeverPull"])
def test_image_that_can_never_be_used_is_rejected_at_once(reason: str) -> None:
    code, text = rejection(waiting(reason, 'Failed to apply default image tag "x y"'))
    assert code == 254 and IMAGE in text


def test_missing_image_and_missing_login_are_rejected_at_once() -> None:
    code, text = rejection(waiting("ErrImagePull", f"failed to resolve {IMAGE}: manifest unknown: not found"))
    assert code == 254 and "There is no image" in text
    code, text = rejection(
        waiting("ImagePullBackOff", "pull access denied: authorization failed: 401 Unauthorized")
    )
    assert code == 254 and "login" in text


def test_unreachable_registry_is_waited_for() -> None:
    one = waiting("ErrImagePull", "dial tcp 10.0.0.1:443: connect: connection refused")
    assert rejection(one, 10) == (None, "")
    code, text = rejection(one, 301)
    assert code == -120 and "could not be pulled" in text


def test_image_without_a_shell_gives_a_sentence() -> None:
    message = (
        'failed to create containerd task: exec: "/bin/sh": stat /bin/sh: no such file or directory: unknown'
    )
    code, text = rejection(ended(exitCode=128, reason="StartError", message=message))
    assert code == -1203 and "has no shell" in text


def test_container_that_cannot_be_made_is_rejected_after_a_while() -> None:
    one = waiting("CreateContainerConfigError", 'secret "nope" not found')
    assert rejection(one, 10) == (None, "")
    assert rejection(one, 301)[0] == -1201


def test_running_and_creating_pods_are_not_rejected() -> None:
    assert rejection(waiting("ContainerCreating"), 9999) == (None, "")
    assert rejection(pod(phase="Pending")) == (None, "")


def test_out_of_memory_is_a_cause_only_of_its_container() -> None:
    assert pod_states.is_out_of_memory(ended(exitCode=137, reason="OOMKilled"))
    assert not pod_states.is_out_of_memory(ended(exitCode=137, reason="Error"))
    assert not pod_states.is_out_of_memory(ended("pai-runtime", exitCode=137, reason="OOMKilled"))
    assert not pod_states.is_out_of_memory(None)


def disrupted(reason: str) -> Pod:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return pod(node="n", phase="Failed", conditions=[condition])


@pytest.mark.parametrize(
    ("one", "loss"),
    [
        (None, Loss.CANCELLED),
        (pod(phase="Running", node="n"), Loss.UNKNOWN),
        (
            pod(phase="Running", node="n", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            Loss.CANCELLED,
        ),
        (disrupted("PreemptionByScheduler"), Loss.PREEMPTED),
        (disrupted("DeletionByTaintManager"), Loss.NODE),
        (pod(phase="Failed", reason="NodeLost", node="n"), Loss.NODE),
        (ended(exitCode=255, reason="Unknown"), Loss.NODE),
    ],
)
def test_cause_of_a_loss(one: Pod | None, loss: Loss) -> None:
    assert pod_states.loss_of(one).loss is loss


def test_lost_node_is_the_cause_whatever_the_pod_says() -> None:
    one = pod(phase="Running", node="n", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert pod_states.loss_of(one, node_is_lost=True).loss is Loss.NODE


@pytest.mark.parametrize(
    ("reason", "code"), [("Evicted", -1000), ("OutOfcpu", -1002), ("OutOfnvidia.com/gpu", -1002)]
)
def test_refusals_of_a_node_have_codes_of_their_own(reason: str, code: int) -> None:
    verdict = pod_states.loss_of(pod(phase="Failed", reason=reason, message="Pod was rejected", node="n"))
    assert (verdict.platform_code, verdict.rejection) == (code, "Pod was rejected")


@pytest.mark.parametrize(
    ("status", "message", "is_final"),
    [
        (422, 'Pod "x" is invalid: spec.containers[0].image: Required value', True),
        (400, "bad request", True),
        (403, 'pods "x" is forbidden: no PriorityClass with name nosuch was found', True),
        (403, 'pods "x" is forbidden: exceeded quota: rq, requested: requests.cpu=2', False),
        (429, "too many requests", False),
        (500, "etcdserver: leader changed", False),
        (404, 'namespaces "lab" not found', False),
    ],
)
def test_only_what_cannot_change_rejects_a_pod(status: int, message: str, is_final: bool) -> None:
    assert (pod_states.creation_rejection(status, message) is not None) is is_final
