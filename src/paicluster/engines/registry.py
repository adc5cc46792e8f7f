"""The table of engine kinds. A new engine is one package and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paicluster.engines.container.kind import CONTAINER
from paicluster.engines.engine_kind import EngineKind
from paicluster.engines.kubernetes.kind import KUBERNETES
from paicluster.engines.process.kind import PROCESS
from paicluster.engines.slurm.kind import SLURM
from paiprotocol.jobs.extras import OPENPAISDK
from paiprotocol.jobs.problems import Problem, did_you_mean, protocol_error

ENGINE_KINDS: dict[str, EngineKind] = {kind.name: kind for kind in (PROCESS, CONTAINER, SLURM, KUBERNETES)}

# Kinds that run tasks on the server's machine, placed by our scheduler.
LOCAL_KINDS = frozenset(kind.name for kind in ENGINE_KINDS.values() if not kind.schedules_itself)


def check_job_options(options: Mapping[str, Any]) -> None:
    """Check what a job says to engines, by kind. Raises ProtocolError with all that is wrong."""
    problems: list[Problem] = []
    for name, value in options.items():
        path = ("extras", OPENPAISDK, name)
        kind = ENGINE_KINDS.get(name)
        if kind is None or kind.job_options is None:
            known = [kind.name for kind in ENGINE_KINDS.values() if kind.job_options is not None]
            hint = did_you_mean(name, known)
            problems.append(Problem(path, "unknown key", suggestion=hint, at_key=True))
        else:
            kind.job_options.explain(value, path, problems)
    if problems:
        raise protocol_error(problems)
