"""Router over the engines of one cluster. An attempt goes to the engine of its job, also after a restart."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

from paicluster.engines.interface import (
    ABSENT,
    AdmittedByUs,
    CancellableLaunch,
    DynamicNodes,
    Engine,
    Exec,
    Forward,
    FreeNodes,
    Hint,
    LogSource,
    MeasuresUsage,
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
from paicluster.metrics.usage import NodeReading, UsageCounters, UsageReading
from paiprotocol.errors import ConfigError
from paiprotocol.jobs import JobSpec

log = logging.getLogger(__name__)


class ReadableEngine(Engine, LogSource, Protocol):
    """Write side and read side of an engine."""


# The name of the engine for a job of a virtual cluster.
EngineOf = Callable[[JobSpec, str], str]


class EngineRouter:
    """Engines by name. Each is built on first use, so that an unused one is not even imported.

    Which engine has an attempt is found out by `Engine.has`; it is stored nowhere.
    """

    def __init__(
        self,
        factories: Mapping[str, Callable[[], ReadableEngine]],
        engine_of: EngineOf,
        *,
        self_scheduling: Iterable[str] = (),
        admitted: Mapping[str, str] | None = None,
    ):
        """``self_scheduling``: the virtual clusters whose engine schedules itself. ``admitted``: those of
        them whose jobs start when our scheduler says so, with the name of their engine."""
        if not factories:
            raise ConfigError("A cluster needs at least one engine.")
        self._factories = dict(factories)
        self._engine_of = engine_of
        self._engines: dict[str, ReadableEngine] = {}
        # By capability. Kept: the type check takes longer than the calls.
        self._scheduled_by_us: list[ReadableEngine] = []
        self._image_engines: dict[str, RunsImages] = {}
        self._preparing_engines: dict[str, PreparesLaunch] = {}
        # Engine names of active attempts, to save `has` calls.
        self._engine_by_uid: dict[str, str] = {}
        self.self_scheduling = frozenset(self_scheduling)
        self._admitted = dict(admitted or {})
        self.admitted = frozenset(self._admitted)

    @classmethod
    def of(cls, engine: Engine | EngineRouter) -> EngineRouter:
        """A router as it is; a single engine as a router that uses it for every virtual cluster."""
        if isinstance(engine, EngineRouter):
            return engine
        # A caller that passes a bare Engine never reads logs.
        only = cast(ReadableEngine, engine)
        return cls({"only": lambda: only}, lambda job, vc: "only")

    def get(self, name: str) -> ReadableEngine:
        """The engine of that name."""
        if name not in self._engines:
            engine = self._engines[name] = self._factories[name]()
            if not isinstance(engine, SelfScheduling):
                self._scheduled_by_us.append(engine)
            if isinstance(engine, RunsImages):
                self._image_engines[name] = engine
            if isinstance(engine, PreparesLaunch):
                self._preparing_engines[name] = engine
        return self._engines[name]

    def engine_of(self, job: JobSpec, vc: str) -> str:
        """Name of the engine for a job of this virtual cluster."""
        return self._engine_of(job, vc)

    def all(self) -> list[ReadableEngine]:
        return [self.get(name) for name in self._factories]

    def _all_scheduled_by_us(self) -> list[ReadableEngine]:
        """Engines that our scheduler places tasks on."""
        self.all()
        return self._scheduled_by_us

    # -- lifecycle -----------------------------------------------------------------------------

    async def start(self, hint: Hint, notify: Notify = ignore_notice) -> None:
        for engine in self.all():
            await engine.start(hint, notify)

    async def close(self) -> None:
        for engine in self._engines.values():
            await engine.close()

    # -- nodes and notices ----------------------------------------------------------------------

    def nodes(self) -> Sequence[Node]:
        """Every node once: engines of the same machine give it the same name."""
        nodes: dict[str, Node] = {}
        for engine in self.all():
            for node in engine.nodes():
                nodes.setdefault(node.name, node)
        return tuple(nodes.values())

    async def refresh_nodes(self) -> None:
        """See `DynamicNodes`; `nodes` of other engines is always current."""
        for engine in self.all():
            if isinstance(engine, DynamicNodes):
                await engine.refresh_nodes()

    def scheduled_nodes(self) -> Sequence[Node]:
        """Nodes that our scheduler places tasks on."""
        nodes: dict[str, Node] = {}
        for engine in self._all_scheduled_by_us():
            for node in engine.nodes():
                nodes.setdefault(node.name, node)
        return tuple(nodes.values())

    def admission_pools(self) -> list[tuple[frozenset[str], FreeNodes | None]]:
        """Nodes that other schedulers fill when ours says so, and the virtual clusters that use them."""
        pools: dict[tuple[str, str], set[str]] = {}
        for vc, name in self._admitted.items():
            engine = self.get(name)
            if isinstance(engine, AdmittedByUs):
                pools.setdefault((name, engine.pool_of(vc)), set()).add(vc)
        return [
            (frozenset(vcs), cast(AdmittedByUs, self.get(name)).free_nodes(pool))
            for (name, pool), vcs in pools.items()
        ]

    def on_capacity_change(self, listener: Callable[[], None]) -> None:
        """``listener`` is called when another scheduler may have more that is free."""
        for engine in self.all():
            if isinstance(engine, AdmittedByUs):
                engine.on_change(listener)

    def runs_images(self) -> bool:
        """Whether any engine runs jobs in the image they name."""
        self.all()
        return any(engine.runs_images for engine in self._image_engines.values())

    def may_run_images(self, name: str) -> bool:
        """Whether this engine runs jobs in their image, or notifies why it cannot."""
        self.get(name)
        return name in self._image_engines

    def cancel_launches(self) -> None:
        """The server shuts down: cancel launches that wait, as for an image."""
        for engine in self._engines.values():
            if isinstance(engine, CancellableLaunch):
                engine.cancel_launches()

    def notices(self, name: str) -> Sequence[Notice]:
        return self.get(name).notices()

    def ports_free(self, node: str, ports: Sequence[int], *, non_ephemeral: bool) -> bool:
        return all(
            engine.ports_free(node, ports, non_ephemeral=non_ephemeral)
            for engine in self._all_scheduled_by_us()
            if any(known.name == node for known in engine.nodes())
        )

    # -- attempts ------------------------------------------------------------------------------

    def has(self, uid: str) -> bool:
        return self._find(uid) is not None

    def _find(self, uid: str) -> str | None:
        if len(self._factories) == 1:
            return next(iter(self._factories))
        engine = self._engine_by_uid.get(uid)
        if engine is None:
            engine = next((name for name in self._factories if self.get(name).has(uid)), None)
        return engine

    def _engine_for(self, uid: str) -> ReadableEngine:
        """The engine of an attempt; the first one if no engine has it."""
        return self.get(self._find(uid) or next(iter(self._factories)))

    def _grouped(self, uids: Iterable[str]) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for uid in uids:
            groups.setdefault(self._find(uid) or "", []).append(uid)
        return groups

    async def launch(
        self, name: str, gang: Sequence[TaskLaunch], committed: Awaitable[bool] | None = None
    ) -> None:
        """Start a gang with this engine, unless another has it already, once ``committed`` is true."""
        if len(self._factories) > 1:
            name = next((known for task in gang if (known := self._find(task.uid))), name)
            self._engine_by_uid.update((task.uid, name) for task in gang)
        engine = self.get(name)
        if committed is not None and name in self._preparing_engines:
            await self._preparing_engines[name].launch_when_committed(gang, committed)
        elif committed is None or await committed:
            await engine.launch(gang)
        if committed is not None and not await committed:
            for task in gang:
                self._engine_by_uid.pop(task.uid, None)

    async def observe(self, uids: Sequence[str]) -> dict[str, Observation]:
        if len(self._factories) == 1:
            return await self.get(next(iter(self._factories))).observe(uids)
        seen: dict[str, Observation] = {}
        for name, group in self._grouped(uids).items():
            observations = await self.get(name).observe(group) if name else dict.fromkeys(group, ABSENT)
            for uid, observation in observations.items():
                if observation.phase in (Phase.ENDED, Phase.LOST):
                    self._engine_by_uid.pop(uid, None)
                elif observation.phase is not Phase.ABSENT:
                    # An ABSENT attempt may still be launching (its image is being pulled): the engine that
                    # was called to launch it must also be called to stop it.
                    self._engine_by_uid[uid] = name
            seen.update(observations)
        return seen

    async def log_tail(self, uid: str, size: int) -> bytes:
        return await self._engine_for(uid).log_tail(uid, size)

    def log_folder(self, uid: str) -> Path:
        return self._engine_for(uid).log_folder(uid)

    def may_stall(self, uid: str) -> bool:
        """Without a look at any file: where the engine is not known, the answer for all of them."""
        known = next(iter(self._factories)) if len(self._factories) == 1 else self._engine_by_uid.get(uid)
        engines = self.all() if known is None else [self.get(known)]
        return any(engine.may_stall(uid) for engine in engines)

    async def stop(self, uids: Sequence[str], grace_s: float) -> None:
        for name, group in self._grouped(uids).items():
            # An unknown attempt goes to the first engine, whose tombstone prevents a later launch.
            await self.get(name or next(iter(self._factories))).stop(group, grace_s)

    async def remove(self, uids: Sequence[str]) -> None:
        for name, group in self._grouped(uids).items():
            if name:
                await self.get(name).remove(group)
        for uid in uids:
            self._engine_by_uid.pop(uid, None)

    async def sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for engine in self.all():
            sizes.update(await engine.sizes())
        return sizes

    async def usage(self, uids: Sequence[str]) -> UsageReading:
        """Usage of running attempts and of nodes, of all engines that measure it."""
        groups = self._grouped(uids)
        tasks: dict[str, UsageCounters] = {}
        nodes: dict[str, NodeReading] = {}
        cost_s = 0.0
        for name in self._factories:
            engine = self.get(name)
            if isinstance(engine, MeasuresUsage):
                reading = await engine.usage(groups.get(name, ()))
                tasks.update(reading.tasks)
                nodes.update(reading.nodes)
                cost_s += reading.cost_s
        return UsageReading(tasks, nodes, cost_s)

    def report_sink(self, uid: str) -> ReportSink | None:
        """Report sink of an attempt's engine; None if its tasks do not report over HTTP."""
        engine = self._engine_for(uid)
        return engine.reports if isinstance(engine, ReportsOverHttp) else None

    def session_command(self, uid: str, *, terminal: bool = False) -> Sequence[str] | None:
        """See `Exec`; None if the attempt's engine does not support it."""
        engine = self._engine_for(uid)
        return engine.session_command(uid, terminal=terminal) if isinstance(engine, Exec) else None

    def forward_command(self, uid: str) -> Sequence[str] | None:
        """See `Forward`; None if the attempt's engine does not support it."""
        engine = self._engine_for(uid)
        return engine.forward_command(uid) if isinstance(engine, Forward) else None
