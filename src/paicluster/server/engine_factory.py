"""The engines a cluster's settings name, each made (and imported) when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from openpaisdk.errors import ConfigError
from openpaisdk.protocol import JobSpec
from paicluster.config.sections import EngineSettings
from paicluster.config.settings import DEFAULT, Settings
from paicluster.engines.interface import Node
from paicluster.engines.router import EngineRouter, ReadableEngine
from paicluster.scheduler.resource_requests import Resources
from paicluster.server import task_accounts

SELF_SCHEDULING = frozenset(("slurm",))

# Counts the users of the cluster.
Users = Callable[[], int]
Make = Callable[[EngineSettings, Settings, Node, Users], ReadableEngine]


def build_engines(settings: Settings, node: Node, users: Users = lambda: 1) -> EngineRouter:
    """``node``: this machine, for the engines that run tasks on it."""
    kinds = {engine.name: engine.kind for engine in settings.engines}
    first = settings.engines[0].name
    clusters = {DEFAULT: first, **dict.fromkeys(settings.virtual_clusters, first), **settings.engine_of}
    makers: dict[str, Callable[[], ReadableEngine]] = {}
    for engine in settings.engines:
        if engine.kind not in ENGINE_FACTORIES:
            raise ConfigError(f"This version has no engine of the type {engine.kind}.")
        makers[engine.name] = partial(ENGINE_FACTORIES[engine.kind], engine, settings, node, users)

    def engine_of(job: JobSpec, vc: str) -> str:
        return clusters.get(vc, first)

    self_scheduling = [vc for vc, name in clusters.items() if kinds.get(name) in SELF_SCHEDULING]
    return EngineRouter(makers, engine_of, self_scheduling=self_scheduling)


def scheduled_shares(settings: Settings, engines: EngineRouter) -> dict[str, Resources]:
    """The shares of what we hand out ourselves."""
    given = settings.virtual_clusters
    return {vc: amount for vc, amount in given.items() if vc not in engines.self_scheduling}


def external_shares(settings: Settings, engines: EngineRouter) -> dict[str, Resources]:
    """The virtual clusters whose engine schedules itself, each with all that this engine has."""
    found = {}
    for vc in engines.self_scheduling:
        total = Resources()
        for node in engines.get(settings.engine_of.get(vc, settings.engines[0].name)).nodes():
            total = total.plus(Resources(node.cpu, node.memory_mb, len(node.gpus)))
        found[vc] = total
    return found


def _process(engine: EngineSettings, settings: Settings, node: Node, users: Users) -> ReadableEngine:
    if settings.embedded:
        # One's own machine: an image is used where podman or docker is there, and else the job is told.
        return _container(replace(engine, options={"images": "ignore"}), settings, node, users)
    from paicluster.engines.process.engine import ProcessEngine

    return ProcessEngine(
        settings.home,
        node,
        grace_s=settings.grace_s,
        enforce_limits=settings.enforce_limits,
        accounts=task_accounts.of_settings(settings, users),
        authority=settings.authority(),
    )


def _container(engine: EngineSettings, settings: Settings, node: Node, users: Users) -> ReadableEngine:
    from paicluster.engines.container.engine import ContainerEngine

    said: dict[str, Any] = dict(engine.options)
    on_this_machine = [one.name for one in settings.engines if one.kind in ("process", "container")]
    # No two engines may keep their attempts in the same folder.
    home = settings.home if engine.name == on_this_machine[0] else settings.home / engine.name
    program = said.get("program", "auto")
    return ContainerEngine(
        home,
        node,
        programs=("podman", "docker") if program == "auto" else (program,),
        refuse_without=said.get("images", "refuse") == "refuse",
        host_network=said.get("network", "host") == "host",
        keep_images_mb=said.get("keep-images-mb", 100_000),
        keep_images_days=said.get("keep-images-days", 30.0),
        grace_s=settings.grace_s,
        enforce_limits=settings.enforce_limits,
        accounts=task_accounts.of_settings(settings, users),
        authority=settings.authority(),
    )


def _slurm(engine: EngineSettings, settings: Settings, node: Node, users: Users) -> ReadableEngine:
    from paicluster.engines.slurm.engine import SlurmEngine
    from paicluster.engines.slurm.options import options_of

    options = options_of(engine.options, settings.home, engine.name)
    if not options.shared and settings.external_url is None:
        raise ConfigError(
            f"Tasks of the engine {engine.name} report over the network, and are not told where to.",
            hint="Give the address by which the nodes reach this server: external-url, under listen.",
        )
    return SlurmEngine(
        options,
        grace_s=settings.grace_s,
        accounts=task_accounts.of_settings(settings, users),
        url=settings.external_url or "",
        authority=settings.authority(),
    )


ENGINE_FACTORIES: dict[str, Make] = {"process": _process, "container": _container, "slurm": _slurm}
