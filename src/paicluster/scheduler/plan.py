"""Scheduling plan: which jobs start, where, which are preempted, and why the others stay pending.

Each virtual cluster has a quota. Within it, higher priority classes come first; within a class, the user with
the smallest dominant share (DRF), unless another user is starved; for one user, the oldest job.

Conservative backfill: a later job may start before a blocked one only if it takes none of the resources the
blocked job is waiting for.

Borrowing: resources that are then still idle go to virtual clusters whose maximum capacity is above their
quota. They are returned when the borrowing jobs finish.

Preemption: opportunistic jobs come last and use whatever is idle; jobs on their quota preempt them.

Quotas of users and groups: a job that exceeds one waits, and holds up neither other users nor smaller jobs of
its own user.

Delegation: jobs of virtual clusters with an external scheduler are passed on at once, in order.

Admission: nodes that another scheduler fills are a pool of their own. This plan says when a job starts there,
by what is free now; the other scheduler says where.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paicluster.scheduler.fair_share import FairShare, Outcome
from paicluster.scheduler.pending_jobs import PRIORITY_CLASSES, PendingJobs
from paicluster.scheduler.placement import NodeCapacity, TaskPlacement, place_tasks
from paicluster.scheduler.preemption import PreemptibleJob, Preemption
from paicluster.scheduler.quota_limits import HeldResources, QuotaLimit, QuotaUsage
from paicluster.scheduler.resource_requests import ResourceRequest, Resources
from paicluster.scheduler.shortage import compare, explain_shortage, never_fits

OPPORTUNISTIC = "oppo"
_UNLIMITED = 1 << 30


@dataclass(frozen=True, slots=True)
class AdmissionPool:
    """Nodes that another scheduler fills when our plan says so, and the virtual clusters that use them."""

    virtual_clusters: frozenset[str]
    nodes: Sequence[NodeCapacity]
    preemptible: Sequence[PreemptibleJob] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the planner knows."""

    nodes: Sequence[NodeCapacity]
    # Quota of each virtual cluster, and what its jobs (except opportunistic ones) have allocated.
    quotas: Mapping[str, Resources]
    used: Mapping[str, Resources]
    # Maximum capacity of virtual clusters that may borrow idle resources above their quota.
    max_capacities: Mapping[str, Resources] = field(default_factory=dict)
    # Allocations of each user, all jobs together.
    used_by_user: Mapping[str, Resources] = field(default_factory=dict)
    # Quotas that limit a user: the user's own and those of groups; only of users that have any.
    user_quotas: Mapping[str, tuple[QuotaLimit, ...]] = field(default_factory=dict)
    # Tasks of each user, those of external schedulers included.
    running: Mapping[str, HeldResources] = field(default_factory=dict)
    # (virtual cluster, user) pairs that are starved; each gets one job scheduled first.
    starved: frozenset[tuple[str, str]] = frozenset()
    # Latest started first: they lose the least work.
    preemptible: Sequence[PreemptibleJob] = ()
    # Jobs without a gang: the task indexes of each role still to be started, and how many may start now.
    partial: Mapping[int, tuple[tuple[tuple[int, ...], ...], int]] = field(default_factory=dict)
    # Virtual clusters with an external scheduler.
    self_scheduling: frozenset[str] = frozenset()
    # Virtual clusters whose jobs start in the pools only; one that is in no pool has to wait.
    admitted: frozenset[str] = frozenset()
    # A node may be in several pools.
    pools: Sequence[AdmissionPool] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """A job starts with these tasks; of an admission pool they have no nodes."""

    job_id: int
    placements: tuple[TaskPlacement, ...]


@dataclass(frozen=True, slots=True)
class Pending:
    """A job stays pending for this reason. ``unschedulable``: it would not fit on an empty cluster either."""

    job_id: int
    reason: str
    unschedulable: bool = False


@dataclass(frozen=True, slots=True)
class Preempt:
    """An opportunistic job is preempted by another job."""

    job_id: int
    preemptor: int


Decision = Start | Pending | Preempt


def plan(snapshot: Snapshot, pending: PendingJobs) -> list[Decision]:
    user_quotas = QuotaUsage(snapshot.user_quotas, snapshot.running)
    decisions = _Planner(snapshot, pending, user_quotas, lambda vc: vc not in snapshot.admitted).run()
    planned: dict[str, NodeCapacity] = {}
    for pool in snapshot.pools:
        nodes = [planned.get(node.name, node) for node in pool.nodes]
        part = replace(snapshot, nodes=nodes, preemptible=pool.preemptible)
        planner = _Planner(part, pending, user_quotas, pool.virtual_clusters.__contains__)
        decisions += map(_without_nodes, planner.run())
        planned.update((node.name, node) for node in planner.nodes)
    return decisions


def _without_nodes(decision: Decision) -> Decision:
    if not isinstance(decision, Start):
        return decision
    return Start(decision.job_id, tuple(replace(each, node="", gpus=()) for each in decision.placements))


class _Planner:
    """Plan of the virtual clusters that ``handles`` names, on the nodes of the snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        pending: PendingJobs,
        user_quotas: QuotaUsage,
        handles: Callable[[str], bool],
    ):
        """``user_quotas`` includes what earlier planners of the same plan have started."""
        self._snapshot = snapshot
        self._pending = pending
        self._handles = handles
        self._nodes = [node.copy() for node in snapshot.nodes]
        self._empty_nodes = [node.empty_copy() for node in snapshot.nodes]
        self._total = Resources()
        for node in snapshot.nodes:
            self._total = self._total.plus(node.total)
        self._used = dict(snapshot.used)
        self._preemption = Preemption(snapshot.preemptible)
        # The maximum that blocked jobs request: per virtual cluster, on its quota and when borrowing; and
        # over all jobs that lack free resources only, those on their quota and those that borrow.
        self._blocked_on_quota: dict[str, Resources] = {}
        self._blocked_borrowing: dict[str, Resources] = {}
        self._owners_blocked = Resources()
        self._borrowers_blocked = Resources()
        self._fair_share = FairShare(self._total, snapshot.used_by_user, snapshot.starved)
        self._user_quotas = user_quotas
        self._borrowers: set[int] = set()
        self._reported_pending: set[int] = set()
        self._decisions: list[Decision] = []

    @property
    def nodes(self) -> Sequence[NodeCapacity]:
        """With what the plan leaves free."""
        return self._nodes

    def run(self) -> list[Decision]:
        for priority_class in PRIORITY_CLASSES:
            opportunistic = priority_class == OPPORTUNISTIC
            if opportunistic:
                self._schedule_borrowers()
            handler = self._schedule_opportunistic if opportunistic else self._schedule_on_quota
            for vc in filter(self._handles, self._pending.virtual_clusters(priority_class)):
                self._fair_share.serve(self._pending, vc, priority_class, handler)
        if not self._borrowers:
            return self._decisions
        # Jobs that were pending on their quota and then started by borrowing.
        return [
            decision
            for decision in self._decisions
            if not isinstance(decision, Pending) or decision.job_id not in self._borrowers
        ]

    def _schedule_borrowers(self) -> None:
        """Give idle resources to virtual clusters whose maximum capacity is above their quota."""
        if not self._snapshot.max_capacities:
            return
        self._reported_pending = {d.job_id for d in self._decisions if isinstance(d, Pending)}
        for priority_class in PRIORITY_CLASSES:
            if priority_class == OPPORTUNISTIC:
                continue
            for vc in filter(self._handles, self._pending.virtual_clusters(priority_class)):
                if (
                    not self._max_capacity(vc).fits(self._quota(vc))
                    and vc not in self._snapshot.self_scheduling
                ):
                    self._fair_share.serve(self._pending, vc, priority_class, self._schedule_borrowed)

    def _quota(self, vc: str) -> Resources:
        return self._snapshot.quotas.get(vc, Resources())

    def _max_capacity(self, vc: str) -> Resources:
        return self._snapshot.max_capacities.get(vc, self._quota(vc))

    def _left(self, vc: str, capacity: Resources) -> Resources:
        return capacity.minus(self._used.get(vc, Resources()))

    # -- handlers of one job -------------------------------------------------------------------

    def _schedule_on_quota(self, vc: str, user: str, job_id: int, request: ResourceRequest) -> Outcome:
        """Start a job on the quota of its virtual cluster."""
        if vc in self._snapshot.self_scheduling:
            return self._delegate(user, job_id, request)
        if self._is_skipped(vc, job_id, request, self._max_capacity(vc)):
            return Outcome.HANDLED
        if self._is_over_user_quota(user, job_id, request):
            return Outcome.USER_BLOCKED
        quota = self._quota(vc)
        remaining = self._left(vc, quota)
        placements = self._place(
            user,
            job_id,
            request,
            remaining,
            lambda resources: self._backfill_would_delay_quota(resources, vc),
        )
        if placements:
            self._start(vc, user, job_id, request, placements, preemptible=False)
            return Outcome.HANDLED
        self._decisions.append(Pending(job_id, self._reason(vc, request, remaining, preemptible=False)))
        # A job that requests more than the quota waits for borrowed resources and must not block the quota.
        if request.minimum.fits(quota):
            _raise(self._blocked_on_quota, vc, request.minimum)
            if request.minimum.fits(remaining):
                self._owners_blocked = _max(self._owners_blocked, request.minimum)
                self._preempt_for(vc, job_id, request)
        return Outcome.SHAPE_BLOCKED

    def _schedule_borrowed(self, vc: str, user: str, job_id: int, request: ResourceRequest) -> Outcome:
        """Start a job on idle resources of other virtual clusters."""
        if self._startable_tasks(job_id) <= 0:
            return Outcome.HANDLED
        if self._is_over_user_quota(user, job_id, request):
            return Outcome.USER_BLOCKED
        remaining = self._left(vc, self._max_capacity(vc))
        placements = self._place(
            user,
            job_id,
            request,
            remaining,
            lambda resources: self._backfill_would_delay_owners(resources, vc),
        )
        if not placements:
            _raise(self._blocked_borrowing, vc, request.minimum)
            if request.minimum.fits(remaining):
                self._borrowers_blocked = _max(self._borrowers_blocked, request.minimum)
            # Not reported yet: the job before it of the same shape was, and then started by borrowing.
            if job_id not in self._reported_pending:
                self._decisions.append(
                    Pending(job_id, self._reason(vc, request, remaining, preemptible=False))
                )
            return Outcome.SHAPE_BLOCKED
        self._borrowers.add(job_id)
        self._start(vc, user, job_id, request, placements, preemptible=False)
        return Outcome.HANDLED

    def _schedule_opportunistic(self, vc: str, user: str, job_id: int, request: ResourceRequest) -> Outcome:
        """Start a job on any idle resources; jobs on their quota may preempt it later."""
        if vc in self._snapshot.self_scheduling:
            return self._delegate(user, job_id, request)
        if self._is_skipped(vc, job_id, request, self._total):
            return Outcome.HANDLED
        if self._is_over_user_quota(user, job_id, request):
            return Outcome.USER_BLOCKED
        placements = self._place(user, job_id, request, self._total, self._backfill_would_delay_any)
        if placements:
            self._start(vc, user, job_id, request, placements, preemptible=True)
            return Outcome.HANDLED
        self._decisions.append(Pending(job_id, self._reason(vc, request, self._total, preemptible=True)))
        return Outcome.SHAPE_BLOCKED

    def _is_skipped(self, vc: str, job_id: int, request: ResourceRequest, capacity: Resources) -> bool:
        """Whether the plan skips this job; the next job of its shape is then tried."""
        reason = self._unschedulable_reason(vc, capacity, request)
        if reason:
            self._decisions.append(Pending(job_id, reason, unschedulable=True))
        # Else: its limit of concurrent tasks is reached.
        return bool(reason) or self._startable_tasks(job_id) <= 0

    def _startable_tasks(self, job_id: int) -> int:
        return self._snapshot.partial.get(job_id, ((), 1))[1]

    def _is_over_user_quota(self, user: str, job_id: int, request: ResourceRequest) -> bool:
        """Whether a quota of the user or of a group blocks the job now; that is then its pending reason."""
        reason = self._user_quotas.pending_reason(user, request)
        if reason and job_id not in self._reported_pending:
            self._decisions.append(Pending(job_id, reason))
        return bool(reason)

    def _delegate(self, user: str, job_id: int, request: ResourceRequest) -> Outcome:
        """Pass a job on to its external scheduler: tasks without nodes."""
        if self._is_over_user_quota(user, job_id, request):
            return Outcome.USER_BLOCKED
        unstarted, limit = self._unstarted(job_id, request)
        # A gang has passed its quotas as a whole.
        remaining = None if request.gang else self._user_quotas.remaining(user)
        started: list[TaskPlacement] = []
        for role, indexes in zip(request.roles, unstarted, strict=True):
            task = HeldResources(1, *role.each)
            for index in indexes:
                if len(started) >= limit or (remaining is not None and not task.fits(remaining)):
                    break
                started.append(TaskPlacement(role.role, index, "", ()))
                remaining = remaining.minus(task) if remaining is not None else None
        if started:
            self._user_quotas.add(user, _running(request, started))
            self._decisions.append(Start(job_id, tuple(started)))
        return Outcome.HANDLED

    def _unstarted(self, job_id: int, request: ResourceRequest) -> tuple[tuple[Sequence[int], ...], int]:
        """Task indexes of each role still to be started, and how many of them may start."""
        every = tuple(range(role.instances) for role in request.roles)
        return self._snapshot.partial.get(job_id, (every, request.limit or _UNLIMITED))

    def _unschedulable_reason(self, vc: str, capacity: Resources, request: ResourceRequest) -> str:
        """Why a job could not start even on an empty cluster; empty if it could."""
        misfit = never_fits(self._empty_nodes, vc, capacity, request)
        return misfit.reason if misfit else ""

    def _place(
        self,
        user: str,
        job_id: int,
        request: ResourceRequest,
        capacity: Resources,
        would_delay: Callable[[Resources], bool],
    ) -> tuple[TaskPlacement, ...]:
        """Place a job within the capacity, without delaying a blocked one; empty if it cannot start."""
        nodes = [node.copy() for node in self._nodes]
        if request.gang:
            if not request.total.fits(capacity):
                return ()
            placements = place_tasks(nodes, request)
            if len(placements) < request.tasks or would_delay(request.total):
                return ()
            self._nodes = nodes
            return tuple(placements)
        unstarted, limit = self._unstarted(job_id, request)
        user_left = self._user_quotas.remaining(user)
        if user_left is not None:
            capacity = _min(capacity, user_left.resources)
            limit = min(limit, user_left.tasks)
        placed: list[TaskPlacement] = []
        for role, indexes in zip(request.roles, unstarted, strict=True):
            one_task = ResourceRequest((role._replace(instances=1),), gang=False)
            for index in indexes:
                if len(placed) >= limit or not role.each.fits(capacity) or would_delay(role.each):
                    break
                placements = place_tasks(nodes, one_task, [[index]])
                if not placements:
                    break
                placed += placements
                capacity = capacity.minus(role.each)
        if placed:
            self._nodes = nodes
        return tuple(placed)

    # -- backfill ------------------------------------------------------------------------------
    # Whether allocating these resources would delay a blocked job: a job that starts before it must take none
    # of what the blocked job lacks, and leave what it already has.

    def _backfill_would_delay_quota(self, resources: Resources, vc: str) -> bool:
        """Whether these resources would delay a blocked job of the vc that is within its quota."""
        if vc not in self._blocked_on_quota:
            return False
        available = _min(self._free(), self._left(vc, self._quota(vc)))
        return _would_delay(self._blocked_on_quota[vc], available, resources)

    def _backfill_would_delay_owners(self, resources: Resources, vc: str) -> bool:
        """Whether these resources would delay a job within its quota, or an earlier borrower of the vc."""
        free = self._free()
        if _would_delay(self._owners_blocked, free, resources):
            return True
        if vc not in self._blocked_borrowing:
            return False
        available = _min(free, self._left(vc, self._max_capacity(vc)))
        return _would_delay(self._blocked_borrowing[vc], available, resources)

    def _backfill_would_delay_any(self, resources: Resources) -> bool:
        """Any job that lacks free resources. Jobs of a virtual cluster whose quota is used up do not count:
        they could not use the resources anyway."""
        blocked = _max(self._owners_blocked, self._borrowers_blocked)
        return _would_delay(blocked, self._free(), resources)

    def _free(self) -> Resources:
        free = Resources()
        for node in self._nodes:
            free = free.plus(node.free)
        return free

    # -- decisions -----------------------------------------------------------------------------

    def _start(
        self,
        vc: str,
        user: str,
        job_id: int,
        request: ResourceRequest,
        placements: tuple[TaskPlacement, ...],
        *,
        preemptible: bool,
    ) -> None:
        running = _running(request, placements)
        if not preemptible:
            self._used[vc] = self._used.get(vc, Resources()).plus(running.resources)
        self._fair_share.add(vc, user, running.resources)
        self._user_quotas.add(user, running)
        self._decisions.append(Start(job_id, placements))

    def _preempt_for(self, vc: str, job_id: int, request: ResourceRequest) -> None:
        quota_left = self._left(vc, self._quota(vc))
        for victim in self._preemption.victims_for(vc, request, self._nodes, quota_left):
            self._decisions.append(Preempt(victim.job_id, job_id))

    def _reason(self, vc: str, request: ResourceRequest, remaining: Resources, *, preemptible: bool) -> str:
        shortage = explain_shortage(self._nodes, request)
        if shortage:
            return shortage
        if not preemptible and not request.minimum.fits(self._quota(vc)):
            numbers = compare(request, self._quota(vc), f"the quota of {vc} is {{}}")
            return (
                f"The job requests more than the quota of {vc}: it starts when enough resources are idle. "
                f"{numbers}"
            )
        if not preemptible and not request.minimum.fits(remaining):
            numbers = compare(request, remaining, "its quota has {} left")
            return f"The virtual cluster {vc} has used up its quota. {numbers}"
        return "An earlier job is waiting for the same resources."


def _running(request: ResourceRequest, placements: Sequence[TaskPlacement]) -> HeldResources:
    """Resources that these tasks of a job hold."""
    each = {role.role: role.each for role in request.roles}
    resources = Resources()
    for placement in placements:
        resources = resources.plus(each[placement.role])
    return HeldResources(len(placements), *resources)


def _min(one: Resources, other: Resources) -> Resources:
    return Resources(*map(min, one, other))


def _max(one: Resources, other: Resources) -> Resources:
    return Resources(*map(max, one, other))


def _raise(maximum: dict[str, Resources], vc: str, requested: Resources) -> None:
    maximum[vc] = _max(maximum[vc], requested) if vc in maximum else requested


def _would_delay(blocked: Resources, available: Resources, taken: Resources) -> bool:
    return any(
        take and have - take < needed for needed, have, take in zip(blocked, available, taken, strict=True)
    )
