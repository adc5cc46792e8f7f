"""Registry of unfinished gangs in memory; the folders are authoritative."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from paicluster.engines.common.gang_folders import GangFolders
from paicluster.engines.kubernetes import gang_folder


@dataclass(slots=True)
class KubernetesGang:
    """A gang and its pods."""

    uid: str
    folder: Path
    members: tuple[str, ...]
    namespace: str
    # Nodes that its pods compete for with those of other gangs.
    pool: str
    # By member: the image, and the user name for its registry.
    images: dict[str, tuple[str, str]] = field(default_factory=dict)
    # All pods exist, or existed.
    is_created: bool = False
    # Members whose pods have a node.
    scheduled: set[str] = field(default_factory=set)
    # Set when all have one, or have ended.
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    # Its pods are being deleted, to be created again later.
    is_withdrawing: bool = False
    # Set when the last of them is gone.
    absent: asyncio.Event = field(default_factory=asyncio.Event)
    # The last notice, to report each change once.
    last_notice: str = ""
    # Members not known to have ended.
    live: set[str] = field(default_factory=set)
    # Since when the image of a member could not be pulled.
    image_trouble_at: dict[str, float] = field(default_factory=dict)

    def manifests(self) -> str:
        return (self.folder / gang_folder.MANIFESTS).read_text()

    def note(self, uid: str, *, is_scheduled: bool, has_ended: bool) -> None:
        if is_scheduled or has_ended:
            self.scheduled.add(uid)
        if len(self.scheduled) == len(self.members):
            self.settled.set()

    def waited_for_image_s(self, uid: str) -> float:
        now = time.monotonic()
        return now - self.image_trouble_at.setdefault(uid, now)


class KubernetesGangRegistry:
    """Gangs by uid and by task."""

    def __init__(self, home: GangFolders):
        self._home = home
        self._by_uid: dict[str, KubernetesGang] = {}
        self._of_task: dict[str, KubernetesGang] = {}

    def __iter__(self) -> Iterator[KubernetesGang]:
        return iter(list(self._by_uid.values()))

    def of(self, uid: str) -> KubernetesGang | None:
        """The gang of a task, if it is known."""
        return self._of_task.get(uid)

    def find(self, uid: str) -> KubernetesGang | None:
        """The gang of a task, from its folder if necessary; None: there is none, or nothing is left of it."""
        known = self._of_task.get(uid)
        if known is not None:
            return known
        leader = self._home.leader_of(uid)
        return None if leader is None else self.load(leader)

    def load(self, leader: str) -> KubernetesGang | None:
        """A gang from its folder; None if it is not complete, or was removed from Kubernetes."""
        folder = self._home.gang(leader)
        description = gang_folder.description_of(folder)
        if description is None or (folder / gang_folder.REMOVED).exists():
            return None
        members = tuple(description["tasks"])
        images = dict(
            zip(members, zip(description["images"], description["logins"], strict=True), strict=True)
        )
        gang = KubernetesGang(
            leader, folder, members, description["namespace"], description["pool"], images, live=set(members)
        )
        self._by_uid[leader] = gang
        for member in members:
            self._of_task[member] = gang
        return gang

    def forget(self, gang: KubernetesGang) -> None:
        self._by_uid.pop(gang.uid, None)
        for member in gang.members:
            self._of_task.pop(member, None)
