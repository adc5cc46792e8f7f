"""Comparison of a pod with the folder of its attempt: stores what only Kubernetes knows about its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paicluster.engines.common import untrusted_files
from paicluster.engines.common.gang_folders import GangFolders
from paicluster.engines.interface import Loss
from paicluster.engines.kubernetes import gang_folder, observe, pod_manifest, pod_states
from paicluster.engines.kubernetes.api_objects import Pod
from paicluster.engines.kubernetes.gang_registry import KubernetesGang
from paicluster.engines.kubernetes.pod_states import Verdict
from pairuntime.supervisor import claim


@dataclass(frozen=True, slots=True)
class SeenPod:
    """A pod at one moment. ``last``: as it was last seen, also if it is gone; None: it was never seen."""

    pod: Pod | None
    last: Pod | None
    # It existed, and does not any more.
    is_gone: bool


class PodComparison:
    """Blocking, and repeatable: what is stored once does not change."""

    def __init__(self, home: GangFolders, image_timeout_s: float, is_node_lost: Callable[[str | None], bool]):
        """``is_node_lost``: whether the kubelet of a node does not report any more, by its name."""
        self._home = home
        self._image_timeout_s = image_timeout_s
        self._is_node_lost = is_node_lost

    def is_claimed_only(self, uid: str) -> bool:
        """Whether the attempt runs, according to what was reported."""
        path = self._home.task(uid)
        owner = untrusted_files.read_claim(path)
        if owner is None or (owner and "pid" not in owner):
            return False
        return untrusted_files.read_exit_record(path) is None

    def compare(self, uid: str, gang: KubernetesGang, seen: SeenPod) -> bool:
        """Store what the pod says about the end of its attempt; whether that was new."""
        path = self._home.task(uid)
        if (path / gang_folder.VERDICT).exists():
            return False
        owner = untrusted_files.read_claim(path)
        if owner is None:
            return self._compare_unclaimed(uid, gang, seen)
        if owner and "pid" not in owner:
            return False
        record = untrusted_files.read_exit_record(path)
        if record is None:
            has_ended = seen.is_gone or self._runtime_has_ended(seen.pod)
        else:
            has_ended = observe.needs_verdict(record, is_outside=record["ended_outside"]) and (
                seen.is_gone
                or (seen.pod is not None and pod_states.terminated(seen.pod, pod_manifest.TASK) is not None)
            )
        if has_ended:
            gang_folder.write_verdict(path, self._loss(seen.last))
        return has_ended

    def _runtime_has_ended(self, pod: Pod | None) -> bool:
        """Whether no process can report the end any more."""
        if pod is None:
            return False
        if pod_states.has_finished(pod) or pod_states.terminated(pod, pod_manifest.RUNTIME) is not None:
            return True
        # The object stays for as long as its node is away.
        return bool(pod.metadata.deletion_timestamp) and self._is_node_lost(pod.spec.node_name)

    def _compare_unclaimed(self, uid: str, gang: KubernetesGang, seen: SeenPod) -> bool:
        path = self._home.task(uid)
        if seen.is_gone:
            # Deleted by others, before it did anything.
            loss = self._loss(seen.last).loss or Loss.CANCELLED
            return claim.bury(str(path), uid, lost=loss.value)
        if seen.pod is None:
            return False  # not created yet
        image, username = gang.images.get(uid, ("", ""))
        notice = pod_states.pending_notice(seen.pod)
        waited_s = gang.waited_for_image_s(uid) if notice is not None and notice.type == "Warning" else 0.0
        verdict = pod_states.start_rejection(seen.pod, waited_s, self._image_timeout_s, image, username)
        if verdict is None and self._runtime_has_ended(seen.pod):
            verdict = self._loss(seen.pod)
            if not verdict.rejection:
                loss = verdict.loss if verdict.loss not in (None, Loss.UNKNOWN) else Loss.NOT_STARTED
                return claim.bury(str(path), uid, lost=loss.value)
        if verdict is None:
            return False
        gang_folder.write_verdict(path, verdict)
        return True

    def _loss(self, pod: Pod | None) -> Verdict:
        is_lost = pod is not None and self._is_node_lost(pod.spec.node_name)
        return pod_states.loss_of(pod, node_is_lost=is_lost)
