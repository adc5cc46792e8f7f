"""Engine kinds: what an engine package registers, and what the server gives an engine that it builds.

Imported by every command that reads a cluster's file: an engine itself is imported only by its factory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paiprotocol.jobs.schema_nodes import Node as SchemaNode

if TYPE_CHECKING:
    from paicluster.engines.common.unix_accounts import Accounts
    from paicluster.engines.interface import Node
    from paicluster.engines.router import ReadableEngine


@dataclass(frozen=True, slots=True)
class EngineContext:
    """Everything a factory needs. ``options`` are the engine's own, as written in the cluster's file."""

    name: str
    options: Mapping[str, Any]
    cluster_home: Path
    # Folder of the engine's files; no two engines have the same one.
    home: Path
    # The server's machine, for engines that run tasks on it.
    node: Node
    grace_s: float
    enforce_limits: bool
    # None: all tasks run as the server's account.
    accounts: Accounts | None
    # Certificates by which tasks verify the server, PEM; empty: those that their system trusts.
    ca_certificates: str
    external_url: str | None


@dataclass(frozen=True, slots=True)
class DetectedConfig:
    """Sections of a new cluster's file, as text, for the machine that `paicluster init` runs on."""

    engine: str
    virtual_clusters: str = ""
    # Printed to the administrator.
    message: str = ""


@dataclass(frozen=True, slots=True)
class EngineKind:
    """Registration of an engine package: the `type` in a cluster's file, and all that depends on it."""

    name: str
    # Keys of the engine's section in the cluster's file, beside `type` and `name`.
    options_schema: Mapping[str, SchemaNode]
    factory: Callable[[EngineContext], ReadableEngine]
    # The engine places tasks itself: see `interface.SelfScheduling`.
    schedules_itself: bool = False
    # But our scheduler says when: see `interface.AdmittedByUs`.
    is_admitted_by_us: bool = False
    # What jobs may write under `extras.openpaisdk.<name>`; None: nothing.
    job_options: SchemaNode | None = None
    # The cluster's file for this machine; None: this kind cannot be used here.
    detect: Callable[[], DetectedConfig | None] | None = None
    # Help of `paicluster init --<name>`; empty: there is no such option, and `detect` decides.
    init_help: str = ""
    # (options, cluster home, engine name) -> what this machine has against options that the schema accepts.
    check_options: Callable[[Mapping[str, Any], Path, str], Sequence[str]] | None = None
