"""What a pod's status means for its attempt. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paicluster.engines.common import container_errors
from paicluster.engines.common.image_rejection import IMAGE_MISSING_CODE, REJECTED_CODE, ImageRejected
from paicluster.engines.interface import Loss, Notice
from paicluster.engines.kubernetes.api_objects import ApiContainerStatus, ApiTerminated, Pod
from paicluster.engines.kubernetes.pod_manifest import RUNTIME, TASK

# Of the exit table: evicted by its node, not started for lack of resources there, refused by the node.
EVICTED_CODE = -1000
NO_ROOM_CODE = -1002
_OUT_OF = re.compile(r"OutOf\S+")
_NO_SHELL = re.compile(r"no such file or directory|not found in \$PATH|executable file not found", re.I)

# Waiting reasons that never change by themselves.
_FINAL_IMAGE_REASONS = ("InvalidImageName", "ErrImageNeverPull")
_PULLING_REASONS = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError")
_CREATION_REASONS = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")

KUBERNETES_UNAVAILABLE = "KubernetesUnavailable"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What Kubernetes says about the end of an attempt; it is stored, as the pod is deleted."""

    loss: Loss | None = None
    out_of_memory: bool = False
    # Why it never started, with a code of the exit table.
    rejection: str = ""
    platform_code: int | None = None


def is_scheduled(pod: Pod) -> bool:
    return bool(pod.spec.node_name)


def has_finished(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def container(pod: Pod, name: str) -> ApiContainerStatus | None:
    return next((one for one in pod.status.container_statuses if one.name == name), None)


def terminated(pod: Pod, name: str) -> ApiTerminated | None:
    status = container(pod, name)
    return None if status is None else status.state.terminated


def pending_notice(pod: Pod) -> Notice | None:
    """Why a pod waits, for the job's events; None if there is nothing to report."""
    if not is_scheduled(pod):
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "False" and condition.message:
                return Notice("FailedScheduling", plain_scheduling(condition.message), pending=True)
        return None
    for name in (TASK, RUNTIME):
        status = container(pod, name)
        waiting = None if status is None else status.state.waiting
        if waiting is not None and waiting.reason in (*_PULLING_REASONS, *_CREATION_REASONS):
            return Notice(
                waiting.reason or "", _first_line(waiting.message or waiting.reason or ""), "Warning"
            )
    return None


# Phrases of the scheduler, and what they mean.
_SCHEDULING = (
    (r"(\d+) Insufficient (\S+?)([,.]|$)", r"\1 without enough free \2\3"),
    (
        r"(\d+) node\(s\) didn't match (Pod's )?node (affinity|selector)[^,.]*",
        r"\1 that the virtual cluster does not use",
    ),
    (r"(\d+) node\(s\) were unschedulable", r"\1 closed to new tasks"),
    (
        r"(\d+) node\(s\) had taint \{[^}]*\}, that the pod didn't tolerate",
        r"\1 reserved for others (a taint)",
    ),
)
_AVAILABLE = re.compile(r"^(\d+)/(\d+) nodes are available: ")


def plain_scheduling(message: str) -> str:
    """The scheduler's own message, in plain words where they are known."""
    match = _AVAILABLE.match(message)
    if match is None:
        return _first_line(message)
    text = message[match.end() :]
    for pattern, words in _SCHEDULING:
        text = re.sub(pattern, words, text)
    return f"{match[1]} of {match[2]} nodes can run it now: {text}".strip()


def start_rejection(
    pod: Pod, waited_s: float, image_timeout_s: float, image: str, username: str
) -> Verdict | None:
    """Why an attempt that has not started never will; None while it may.

    ``waited_s``: since its image could not be pulled for the first time.
    """
    for name in (TASK, RUNTIME):
        status = container(pod, name)
        if status is None:
            continue
        waiting, ended = status.state.waiting, status.state.terminated
        if waiting is not None and waiting.reason in _FINAL_IMAGE_REASONS:
            return Verdict(
                rejection=f"The image {image!r} cannot be used: {_first_line(waiting.message or '')}.",
                platform_code=IMAGE_MISSING_CODE,
            )
        if waiting is not None and waiting.reason in _PULLING_REASONS and name == TASK:
            error = container_errors.pull_error(image, username, waiting.message or "")
            if isinstance(error, ImageRejected):
                return Verdict(rejection=error.message, platform_code=error.exit_code)
            if waited_s > image_timeout_s:
                return Verdict(rejection=error.message, platform_code=container_errors.VANISHED)
        if waiting is not None and waiting.reason in _CREATION_REASONS and waited_s > image_timeout_s:
            return Verdict(
                rejection=f"The container could not be started: {_first_line(waiting.message or '')}.",
                platform_code=container_errors.CREATION,
            )
        if ended is not None and name == TASK and ended.reason in ("StartError", "ContainerCannotRun"):
            return _start_error(ended, image)
    return None


def _start_error(ended: ApiTerminated, image: str) -> Verdict:
    if _NO_SHELL.search(ended.message or ""):
        reason = f"The image {image} has no shell (/bin/sh), and without one a job's commands cannot run."
        return Verdict(rejection=reason, platform_code=container_errors.NO_COMMAND)
    message = _first_line(ended.message or "no reason was given")
    return Verdict(
        rejection=f"The container could not be started: {message}.", platform_code=container_errors.CREATION
    )


def is_out_of_memory(pod: Pod | None) -> bool:
    ended = None if pod is None else terminated(pod, TASK)
    return ended is not None and ended.reason == "OOMKilled"


def loss_of(pod: Pod | None, *, node_is_lost: bool = False) -> Verdict:
    """Why an attempt ended whose runtime did not report it. ``pod``: as it was last seen; None: never."""
    if pod is None:
        return Verdict(loss=Loss.CANCELLED)
    if is_out_of_memory(pod):
        return Verdict(loss=Loss.UNKNOWN, out_of_memory=True)
    reason = pod.status.reason or ""
    disruption = next(
        (
            one.reason
            for one in pod.status.conditions
            if one.type == "DisruptionTarget" and one.status == "True"
        ),
        "",
    )
    if reason == "Preempted" or disruption == "PreemptionByScheduler":
        return Verdict(loss=Loss.PREEMPTED)
    if (
        node_is_lost
        or reason in ("NodeLost", "Shutdown", "Terminated")
        or disruption == "DeletionByTaintManager"
    ):
        return Verdict(loss=Loss.NODE)
    if any(
        ended is not None and ended.reason == "Unknown"
        for ended in (terminated(pod, TASK), terminated(pod, RUNTIME))
    ):
        return Verdict(loss=Loss.NODE)  # its node came back, and found the containers gone
    if reason == "Evicted" or _OUT_OF.fullmatch(reason):
        code = EVICTED_CODE if reason == "Evicted" else NO_ROOM_CODE
        return Verdict(rejection=_first_line(pod.status.message or reason), platform_code=code)
    if pod.metadata.deletion_timestamp:
        return Verdict(loss=Loss.CANCELLED)
    return Verdict(loss=Loss.UNKNOWN)


def creation_rejection(status: int, message: str) -> Verdict | None:
    """Why a pod can never be created; None if it may be later, as with a quota of the namespace."""
    if status in (400, 422) or (
        status == 403 and "exceeded quota" not in message and "is forbidden" in message
    ):
        return Verdict(
            rejection=f"Kubernetes rejects the pod: {_first_line(message)}.", platform_code=REJECTED_CODE
        )
    return None


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else "no reason was given").rstrip(".")
