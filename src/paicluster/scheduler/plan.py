"""Who starts next, where, who must give way, and why the others wait.

Each virtual cluster has a share of the whole. Within it, higher priorities come first; within a priority,
whoever of the users holds least; for one user, the oldest job. The first job that must wait holds its place:
others pass it only where they take nothing that it lacks. Opportunistic jobs come last, use whatever is idle,
and give way to those who have a right to it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paicluster.scheduler.needs import Amount, Need
from paicluster.scheduler.rooms import Room, TaskSeat, seat, why_not
from paicluster.scheduler.waiting import LEVELS, Waiting

OPPORTUNISTIC = "oppo"


@dataclass(frozen=True, slots=True)
class Guest:
    """A running opportunistic job: what it holds on each node. ``leaving``: it was told to give way."""

    job_id: int
    held: tuple[tuple[str, Amount, tuple[int, ...]], ...]
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is known when a pass begins."""

    rooms: Sequence[Room]
    # What each virtual cluster is entitled to, and what its jobs (but for opportunistic ones) hold now.
    shares: Mapping[str, Amount]
    used: Mapping[str, Amount]
    # What each user holds now, all jobs together.
    held_by: Mapping[str, Amount] = field(default_factory=dict)
    # Latest started first: they have least to lose.
    guests: Sequence[Guest] = ()
    # Tasks of jobs without a gang that wait: which indexes of each role, and how many may start now.
    partial: Mapping[int, tuple[tuple[tuple[int, ...], ...], int]] = field(default_factory=dict)
    # Virtual clusters whose engine finds the places itself: their jobs are handed over, in order, at once.
    self_scheduling: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Start:
    job_id: int
    seats: tuple[TaskSeat, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Why this job does not start. ``never``: not even on an empty cluster, as things are."""

    job_id: int
    reason: str
    never: bool = False


@dataclass(frozen=True, slots=True)
class Preempt:
    """This opportunistic job must give way to that one."""

    job_id: int
    for_job: int


Decision = Start | Wait | Preempt


def plan(snapshot: Snapshot, waiting: Waiting) -> list[Decision]:
    return _Pass(snapshot, waiting).run()


class _Pass:
    def __init__(self, snapshot: Snapshot, waiting: Waiting):
        self._snapshot = snapshot
        self._waiting = waiting
        self._rooms = [room.copy() for room in snapshot.rooms]
        self._empty = [room.emptied() for room in snapshot.rooms]
        self._whole = Amount()
        for room in snapshot.rooms:
            self._whole = self._whole.plus(room.total)
        self._used = dict(snapshot.used)
        self._held_by = dict(snapshot.held_by)
        self._guests = [guest for guest in snapshot.guests if not guest.leaving]
        # The first job of each virtual cluster that must wait, and what it lacks.
        self._blocked: dict[str, Need] = {}
        self._decisions: list[Decision] = []

    def run(self) -> list[Decision]:
        for level in LEVELS:
            for vc in self._waiting.clusters(level):
                self._serve(vc, level)
        return self._decisions

    def _serve(self, vc: str, level: str) -> None:
        """Start what can be started of one queue. A shape that failed is not tried again."""
        failed: set[Need] = set()
        queue: list[tuple[float, int, str, Need]] = []
        for user in self._waiting.users(vc, level):
            share = self._share(user)
            for job_id, need in self._waiting.shapes(vc, level, user):
                queue.append((share, job_id, user, need))
        # Tuples never compare by need: no two entries have the same job.
        heap = [(share, job_id, user, number) for number, (share, job_id, user, _) in enumerate(queue)]
        needs = [need for *_, need in queue]
        heapq.heapify(heap)
        while heap:
            share, job_id, user, number = heapq.heappop(heap)
            now = self._share(user)
            if now > share:  # something of this user's started meanwhile: back in line
                heapq.heappush(heap, (now, job_id, user, number))
                continue
            need = needs[number]
            if need in failed:
                continue
            if not self._try(vc, level, user, job_id, need):
                failed.add(need)
                continue
            following = self._waiting.after(vc, level, user, need, job_id)
            if following is not None:
                heapq.heappush(heap, (self._share(user), following, user, number))

    def _share(self, user: str) -> float:
        return self._held_by.get(user, Amount()).share_of(self._whole)

    def _try(self, vc: str, level: str, user: str, job_id: int, need: Need) -> bool:
        """Deal with one job. False: nothing of this shape can start in this pass."""
        if vc in self._snapshot.self_scheduling:
            self._hand_over(job_id, need)
            return True
        guest = level == OPPORTUNISTIC
        share = self._whole if guest else self._snapshot.shares.get(vc, Amount())
        never = self._never(vc, share, need)
        if never:
            self._decisions.append(Wait(job_id, never, never=True))
            return True  # it stands aside; the next of its shape says so too
        if self._snapshot.partial.get(job_id, ((), 1))[1] <= 0:
            return True  # as many of its tasks run as it allows itself
        used = Amount() if guest else self._used.get(vc, Amount())
        seats = self._seats(job_id, need, share.minus(used), vc, guest=guest)
        if seats:
            self._start(vc, user, job_id, need, seats, guest=guest)
            return True
        reason = self._reason(vc, need, share.minus(used), guest=guest)
        self._decisions.append(Wait(job_id, reason))
        if not guest:
            self._blocked.setdefault(vc, need)
            if need.smallest.fits(share.minus(used)):
                self._make_room(job_id, need)
        return False

    def _hand_over(self, job_id: int, need: Need) -> None:
        indexes, most = self._partial(job_id, need)
        seats = [
            TaskSeat(role.role, index, "", ())
            for role, wanted in zip(need.roles, indexes, strict=True)
            for index in wanted
        ]
        if most > 0 and seats:
            self._decisions.append(Start(job_id, tuple(seats[:most])))

    def _partial(self, job_id: int, need: Need) -> tuple[tuple[Sequence[int], ...], int]:
        """Which tasks of each role wait, and how many of them may start."""
        every = tuple(range(role.instances) for role in need.roles)
        return self._snapshot.partial.get(job_id, (every, need.limit or 1 << 30))

    def _never(self, vc: str, share: Amount, need: Need) -> str:
        """Why it could not start even on the empty cluster; nothing when it could."""
        seats = seat([room.copy() for room in self._empty], need)
        if len(seats) < (need.tasks if need.gang else 1):
            return why_not(self._empty, need)
        return (
            "" if need.smallest.fits(share) else f"The job asks for more than the virtual cluster {vc} has."
        )

    def _seats(self, job_id: int, need: Need, quota: Amount, vc: str, *, guest: bool) -> tuple[TaskSeat, ...]:
        """Where it could start now, within its quota and without delaying whoever waits longer."""
        left = [room.copy() for room in self._rooms]
        if need.gang:
            if not need.total.fits(quota):
                return ()
            seats = seat(left, need)
            if len(seats) < need.tasks or self._delays(need.total, vc, guest):
                return ()
            self._rooms = left
            return tuple(seats)
        indexes, most = self._partial(job_id, need)
        taken: list[TaskSeat] = []
        for role, wanted in zip(need.roles, indexes, strict=True):
            one = Need((role._replace(instances=1),), gang=False)
            for index in wanted:
                if len(taken) >= most or not role.each.fits(quota) or self._delays(role.each, vc, guest):
                    break
                seats = seat(left, one, [[index]])
                if not seats:
                    break
                taken += seats
                quota = quota.minus(role.each)
        if taken:
            self._rooms = left
        return tuple(taken)

    def _delays(self, amount: Amount, vc: str, guest: bool) -> bool:
        """Whether taking this would keep a job longer that waits in front.

        A job waits for what it lacks: whoever passes it must take nothing of that, and leave what it has.
        A guest must not delay anybody; others only those of their own virtual cluster.
        """
        free = Amount()
        for room in self._rooms:
            free = free.plus(room.free)
        fronts = list(self._blocked.values())
        if not guest:
            fronts = [self._blocked[vc]] if vc in self._blocked else []
            left = self._snapshot.shares.get(vc, Amount()).minus(self._used.get(vc, Amount()))
            free = Amount(*(min(has, may) for has, may in zip(free, left, strict=True)))
        for front in fronts:
            for wanted, has, taken in zip(front.smallest, free, amount, strict=True):
                if taken and has - taken < wanted:
                    return True
        return False

    def _start(
        self, vc: str, user: str, job_id: int, need: Need, seats: tuple[TaskSeat, ...], *, guest: bool
    ) -> None:
        each = {role.role: role.each for role in need.roles}
        amount = Amount()
        for taken in seats:
            amount = amount.plus(each[taken.role])
        if not guest:
            self._used[vc] = self._used.get(vc, Amount()).plus(amount)
        self._held_by[user] = self._held_by.get(user, Amount()).plus(amount)
        self._decisions.append(Start(job_id, seats))

    def _make_room(self, job_id: int, need: Need) -> None:
        """Ask as few guests as needed to give way to a job that has a right to what they hold."""
        rooms = {room.name: room.copy() for room in self._rooms}
        for guest in self._snapshot.guests:
            if guest.leaving:
                for node, amount, gpus in guest.held:
                    rooms[node].give_back(amount, gpus)
        wanted = need.tasks if need.gang else 1
        asked: list[Guest] = []
        while len(seat([room.copy() for room in rooms.values()], need)) < wanted:
            if len(asked) == len(self._guests):
                return  # even without any guest there is no room: asking them would help nobody
            guest = self._guests[len(asked)]
            asked.append(guest)
            for node, amount, gpus in guest.held:
                rooms[node].give_back(amount, gpus)
        for guest in asked:
            self._guests.remove(guest)
            self._decisions.append(Preempt(guest.job_id, job_id))

    def _reason(self, vc: str, need: Need, quota: Amount, *, guest: bool) -> str:
        shortage = why_not(self._rooms, need)
        if shortage:
            return shortage
        if not guest and not need.smallest.fits(quota):
            return f"The virtual cluster {vc} has all of its share in use."
        return "Another job that waits longer needs the same resources."
