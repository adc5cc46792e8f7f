"""Kubernetes engine: creates pods, watches them, and stores what their tasks report."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from paicluster.engines.common import attempt_folder as attempts
from paicluster.engines.common import runtime_install, untrusted_files
from paicluster.engines.common.background_loop import RESTART_DELAY_S, restart_on_error
from paicluster.engines.common.gang_folders import TICKET, GangFolders
from paicluster.engines.common.received_reports import write_report
from paicluster.engines.interface import (
    ABSENT,
    FreeNodes,
    Hint,
    LaunchFailed,
    Node,
    Notice,
    Notify,
    Observation,
    Phase,
    TaskLaunch,
    ignore_notice,
)
from paicluster.engines.kubernetes import gang_folder, nodes, observe, pod_manifest, pod_states
from paicluster.engines.kubernetes.api_client import ApiClient, ApiError, ApiUnavailable
from paicluster.engines.kubernetes.api_objects import ApiNode, ApiPodSpec, BoundPod, Metadata, Pod
from paicluster.engines.kubernetes.cluster_access import ClusterAccess
from paicluster.engines.kubernetes.deletions import Deletions
from paicluster.engines.kubernetes.free_resources import BOUND_PODS, BoundPods, RoomNotifier, free_nodes
from paicluster.engines.kubernetes.gang_registry import KubernetesGang, KubernetesGangRegistry
from paicluster.engines.kubernetes.options import KubernetesOptions
from paicluster.engines.kubernetes.pod_comparison import PodComparison, SeenPod
from paicluster.engines.kubernetes.pod_creator import PodCreator, unavailable
from paicluster.engines.kubernetes.pod_states import Verdict
from paicluster.engines.kubernetes.report_sink import KubernetesReportSink
from paicluster.engines.kubernetes.watcher import Watcher
from paicluster.logs.reader import LogReader
from paiprotocol.errors import ConfigError
from pairuntime.supervisor import attempt, claim, exit_record

log = logging.getLogger(__name__)

T = TypeVar("T")

# How long the start of the server waits for the first list of pods and nodes.
_FIRST_LIST_TIMEOUT_S = 5.0
# A pod whose task has ended goes by itself, with both containers; after this time it is deleted anyway.
_LINGER_S = 30.0
_NOT_FOUND = 404
# Between two looks for a pod that the watch does not report.
_ABSENCE_INTERVAL_S = 5.0


class KubernetesEngine:
    """Engine that runs each task as a pod."""

    schedules_itself = True
    runs_images = True

    def __init__(
        self,
        home: Path,
        options: KubernetesOptions,
        access: ClusterAccess,
        *,
        url: str,
        grace_s: float = 10.0,
        ca_certificates: str = "",
    ):
        """``url``: the server's address for pods. ``ca_certificates``: of its CA, PEM."""
        self._home = GangFolders(home)
        self._options = options
        self._url = url
        self._grace_s = grace_s
        self._ca_certificates = ca_certificates
        self._access = access
        self._hint: Hint = lambda uid: None
        self._notify: Notify = ignore_notice
        self._files = ThreadPoolExecutor(1, thread_name_prefix="kubernetes-files")
        self._gangs = KubernetesGangRegistry(self._home)
        self._runtime = Path()
        self._cluster = ""
        self._client: ApiClient | None = None
        self._creator: PodCreator | None = None
        self._pods: dict[str, Watcher[Pod]] = {}
        self._nodes: Watcher[ApiNode] | None = None
        # What all pods, also those of others, request of the nodes.
        self._bound = BoundPods()
        self._room = RoomNotifier()
        # Pods as they were last seen, of attempts that have not been cleaned up.
        self._last_seen: dict[str, Pod] = {}
        # Attempts to look at, and those that are looked at now.
        self._dirty: dict[str, None] = {}
        self._woken = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        self._deletions: Deletions | None = None
        # Attempts that have ended, whose pods had not when that was seen, and until when these may take.
        self._lingering: dict[str, float] = {}
        self._comparison = PodComparison(self._home, options.image_timeout_s, self._is_node_lost)
        self.reports = KubernetesReportSink(self._home, options, self._files, self._reported)

    # -- lifecycle -----------------------------------------------------------------------------

    async def start(self, hint: Hint, notify: Notify = ignore_notice) -> None:
        self._hint, self._notify = hint, notify
        for folder in (self._home.root, self._home.tasks, self._home.gangs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._cluster = gang_folder.cluster_id(self._home)
        self._runtime = await self._in_files(
            lambda: runtime_install.install(self._home.root / "runtime", self._ca_certificates)
        )
        self._client = client = ApiClient(self._access)
        self._deletions = Deletions(client)
        self._creator = PodCreator(
            client,
            self._is_startable,
            self._reject,
            self._notify_gang,
            self._withdraw,
            self._options.gang_timeout_s,
        )
        selector = f"{pod_manifest.CLUSTER_LABEL}={self._cluster}"
        for namespace in self._options.namespaces():
            path = f"/api/v1/namespaces/{namespace}/pods"
            self._pods[namespace] = Watcher(client, path, Pod, self._pod_changed, selector=selector)
        self._nodes = Watcher(client, "/api/v1/nodes", ApiNode, self._node_changed)
        all_pods = Watcher(
            client, "/api/v1/pods", BoundPod, self._bound_changed, fields=BOUND_PODS, is_of_all=True
        )
        watches = [watcher.run for watcher in self._pods.values()]
        for each in (*watches, self._nodes.run, all_pods.run, self._process):
            self._running.append(asyncio.create_task(restart_on_error(each, log)))
        for leader in await self._in_files(lambda: list(gang_folder.all_gangs(self._home))):
            gang = self._gangs.load(leader)
            if gang is not None:
                self._adopt(gang)
        try:
            async with asyncio.timeout(_FIRST_LIST_TIMEOUT_S):
                for watcher in self._pods.values():
                    await watcher.synced.wait()
                if not self._nodes.problem:
                    await self._nodes.synced.wait()
        except TimeoutError:
            log.warning("Kubernetes does not respond; the engine goes on without it.")

    async def close(self) -> None:
        self._room.close()
        if self._creator is not None:
            await self._creator.close()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._deletions is not None:
            await self._deletions.close()
        if self._client is not None:
            await self._client.close()
        self._files.shutdown()

    # -- reading -------------------------------------------------------------------------------

    def nodes(self) -> Sequence[Node]:
        if self._nodes is None:
            return ()
        return nodes.usable_nodes(self._nodes.objects.values(), self._options.all_pods())

    def pool_of(self, vc: str) -> str:
        return self._options.pods_of(vc).pool

    def free_nodes(self, pool: str) -> FreeNodes | None:
        if self._nodes is None:
            return FreeNodes((), frozenset())
        if not self._nodes.synced.is_set() and self._nodes.problem:
            return None
        settings = next(one for one in self._options.all_pods() if one.pool == pool)
        counted = {
            name
            for watcher in self._pods.values()
            for name, pod in watcher.objects.items()
            if pod.spec.node_name
        }
        return free_nodes(self._nodes.objects.values(), settings, self._bound, counted)

    def on_change(self, listener: Callable[[], None]) -> None:
        self._room.add(listener)

    async def refresh_nodes(self) -> None:
        """They are watched."""

    def notices(self) -> Sequence[Notice]:
        return ()

    def ports_free(self, node: str, ports: Sequence[int], *, non_ephemeral: bool) -> bool:
        """Always true: a pod has an address, and all ports, of its own."""
        return True

    def has(self, uid: str) -> bool:
        return self._home.task(uid).exists()

    def log_folder(self, uid: str) -> Path:
        return self._home.task(uid)

    def may_stall(self, uid: str) -> bool:
        return False

    async def log_tail(self, uid: str, size: int) -> bytes:
        written = LogReader(self.log_folder(uid), "all")
        return await self._in_files(lambda: written.last(size))

    async def observe(self, uids: Sequence[str]) -> dict[str, Observation]:
        seen = await self._in_files(lambda: {uid: self._observe(uid) for uid in uids})
        for uid, observation in seen.items():
            if observation.phase in (Phase.ENDED, Phase.LOST):
                self._look_at(uid)
        return seen

    def _observe(self, uid: str) -> Observation:
        if not self.has(uid):
            return ABSENT
        path = self._home.task(uid)
        gang = self._home.gang(self._home.leader_of(uid) or uid)
        seen = observe.observe_attempt(
            path,
            is_prepared=(gang / gang_folder.GANG).exists(),
            reason_timeout_s=self._options.reason_timeout_s,
        )
        if seen.phase in (Phase.ENDED, Phase.LOST):
            attempts.remove_secrets(path)
        return seen

    def _is_startable(self, uid: str) -> bool:
        path = self._home.task(uid)
        return not os.path.lexists(path / claim.NAME) and not (path / gang_folder.VERDICT).exists()

    # -- writing -------------------------------------------------------------------------------

    async def launch(self, gang: Sequence[TaskLaunch]) -> None:
        if self._gangs.of(gang[0].uid) is not None:
            return
        if gang[0].storage_mounts or gang[0].mounts:
            raise LaunchFailed(
                "Storages cannot be mounted in pods yet: use their addresses in the job's commands.",
                transient=False,
            )
        await self._in_files(lambda: self._prepare(gang))
        prepared = self._gangs.find(gang[0].uid)
        if prepared is not None:
            self._adopt(prepared)

    def _prepare(self, gang: Sequence[TaskLaunch]) -> None:
        first = gang[0]
        folder = self._home.gang(first.uid)
        if gang_folder.description_of(folder) is not None:
            return
        settings = self._options.pods_of(first.vc)
        context = pod_manifest.PodContext(self._cluster, first.uid, settings, self._options, self._grace_s)
        ticket = secrets.token_urlsafe(32)
        bootstrap = gang_folder.bootstrap_text(self._url, self._ca_certificates, ticket, first.uid)
        made = [pod_manifest.secret_manifest(context, bootstrap)]
        if first.login is not None and first.image:
            made.append(pod_manifest.login_manifest(context, first.image, first.login))
        gang_folder.prepare(
            self._home,
            gang,
            self._options,
            self._runtime,
            ticket=ticket,
            namespace=settings.namespace,
            pool=settings.pool,
            manifests={
                "secrets": made,
                "pods": [pod_manifest.pod_manifest(task, context) for task in gang],
            },
            grace_s=self._grace_s,
        )

    def _adopt(self, gang: KubernetesGang) -> None:
        """Take over a gang that is new, or that an earlier server left."""
        assert self._creator is not None
        if any(map(self._is_startable, gang.members)):
            self._creator.add(gang)
            # A pod that already exists may have changed before the watch began.
        else:
            gang.is_created = True
        for uid in gang.members:
            self._look_at(uid)

    async def stop(self, uids: Sequence[str], grace_s: float) -> None:
        await self._in_files(lambda: self._request_stops(uids, grace_s))
        for uid in uids:
            self._look_at(uid)
            self._hint(uid)

    def _request_stops(self, uids: Sequence[str], grace_s: float) -> None:
        for uid in uids:
            path = self._home.task(uid)
            if not os.path.lexists(path / exit_record.NAME):
                gang_folder.request_stop(path, uid, grace_s)

    async def remove(self, uids: Sequence[str]) -> None:
        for uid in uids:
            gang = self._gangs.find(uid)
            if gang is not None:
                await self._clean_up(gang, force=True)
            self._last_seen.pop(uid, None)
            await asyncio.to_thread(self._home.remove, uid)

    async def sizes(self) -> dict[str, int]:
        return await asyncio.to_thread(attempts.sizes, self._home.tasks)

    # -- changes -------------------------------------------------------------------------------

    def _reported(self, uid: str) -> None:
        self._look_at(uid)
        self._hint(uid)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        name = pod.metadata.name
        self._last_seen[name] = pod
        takes = new is not None and not pod_states.has_finished(new)
        self._put_bound(pod.metadata, pod.spec if takes else None)
        gang = self._gangs.of(name)
        if gang is not None and not self._pods[gang.namespace].objects.keys() & set(gang.members):
            gang.absent.set()
        self._look_at(name)

    def _bound_changed(self, old: BoundPod | None, new: BoundPod | None) -> None:
        pod = new or old
        assert pod is not None
        self._put_bound(pod.metadata, None if new is None else new.spec)

    def _put_bound(self, metadata: Metadata, spec: ApiPodSpec | None) -> None:
        if self._bound.put(f"{metadata.namespace}/{metadata.name}", spec):
            self._room.notify()

    def _node_changed(self, old: ApiNode | None, new: ApiNode | None) -> None:
        if not nodes.has_same_room(old, new):
            self._room.notify()
        if nodes.is_lost(new) and not nodes.is_lost(old):
            name = (new or old).metadata.name  # type: ignore[union-attr]
            for uid, pod in self._last_seen.items():
                if pod.spec.node_name == name:
                    self._look_at(uid)

    def _look_at(self, uid: str) -> None:
        self._dirty[uid] = None
        self._woken.set()

    async def _process(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._dirty:
                uid = next(iter(self._dirty))
                del self._dirty[uid]
                try:
                    await self._handle(uid)
                except OSError as error:
                    log.warning("The task %s cannot be processed: %s", uid, error)
                    asyncio.get_running_loop().call_later(RESTART_DELAY_S, self._look_at, uid)

    async def _handle(self, uid: str) -> None:
        """Compare the pod of an attempt with what is known of it, and act on the difference."""
        gang = await self._in_files(lambda: self._gangs.find(uid))
        if gang is None:
            self._sweep(uid)
            return
        watcher = self._pods.get(gang.namespace)
        if watcher is None or not watcher.synced.is_set():
            if watcher is not None and watcher.problem:
                self._notify_gang(gang, unavailable(watcher.problem))
            return
        seen = await self._seen(uid, gang, watcher)
        changed = await self._in_files(lambda: self._comparison.compare(uid, gang, seen))
        pod = seen.pod
        if changed:
            await self._explain(gang)
            self._hint(uid)
        has_ended = await self._in_files(lambda: self._has_ended(uid))
        gang.note(uid, is_scheduled=pod is not None and pod_states.is_scheduled(pod), has_ended=has_ended)
        if has_ended:
            gang.live.discard(uid)
            self._delete_ended(uid, gang, pod)
            await self._clean_up(gang)
        elif pod is not None:
            self._delete_stopped(uid, gang, pod)
            notice = pod_states.pending_notice(pod)
            if notice is not None:
                self._notify_gang(gang, notice)

    async def _explain(self, gang: KubernetesGang) -> None:
        """Error output of the runtime itself: an attempt that never started has no log."""
        text = await self._in_files(lambda: gang_folder.diagnostics_of(gang.folder))
        if text:
            self._notify_gang(gang, Notice("PodRuntimeFailed", text, "Warning"))

    async def _seen(self, uid: str, gang: KubernetesGang, watcher: Watcher[Pod]) -> SeenPod:
        # All at one moment: a pod that is seen only after this was not deleted.
        pod = watcher.objects.get(uid)
        last = pod or (None if gang.is_withdrawing else self._last_seen.get(uid))
        if pod is not None or last is not None:
            return SeenPod(pod, last, is_gone=pod is None)
        # It may have been deleted while no server ran, or the watch may not have reported it yet.
        is_gone = await self._in_files(lambda: self._comparison.is_claimed_only(uid))
        if is_gone:
            is_gone = await self._is_absent(uid, gang)
        return SeenPod(None, None, is_gone)

    async def _is_absent(self, uid: str, gang: KubernetesGang) -> bool:
        assert self._client is not None
        try:
            await self._client.request("GET", f"/api/v1/namespaces/{gang.namespace}/pods/{uid}")
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return True
        except (ApiUnavailable, ConfigError):
            pass
        asyncio.get_running_loop().call_later(_ABSENCE_INTERVAL_S, self._look_at, uid)
        return False

    def _is_node_lost(self, name: str | None) -> bool:
        if self._nodes is None or not self._nodes.synced.is_set() or not name:
            return False
        return nodes.is_lost(self._nodes.objects.get(name))

    def _has_ended(self, uid: str) -> bool:
        return self._observe(uid).phase in (Phase.ENDED, Phase.LOST)

    # -- deleting ------------------------------------------------------------------------------

    def _delete_ended(self, uid: str, gang: KubernetesGang, pod: Pod | None) -> None:
        """The pod of an attempt that has ended: when its containers have, or after a while."""
        if pod is None:
            return
        is_unclaimed = pod_states.terminated(pod, pod_manifest.RUNTIME) is None and not os.path.lexists(
            self._home.task(uid) / exit_record.NAME
        )
        now = time.monotonic()
        if pod_states.has_finished(pod) or is_unclaimed or now >= self._lingering.get(uid, math.inf):
            self._delete_object(f"/api/v1/namespaces/{gang.namespace}/pods/{uid}", grace_s=0)
        elif uid not in self._lingering:
            self._lingering[uid] = now + _LINGER_S
            # A little later: timers are not exact.
            asyncio.get_running_loop().call_later(_LINGER_S + 0.05, self._look_at, uid)

    def _delete_stopped(self, uid: str, gang: KubernetesGang, pod: Pod) -> None:
        """The pod of an attempt that was asked to stop: its runtime gets SIGTERM, and asks us."""
        request = untrusted_files.read_json(self._home.task(uid) / attempt.STOP)
        if request is None or pod.metadata.deletion_timestamp:
            return
        grace_s = request.get("grace_s")
        if not isinstance(grace_s, int | float):
            grace_s = self._grace_s
        self._delete_object(
            f"/api/v1/namespaces/{gang.namespace}/pods/{uid}", grace_s=int(grace_s) + self._options.drain_s
        )

    async def _withdraw(self, gang: KubernetesGang) -> None:
        """Delete the pods of a gang that are not all scheduled; they are created again later."""
        watcher = self._pods[gang.namespace]
        gang.is_withdrawing = True
        gang.absent.clear()
        try:
            for uid in gang.members:
                if uid in watcher.objects and not os.path.lexists(self._home.task(uid) / claim.NAME):
                    await self._delete_object(f"/api/v1/namespaces/{gang.namespace}/pods/{uid}", grace_s=0)
            if watcher.objects.keys() & set(gang.members):
                await gang.absent.wait()
            for uid in gang.members:
                self._last_seen.pop(uid, None)
            self.reports.forget(gang.uid)
            gang.scheduled.clear()
            gang.settled.clear()
        finally:
            gang.is_withdrawing = False
        count = len(gang.members)
        text = (
            f"The {count} tasks could not all get a node in time; none holds one, and they are tried again."
        )
        self._notify_gang(gang, Notice("GangWithdrawn", text, "Warning", pending=True))

    async def _clean_up(self, gang: KubernetesGang, *, force: bool = False) -> None:
        """Delete the Secrets of a gang whose pods are gone, and forget it."""
        watcher = self._pods.get(gang.namespace)
        present = set() if watcher is None else watcher.objects.keys() & set(gang.members)
        assert self._creator is not None and self._deletions is not None
        if not force and (gang.live or present or self._creator.is_creating(gang.uid)):
            return
        prefix = f"/api/v1/namespaces/{gang.namespace}"
        paths = [f"{prefix}/pods/{uid}" for uid in present]
        paths += [
            f"{prefix}/secrets/{name}"
            for name in (pod_manifest.secret_name(gang.uid), pod_manifest.login_name(gang.uid))
            if name == gang.uid or any(login for _, login in gang.images.values())
        ]
        self._gangs.forget(gang)
        self.reports.forget(gang.uid)
        for uid in gang.members:
            self._last_seen.pop(uid, None)
            self._lingering.pop(uid, None)
        deletions = [self._deletions.delete(path, grace_s=0) for path in paths]

        async def finish() -> None:
            await asyncio.gather(*deletions)
            await self._in_files(lambda: _mark_removed(gang.folder))

        self._deletions.run(f"gang {gang.uid}", finish())

    def _sweep(self, uid: str) -> None:
        """Delete a pod with our label that no attempt here has."""
        for namespace, watcher in self._pods.items():
            if uid in watcher.objects:
                self._delete_object(f"/api/v1/namespaces/{namespace}/pods/{uid}", grace_s=0)
            elif watcher.synced.is_set():
                self._last_seen.pop(uid, None)

    def _delete_object(self, path: str, *, grace_s: int) -> asyncio.Task[None]:
        assert self._deletions is not None
        return self._deletions.delete(path, grace_s=grace_s)

    # -- notices -------------------------------------------------------------------------------

    def _notify_gang(self, gang: KubernetesGang, notice: Notice) -> None:
        """Send a notice once per gang, and only if it changed."""
        if gang.last_notice != notice.message:
            gang.last_notice = notice.message
            self._notify(next(iter(gang.live), gang.uid), notice)

    def _reject(self, uid: str, verdict: Verdict) -> None:
        gang_folder.write_verdict(self._home.task(uid), verdict)
        self._look_at(uid)
        self._hint(uid)

    async def _in_files(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._files, work)


def _mark_removed(folder: Path) -> None:
    """Nothing is left in Kubernetes: what was needed to create it again has secrets."""
    if folder.exists():
        write_report(folder / gang_folder.REMOVED, "")
        for name in (gang_folder.MANIFESTS, TICKET):
            (folder / name).unlink(missing_ok=True)
