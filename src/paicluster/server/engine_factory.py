"""Engines of a cluster, built from its settings. Each is built, and imported, when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from paicluster.config.sections import EngineSettings
from paicluster.config.settings import DEFAULT, Settings
from paicluster.engines.engine_kind import EngineContext
from paicluster.engines.interface import Node
from paicluster.engines.registry import ENGINE_KINDS, LOCAL_KINDS
from paicluster.engines.router import EngineRouter, ReadableEngine
from paicluster.scheduler.resource_requests import Resources
from paicluster.server import task_accounts
from paiprotocol.errors import ConfigError
from paiprotocol.jobs import JobSpec

# Counts the users of the cluster.
CountUsers = Callable[[], int]


def build_engines(settings: Settings, node: Node, users: CountUsers = lambda: 1) -> EngineRouter:
    """``node``: this machine, for the engines that run tasks on it."""
    for engine in settings.engines:
        if engine.kind not in ENGINE_KINDS:
            raise ConfigError(f"This version has no engine of the type {engine.kind}.")
    first = settings.engines[0].name
    clusters = {DEFAULT: first, **dict.fromkeys(settings.virtual_clusters, first), **settings.engine_of}
    factories = {engine.name: _factory(engine, settings, node, users) for engine in settings.engines}
    external = {engine.name for engine in settings.engines if ENGINE_KINDS[engine.kind].schedules_itself}

    def engine_of(job: JobSpec, vc: str) -> str:
        return clusters.get(vc, first)

    self_scheduling = [vc for vc, name in clusters.items() if name in external]
    by_us = {engine.name for engine in settings.engines if ENGINE_KINDS[engine.kind].is_admitted_by_us}
    admitted = {vc: name for vc, name in clusters.items() if name in by_us}
    return EngineRouter(factories, engine_of, self_scheduling=self_scheduling, admitted=admitted)


def _factory(
    engine: EngineSettings, settings: Settings, node: Node, users: CountUsers
) -> Callable[[], ReadableEngine]:
    if settings.embedded and engine.kind == "process":
        # An image is used where podman or docker works; otherwise the job gets a notice and runs on the host.
        engine = replace(engine, kind="container", options={**engine.options, "images": "ignore"})

    def build() -> ReadableEngine:
        return ENGINE_KINDS[engine.kind].factory(
            EngineContext(
                name=engine.name,
                options=engine.options,
                cluster_home=settings.home,
                home=_home_of(engine, settings),
                node=node,
                grace_s=settings.grace_s,
                enforce_limits=settings.enforce_limits,
                accounts=task_accounts.of_settings(settings, users),
                ca_certificates=settings.ca_certificates(),
                external_url=settings.external_url,
            )
        )

    return build


def _home_of(engine: EngineSettings, settings: Settings) -> Path:
    """The cluster's home for the first engine of this machine, a folder in it for others.

    No two engines may keep their attempts in the same folder.
    """
    local = [one.name for one in settings.engines if one.kind in LOCAL_KINDS]
    return settings.home if local and engine.name == local[0] else settings.home / engine.name


def scheduled_shares(settings: Settings, engines: EngineRouter) -> dict[str, Resources]:
    """Guaranteed capacities of the virtual clusters that our own scheduler serves."""
    configured = settings.virtual_clusters
    return {vc: resources for vc, resources in configured.items() if vc not in engines.self_scheduling}


def external_shares(settings: Settings, engines: EngineRouter) -> dict[str, Resources]:
    """Virtual clusters whose engine schedules itself, each with all resources of that engine.

    Where our scheduler says when, one has what the file says, and the others what that leaves.
    """
    shares = {}
    for vc in engines.self_scheduling:
        name = settings.engine_of.get(vc, settings.engines[0].name)
        total = Resources()
        for node in engines.get(name).nodes():
            total = total.plus(Resources(node.cpu, node.memory_mb, len(node.gpus)))
        if vc in engines.admitted:
            guaranteed = {
                other: resources
                for other, resources in settings.virtual_clusters.items()
                if settings.engine_of.get(other) == name
            }
            left = total
            for resources in guaranteed.values():
                left = left.minus(resources)
            total = guaranteed.get(vc, Resources(*(max(0, amount) for amount in left)))
        shares[vc] = total
    return shares
