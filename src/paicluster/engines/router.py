"""The engines of one cluster, seen as one: each attempt goes to its job's engine and is found there again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

from openpaisdk.errors import ConfigError
from openpaisdk.protocol import JobSpec
from paicluster.engines.interface import (
    ABSENT,
    CancellableLaunch,
    DynamicNodes,
    Engine,
    Exec,
    Hint,
    LogSource,
    Node,
    Notice,
    Notify,
    Observation,
    Phase,
    PreparesLaunch,
    ReportSink,
    ReportsOverHttp,
    RunsImages,
    SelfScheduling,
    TaskLaunch,
    ignore_notice,
)

log = logging.getLogger(__name__)


class ReadableEngine(Engine, LogSource, Protocol):
    """Both sides of an engine."""


# Which engine runs a job of that virtual cluster.
EngineOf = Callable[[JobSpec, str], str]


class EngineRouter:
    """Engines by name. They are made when first needed, so that what is not used is not even imported.

    Which engine has an attempt is found out by asking them (`Engine.has`); nothing else tells it.
    """

    def __init__(
        self,
        factories: Mapping[str, Callable[[], ReadableEngine]],
        engine_of: EngineOf,
        *,
        self_scheduling: Iterable[str] = (),
    ):
        """``self_scheduling``: the virtual clusters whose engine finds the places itself."""
        if not factories:
            raise ConfigError("A cluster needs at least one engine.")
        self._makers = dict(factories)
        self._engine_of = engine_of
        self._engines: dict[str, ReadableEngine] = {}
        # Of these, those for which we find the places. Asking each for its type takes longer than its answer.
        self._scheduled_by_us: list[ReadableEngine] = []
        # The engines of attempts that are not over, to ask the others less often.
        self._at: dict[str, str] = {}
        self.self_scheduling = frozenset(self_scheduling)

    @classmethod
    def of(cls, engine: Engine | EngineRouter) -> EngineRouter:
        """As it is; or one engine for every virtual cluster."""
        if isinstance(engine, EngineRouter):
            return engine
        # What only drives it never asks for its logs.
        only = cast(ReadableEngine, engine)
        return cls({"only": lambda: only}, lambda job, vc: "only")

    def get(self, name: str) -> ReadableEngine:
        """The engine of that name."""
        if name not in self._engines:
            engine = self._engines[name] = self._makers[name]()
            if not isinstance(engine, SelfScheduling):
                self._scheduled_by_us.append(engine)
        return self._engines[name]

    def engine_of(self, job: JobSpec, vc: str) -> str:
        """The name of the engine that runs such a job there."""
        return self._engine_of(job, vc)

    def all(self) -> list[ReadableEngine]:
        return [self.get(name) for name in self._makers]

    def _all_placed(self) -> list[ReadableEngine]:
        """Those for which we find the places ourselves."""
        self.all()
        return self._scheduled_by_us

    # -- life ----------------------------------------------------------------------------------

    async def start(self, hint: Hint, notify: Notify = ignore_notice) -> None:
        for engine in self.all():
            await engine.start(hint, notify)

    async def close(self) -> None:
        for engine in self._engines.values():
            await engine.close()

    # -- what there is -------------------------------------------------------------------------

    def nodes(self) -> Sequence[Node]:
        """Every node once: engines that run tasks on the same machine name it alike."""
        found: dict[str, Node] = {}
        for engine in self.all():
            for node in engine.nodes():
                found.setdefault(node.name, node)
        return tuple(found.values())

    async def refresh_nodes(self) -> None:
        """See `LooksAfterNodes`; of the others `nodes` is right at any time."""
        for engine in self.all():
            if isinstance(engine, DynamicNodes):
                await engine.refresh_nodes()

    def scheduled_nodes(self) -> Sequence[Node]:
        """The nodes on which we find the places ourselves."""
        found: dict[str, Node] = {}
        for engine in self._all_placed():
            for node in engine.nodes():
                found.setdefault(node.name, node)
        return tuple(found.values())

    def runs_images(self) -> bool:
        """Whether jobs run in the image they name, on any of them."""
        return any(isinstance(engine, RunsImages) and engine.runs_images for engine in self.all())

    def cancel_launches(self) -> None:
        """The server leaves: what only waits for something from elsewhere is not waited for."""
        for engine in self._engines.values():
            if isinstance(engine, CancellableLaunch):
                engine.cancel_launches()

    def notices(self, name: str) -> Sequence[Notice]:
        return self.get(name).notices()

    def ports_free(self, node: str, ports: Sequence[int], *, non_ephemeral: bool) -> bool:
        return all(
            engine.ports_free(node, ports, non_ephemeral=non_ephemeral)
            for engine in self._all_placed()
            if any(known.name == node for known in engine.nodes())
        )

    # -- attempts ------------------------------------------------------------------------------

    def has(self, uid: str) -> bool:
        return self._find(uid) is not None

    def _find(self, uid: str) -> str | None:
        if len(self._makers) == 1:
            return next(iter(self._makers))
        found = self._at.get(uid)
        if found is None:
            found = next((name for name in self._makers if self.get(name).has(uid)), None)
        return found

    def _home_of(self, uid: str) -> ReadableEngine:
        """The engine that has it; the first one for an attempt nobody has."""
        return self.get(self._find(uid) or next(iter(self._makers)))

    def _grouped(self, uids: Iterable[str]) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for uid in uids:
            groups.setdefault(self._find(uid) or "", []).append(uid)
        return groups

    async def launch(
        self, name: str, gang: Sequence[TaskLaunch], committed: Awaitable[bool] | None = None
    ) -> None:
        """Start a gang with this engine, unless another has it already, as soon as that is certain."""
        if len(self._makers) > 1:
            name = next((known for task in gang if (known := self._find(task.uid))), name)
            self._at.update((task.uid, name) for task in gang)
        engine = self.get(name)
        if committed is not None and isinstance(engine, PreparesLaunch):
            await engine.launch_when_committed(gang, committed)
        elif committed is None or await committed:
            await engine.launch(gang)
        if committed is not None and not await committed:
            for task in gang:
                self._at.pop(task.uid, None)

    async def observe(self, uids: Sequence[str]) -> dict[str, Observation]:
        if len(self._makers) == 1:
            return await self.get(next(iter(self._makers))).observe(uids)
        seen: dict[str, Observation] = {}
        for name, group in self._grouped(uids).items():
            found = await self.get(name).observe(group) if name else dict.fromkeys(group, ABSENT)
            for uid, observation in found.items():
                if observation.phase in (Phase.ENDED, Phase.LOST):
                    self._at.pop(uid, None)
                elif observation.phase is not Phase.ABSENT:
                    # What is not there yet may be on its way there, behind an image that is being pulled:
                    # whoever was told to launch it must also be the one that is told to stop it.
                    self._at[uid] = name
            seen.update(found)
        return seen

    async def log_tail(self, uid: str, size: int) -> bytes:
        return await self._home_of(uid).log_tail(uid, size)

    def log_folder(self, uid: str) -> Path:
        return self._home_of(uid).log_folder(uid)

    async def stop(self, uids: Sequence[str], grace_s: float) -> None:
        for name, group in self._grouped(uids).items():
            # Whoever is told to keep it from starting has it from then on, and a launch comes there.
            await self.get(name or next(iter(self._makers))).stop(group, grace_s)

    async def remove(self, uids: Sequence[str]) -> None:
        for name, group in self._grouped(uids).items():
            if name:
                await self.get(name).remove(group)
        for uid in uids:
            self._at.pop(uid, None)

    async def sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for engine in self.all():
            found.update(await engine.sizes())
        return found

    def report_sink(self, uid: str) -> ReportSink | None:
        """Where such an attempt reports to; None when its engine wants no reports."""
        engine = self._home_of(uid)
        return engine.reports if isinstance(engine, ReportsOverHttp) else None

    def exec_command(
        self, uid: str, command: Sequence[str], *, terminal: bool = False
    ) -> Sequence[str] | None:
        """See `Enterable`; None when its engine cannot do that."""
        engine = self._home_of(uid)
        return engine.exec_command(uid, command, terminal=terminal) if isinstance(engine, Exec) else None
