"""``submit_notebook``: submits the current notebook as a batch job, with other hardware."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from openpaisdk.binding.cluster import Cluster
from openpaisdk.binding.job import Job
from openpaisdk.config.defaults import Defaults
from openpaisdk.output.live_html import is_notebook
from openpaisdk.runtime import BATCH, where

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping


def submit_notebook(
    notebook: str | os.PathLike[str] = "",
    *,
    name: str = "",
    cluster: Cluster | str | None = None,
    parameters: Mapping[str, Any] | None = None,
    strict: bool = False,
    **options: Any,
) -> Job | None:
    """Submit a notebook as a batch job: ``submit_notebook(gpu=8)``, by default the one whose cell calls this.

    ``options`` are those of ``Job.one_liner``. In a notebook that runs as a batch job, the same cell submits
    nothing and returns None: otherwise every job would submit the next one.
    """
    here = where()
    if here == BATCH and is_notebook():
        print(f"This notebook runs as the batch job {here.job}: nothing is submitted.")
        return None
    target = cluster if isinstance(cluster, Cluster) else Cluster(cluster or "")
    job = Job(name).from_notebook(notebook, parameters=parameters, **_with_own_python(options, target))
    return job.submit(target, strict=strict)


def _with_own_python(options: dict[str, Any], cluster: Cluster) -> dict[str, Any]:
    """Let a job on this machine use the Python that runs this program, with its packages."""
    has_image = options.get("image") or Defaults.load().text("image")
    if options.get("python") or has_image or not cluster.entry.shares_machine:
        return options
    return {**options, "python": sys.executable}
