"""A Slurm engine with the times of tests; without what tests themselves need, as servers import it, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paicluster.engines.slurm.engine import SlurmEngine
from paicluster.engines.slurm.options import SlurmOptions, SlurmQueue


def options(folder: Path, **more: Any) -> SlurmOptions:
    # A file is visible at once here.
    quick = {"file_lag_s": 0.5, "interval_s": 0.5, "steady_interval_s": 1.0}
    return SlurmOptions(**{"folder": folder, "default_queue": SlurmQueue("main"), **quick, **more})


def engine_of(folder: Path, port: int | None, **more: Any) -> SlurmEngine:
    if port is None:
        return SlurmEngine(options(folder, **more))
    # Imported here: few need its server.
    from support.slurm_report_server import ReportedEngine

    return ReportedEngine(options(folder, shared=False, **more), port)
