"""Submission of a job given as plain data: validated, for its cluster, with its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openpaisdk.jobs.caller_notice import warn_caller
from paiprotocol.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from openpaisdk.client import ClusterClient
    from openpaisdk.connect import ClusterConnection


def submit_config(
    cluster: ClusterConnection,
    config: Mapping[str, Any],
    upload: Callable[[ClusterClient], None] | None = None,
    *,
    strict: bool = False,
) -> str:
    """Validate the job, upload its files and submit it; returns its name."""
    from openpaisdk.jobs.command_job import HOST_IMAGE, with_caller_environment
    from openpaisdk.jobs.preflight import preflight
    from openpaisdk.jobs.submission import submit_job
    from paiprotocol.jobs import read_any_job

    read_any_job(config)
    client = cluster.client  # connects, so that the entry of a cluster in no file is complete
    if _image(config) == HOST_IMAGE and not cluster.entry.is_paicluster:
        raise UsageError(f"The cluster {cluster.alias} runs jobs in containers: the job needs an image.")
    job = with_caller_environment(config, cluster.entry)
    if strict:
        preflight(cluster.entry, client, job, strict=True)
    if upload is not None:
        upload(client)
    return submit_job(client, job, notify=warn_caller, strict=strict)


def _image(job: Mapping[str, Any]) -> str:
    """The image of a job with exactly one; else empty."""
    images = [p.get("uri") for p in job.get("prerequisites") or [] if p.get("type") == "dockerimage"]
    return str(images[0]) if len(images) == 1 else ""
