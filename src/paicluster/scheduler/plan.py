"""Who starts next, where, who must give way, and why the others wait.

Each virtual cluster has a share of the whole. Within it, higher priorities come first; within a priority,
whoever of the users holds least, unless another has got nothing for too long; for one user, the oldest job.
Whoever must wait holds his place: others pass him only where they take nothing that he lacks. What then is
left idle is lent to virtual clusters that may have more than their share; it comes back when their jobs are
over. Opportunistic jobs come last, use whatever is idle, and give way to those who have a right to it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from paicluster.scheduler.node_capacity import NodeCapacity, TaskPlacement, explain_shortage, place_tasks
from paicluster.scheduler.pending_jobs import LEVELS, PendingJobs
from paicluster.scheduler.resource_requests import ResourceRequest, Resources

OPPORTUNISTIC = "oppo"


@dataclass(frozen=True, slots=True)
class PreemptibleJob:
    """A running opportunistic job: what it holds on each node. ``leaving``: it was told to give way."""

    job_id: int
    held: tuple[tuple[str, Resources, tuple[int, ...]], ...]
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is known when a pass begins."""

    nodes: Sequence[NodeCapacity]
    # What each virtual cluster is entitled to, and what its jobs (but for opportunistic ones) hold now.
    shares: Mapping[str, Resources]
    used: Mapping[str, Resources]
    # What a virtual cluster may hold when others leave it idle, where that is more than its share.
    limits: Mapping[str, Resources] = field(default_factory=dict)
    # What each user holds now, all jobs together.
    held_by: Mapping[str, Resources] = field(default_factory=dict)
    # Virtual clusters with users of whom nothing has started there for too long: they come first, once.
    overdue: frozenset[tuple[str, str]] = frozenset()
    # Latest started first: they have least to lose.
    guests: Sequence[PreemptibleJob] = ()
    # Tasks of jobs without a gang that wait: which indexes of each role, and how many may start now.
    partial: Mapping[int, tuple[tuple[tuple[int, ...], ...], int]] = field(default_factory=dict)
    # Virtual clusters whose engine finds the places itself: their jobs are handed over, in order, at once.
    self_scheduling: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Start:
    job_id: int
    placements: tuple[TaskPlacement, ...]


@dataclass(frozen=True, slots=True)
class Pending:
    """Why this job does not start. ``never``: not even on an empty cluster, as things are."""

    job_id: int
    reason: str
    never: bool = False


@dataclass(frozen=True, slots=True)
class Preempt:
    """This opportunistic job must give way to that one."""

    job_id: int
    for_job: int


Decision = Start | Pending | Preempt
# Deals with one job of a virtual cluster and a user: its number and what it needs.
_Deal = Callable[[str, str, int, ResourceRequest], bool]


def plan(snapshot: Snapshot, waiting: PendingJobs) -> list[Decision]:
    return _Planner(snapshot, waiting).run()


class _Planner:
    def __init__(self, snapshot: Snapshot, waiting: PendingJobs):
        self._snapshot = snapshot
        self._waiting = waiting
        self._rooms = [room.copy() for room in snapshot.nodes]
        self._empty = [room.emptied() for room in snapshot.nodes]
        self._whole = Resources()
        for room in snapshot.nodes:
            self._whole = self._whole.plus(room.total)
        self._used = dict(snapshot.used)
        self._held_by = dict(snapshot.held_by)
        self._guests = [guest for guest in snapshot.guests if not guest.leaving]
        # The most that any job needs which must wait: of each virtual cluster, on its share and on what
        # others leave idle; and of all that lack room alone, those with a right to it and those without.
        self._blocked: dict[str, Resources] = {}
        self._would_borrow: dict[str, Resources] = {}
        self._owners_lack = Resources()
        self._borrowers_lack = Resources()
        self._overdue = set(snapshot.overdue)
        # Jobs for which guests leave, and of which virtual cluster that is how much.
        self._asked: list[PreemptibleJob] = []
        self._promises: list[ResourceRequest] = []
        self._promised: dict[str, Resources] = {}
        self._lent_to: set[int] = set()
        self._said_to_wait: set[int] = set()
        self._decisions: list[Decision] = []

    def run(self) -> list[Decision]:
        for level in LEVELS:
            if level == OPPORTUNISTIC:
                self._schedule_borrowers()
            for vc in self._waiting.clusters(level):
                self._serve(
                    vc,
                    level,
                    self._schedule_opportunistic if level == OPPORTUNISTIC else self._schedule_on_quota,
                )
        if not self._lent_to:
            return self._decisions
        return [
            one for one in self._decisions if not isinstance(one, Pending) or one.job_id not in self._lent_to
        ]

    def _schedule_borrowers(self) -> None:
        """Give what is idle to virtual clusters whose limit is above their share."""
        if not self._snapshot.limits:
            return
        self._said_to_wait = {one.job_id for one in self._decisions if isinstance(one, Pending)}
        for level in LEVELS:
            if level == OPPORTUNISTIC:
                continue
            for vc in self._waiting.clusters(level):
                if not self._limit(vc).fits(self._entitled(vc)) and vc not in self._snapshot.self_scheduling:
                    self._serve(vc, level, self._schedule_borrowed)

    def _entitled(self, vc: str) -> Resources:
        return self._snapshot.shares.get(vc, Resources())

    def _limit(self, vc: str) -> Resources:
        return self._snapshot.limits.get(vc, self._entitled(vc))

    def _left(self, vc: str, most: Resources) -> Resources:
        return most.minus(self._used.get(vc, Resources()))

    def _serve(self, vc: str, level: str, deal_with: _Deal) -> None:
        """Start what can be started of one queue. A shape that failed is not tried again."""
        failed: set[ResourceRequest] = set()
        queue: list[tuple[float, int, str, ResourceRequest]] = []
        for user in self._waiting.users(vc, level):
            share = self._share(vc, user)
            for job_id, need in self._waiting.shapes(vc, level, user):
                queue.append((share, job_id, user, need))
        # Tuples never compare by need: no two entries have the same job.
        heap = [(share, job_id, user, number) for number, (share, job_id, user, _) in enumerate(queue)]
        needs = [need for *_, need in queue]
        heapq.heapify(heap)
        while heap:
            share, job_id, user, number = heapq.heappop(heap)
            now = self._share(vc, user)
            if now > share:  # something of this user's started meanwhile: back in line
                heapq.heappush(heap, (now, job_id, user, number))
                continue
            need = needs[number]
            if need in failed:
                continue
            if not deal_with(vc, user, job_id, need):
                failed.add(need)
                continue
            following = self._waiting.after(vc, level, user, need, job_id)
            if following is not None:
                heapq.heappush(heap, (self._share(vc, user), following, user, number))

    def _share(self, vc: str, user: str) -> float:
        if (vc, user) in self._overdue:
            return -1.0
        return self._held_by.get(user, Resources()).dominant_share(self._whole)

    # Each of these deals with one job. False: nothing of this shape can start in this pass.

    def _schedule_on_quota(self, vc: str, user: str, job_id: int, need: ResourceRequest) -> bool:
        """On the share of its virtual cluster."""
        if vc in self._snapshot.self_scheduling:
            self._delegate(job_id, need)
            return True
        if self._is_settled(vc, job_id, need, self._limit(vc)):
            return True
        share = self._entitled(vc)
        left = self._left(vc, share)
        seats = self._seats(job_id, need, left, lambda amount: self._backfill_would_delay_quota(amount, vc))
        if seats:
            self._start(vc, user, job_id, need, seats, guest=False)
            return True
        self._decisions.append(Pending(job_id, self._reason(vc, need, left, guest=False)))
        # One that needs more than the share waits for what others leave, and keeps nobody from the share.
        if need.smallest.fits(share):
            _raise(self._blocked, vc, need.smallest)
            if need.smallest.fits(left):
                self._owners_lack = _more(self._owners_lack, need.smallest)
                self._preempt_for(vc, job_id, need)
        return False

    def _schedule_borrowed(self, vc: str, user: str, job_id: int, need: ResourceRequest) -> bool:
        """On what others leave idle."""
        if self._snapshot.partial.get(job_id, ((), 1))[1] <= 0:
            return True
        left = self._left(vc, self._limit(vc))
        seats = self._seats(job_id, need, left, lambda amount: self._backfill_would_delay_owners(amount, vc))
        if not seats:
            _raise(self._would_borrow, vc, need.smallest)
            if need.smallest.fits(left):
                self._borrowers_lack = _more(self._borrowers_lack, need.smallest)
            if job_id not in self._said_to_wait:  # the one before it was, and then got something
                self._decisions.append(Pending(job_id, self._reason(vc, need, left, guest=False)))
            return False
        self._lent_to.add(job_id)
        self._start(vc, user, job_id, need, seats, guest=False)
        return True

    def _schedule_opportunistic(self, vc: str, user: str, job_id: int, need: ResourceRequest) -> bool:
        """On whatever is idle, until somebody with a right to it comes."""
        if vc in self._snapshot.self_scheduling:
            self._delegate(job_id, need)
            return True
        if self._is_settled(vc, job_id, need, self._whole):
            return True
        seats = self._seats(job_id, need, self._whole, self._backfill_would_delay_any)
        if seats:
            self._start(vc, user, job_id, need, seats, guest=True)
            return True
        self._decisions.append(Pending(job_id, self._reason(vc, need, self._whole, guest=True)))
        return False

    def _is_settled(self, vc: str, job_id: int, need: ResourceRequest, most: Resources) -> bool:
        """Whether there is nothing to be tried: it stands aside, and the next of its shape has its turn."""
        never = self._never(vc, most, need)
        if never:
            self._decisions.append(Pending(job_id, never, never=True))
        # Else: as many of its tasks run as it allows itself.
        return bool(never) or self._snapshot.partial.get(job_id, ((), 1))[1] <= 0

    def _delegate(self, job_id: int, need: ResourceRequest) -> None:
        indexes, most = self._partial(job_id, need)
        seats = [
            TaskPlacement(role.role, index, "", ())
            for role, wanted in zip(need.roles, indexes, strict=True)
            for index in wanted
        ]
        if most > 0 and seats:
            self._decisions.append(Start(job_id, tuple(seats[:most])))

    def _partial(self, job_id: int, need: ResourceRequest) -> tuple[tuple[Sequence[int], ...], int]:
        """Which tasks of each role wait, and how many of them may start."""
        every = tuple(range(role.instances) for role in need.roles)
        return self._snapshot.partial.get(job_id, (every, need.limit or 1 << 30))

    def _never(self, vc: str, most: Resources, need: ResourceRequest) -> str:
        """Why it could not start even on the empty cluster; nothing when it could."""
        seats = place_tasks([room.copy() for room in self._empty], need)
        if len(seats) < (need.tasks if need.gang else 1):
            return explain_shortage(self._empty, need)
        return "" if need.smallest.fits(most) else f"The job asks for more than the virtual cluster {vc} has."

    def _seats(
        self, job_id: int, need: ResourceRequest, quota: Resources, delays: Callable[[Resources], bool]
    ) -> tuple[TaskPlacement, ...]:
        """Where it could start now, within its quota and without delaying whoever waits longer."""
        left = [room.copy() for room in self._rooms]
        if need.gang:
            if not need.total.fits(quota):
                return ()
            seats = place_tasks(left, need)
            if len(seats) < need.tasks or delays(need.total):
                return ()
            self._rooms = left
            return tuple(seats)
        indexes, most = self._partial(job_id, need)
        taken: list[TaskPlacement] = []
        for role, wanted in zip(need.roles, indexes, strict=True):
            one = ResourceRequest((role._replace(instances=1),), gang=False)
            for index in wanted:
                if len(taken) >= most or not role.each.fits(quota) or delays(role.each):
                    break
                seats = place_tasks(left, one, [[index]])
                if not seats:
                    break
                taken += seats
                quota = quota.minus(role.each)
        if taken:
            self._rooms = left
        return tuple(taken)

    # Whether taking this would keep a job longer that waits in front: it waits for what it lacks, so whoever
    # passes it must take nothing of that, and leave what it has.

    def _backfill_would_delay_quota(self, amount: Resources, vc: str) -> bool:
        """Of the same virtual cluster, whose share is all that counts."""
        if vc not in self._blocked:
            return False
        has = _less(self._free(), self._left(vc, self._entitled(vc)))
        return _delays(self._blocked[vc], has, amount)

    def _backfill_would_delay_owners(self, amount: Resources, vc: str) -> bool:
        """Anybody who lacks room and not share; or one in the same place who came first."""
        free = self._free()
        if _delays(self._owners_lack, free, amount):
            return True
        if vc not in self._would_borrow:
            return False
        return _delays(self._would_borrow[vc], _less(free, self._left(vc, self._limit(vc))), amount)

    def _backfill_would_delay_any(self, amount: Resources) -> bool:
        """Anybody who lacks room. What a full virtual cluster leaves of it, its next jobs cannot have."""
        return _delays(_more(self._owners_lack, self._borrowers_lack), self._free(), amount)

    def _free(self) -> Resources:
        free = Resources()
        for room in self._rooms:
            free = free.plus(room.free)
        return free

    def _start(
        self,
        vc: str,
        user: str,
        job_id: int,
        need: ResourceRequest,
        seats: tuple[TaskPlacement, ...],
        *,
        guest: bool,
    ) -> None:
        each = {role.role: role.each for role in need.roles}
        amount = Resources()
        for taken in seats:
            amount = amount.plus(each[taken.role])
        if not guest:
            self._used[vc] = self._used.get(vc, Resources()).plus(amount)
        self._held_by[user] = self._held_by.get(user, Resources()).plus(amount)
        self._overdue.discard((vc, user))
        self._decisions.append(Start(job_id, seats))

    def _preempt_for(self, vc: str, job_id: int, need: ResourceRequest) -> None:
        """Ask as few guests as needed to give way to a job that has a right to what they hold."""
        promised = self._promised.get(vc, Resources()).plus(need.smallest)
        if not self._snapshot.guests or not promised.fits(self._left(vc, self._entitled(vc))):
            return  # what its share still allows is for those in front of it
        rooms = {room.name: room.copy() for room in self._rooms}
        leaving = [guest for guest in self._snapshot.guests if guest.leaving]
        for guest in (*leaving, *self._asked):
            _give_back(rooms, guest)
        for earlier in self._promises:
            place_tasks(list(rooms.values()), earlier)
        self._promised[vc] = promised
        self._promises.append(need if need.gang else _one_task(need))
        asked: list[PreemptibleJob] = []
        while not _seats_in(rooms, need):
            if len(asked) == len(self._guests):
                return  # even without any guest there is no room: asking them would help nobody
            guest = self._guests[len(asked)]
            asked.append(guest)
            _give_back(rooms, guest)
        for guest in reversed(asked[:-1]):  # some of them hold nothing that helps
            without = {name: room.copy() for name, room in rooms.items()}
            for node, amount, gpus in guest.held:
                without[node].take_back(amount, gpus)
            if _seats_in(without, need):
                asked.remove(guest)
                rooms = without
        for guest in asked:
            self._guests.remove(guest)
            self._asked.append(guest)
            self._decisions.append(Preempt(guest.job_id, job_id))

    def _reason(self, vc: str, need: ResourceRequest, quota: Resources, *, guest: bool) -> str:
        shortage = explain_shortage(self._rooms, need)
        if shortage:
            return shortage
        if not guest and not need.smallest.fits(self._entitled(vc)):
            return f"The job asks for more than the share of {vc}: it starts when others leave enough idle."
        if not guest and not need.smallest.fits(quota):
            return f"The virtual cluster {vc} has all of its share in use."
        return "Another job that waits longer needs the same resources."


def _less(one: Resources, other: Resources) -> Resources:
    return Resources(*map(min, one, other))


def _more(one: Resources, other: Resources) -> Resources:
    return Resources(*map(max, one, other))


def _raise(most: dict[str, Resources], vc: str, wanted: Resources) -> None:
    most[vc] = _more(most[vc], wanted) if vc in most else wanted


def _delays(front: Resources, has: Resources, taken: Resources) -> bool:
    return any(take and there - take < wanted for wanted, there, take in zip(front, has, taken, strict=True))


def _give_back(rooms: Mapping[str, NodeCapacity], guest: PreemptibleJob) -> None:
    for node, amount, gpus in guest.held:
        rooms[node].give_back(amount, gpus)


def _one_task(need: ResourceRequest) -> ResourceRequest:
    role = next(role for role in need.roles if role.each == need.smallest)
    return ResourceRequest((role._replace(instances=1),), gang=False)


def _seats_in(rooms: Mapping[str, NodeCapacity], need: ResourceRequest) -> bool:
    seats = place_tasks([room.copy() for room in rooms.values()], need)
    return len(seats) >= (need.tasks if need.gang else 1)
