"""Live views of jobs and clusters in a notebook: what their HTML shows, and the state that changes.

Where there is no notebook, or nothing that changes, ``NotImplementedError`` makes IPython use the ordinary
representations, which contact no cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openpaisdk.client.models import CORES, GPUS, MEMORY
from openpaisdk.jobs.outcome import outcome_reason
from openpaisdk.output import format_duration
from openpaisdk.output.html import html_fields
from openpaisdk.output.live_html import View, show_live
from paiprotocol.errors import NotFound, PaiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.client.models import JobStatus, VirtualCluster
    from openpaisdk.config.clusters import ClusterEntry

MAX_VIRTUAL_CLUSTERS = 20
"""Virtual clusters that a view lists; the others are counted."""


def show_job(
    fields: dict[str, str], plain: str, entry: ClusterEntry, status: Callable[[], JobStatus]
) -> None:
    """Show a job, described by ``fields``, with its state until it has finished."""

    def render() -> View:
        try:
            job = status()
        except NotFound:
            return View(html_fields({**fields, "state": f"not on {entry.alias}"}), is_final=True)
        except PaiError as error:
            return View(html_fields({**fields, "state": f"unknown: {error.message}"}))
        return View(html_fields({**fields, **_state_fields(job)}), job.is_finished)

    if not _is_running(entry) or not show_live(html_fields({**fields, "state": "..."}), plain, render):
        raise NotImplementedError


def _state_fields(status: JobStatus) -> dict[str, str]:
    reason = outcome_reason(status)
    running = sum(task.state == "RUNNING" for task in status.tasks)
    return {
        "state": status.state + (f": {reason}" if reason else ""),
        "running": f"{running} of {len(status.tasks)} tasks" if len(status.tasks) > 1 and running else "",
        "took" if status.is_finished else "for": format_duration(status.launched_ms, status.completed_ms)
        if status.launched_ms is not None
        else "",
    }


def show_cluster(
    fields: dict[str, str],
    plain: str,
    entry: ClusterEntry,
    virtual_clusters: Callable[[], list[VirtualCluster]],
) -> None:
    """Show a cluster, described by ``fields``, with the resources that are free."""

    def render() -> View:
        try:
            clusters = virtual_clusters()
        except PaiError as error:
            return View(html_fields({**fields, "state": f"unknown: {error.message}"}))
        free = {f"free in {vc.name}": _free(vc) for vc in clusters[:MAX_VIRTUAL_CLUSTERS]}
        more = len(clusters) - len(free)
        return View(html_fields({**fields, **free, "and": f"{more} more" if more > 0 else ""}))

    if not _is_running(entry) or not show_live(html_fields(fields), plain, render):
        raise NotImplementedError


def _free(vc: VirtualCluster) -> str:
    kinds = (("GPUs", GPUS), ("cores", CORES), ("MB", MEMORY))
    amounts = [(vc.available(*keys), vc.total(*keys), unit) for unit, keys in kinds]
    return ", ".join(f"{free} of {total} {unit}" for free, total, unit in amounts if total is not None)


def _is_running(entry: ClusterEntry) -> bool:
    """Whether the cluster runs: displaying an object must not start the embedded one."""
    if not entry.is_embedded:
        return True
    from openpaisdk.embedded.ensure_running import find_running

    return find_running() is not None
