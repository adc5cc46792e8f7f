"""Preflight: what a client can tell about a job before it sends anything.

Our own server checks the resources of a job when it is submitted; for OpenPAI's servers the client does.
"""

from __future__ import annotations

from paiprotocol.errors import UNSCHEDULABLE_JOB, Forbidden, InvalidParameters, PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from openpaisdk.client import ClusterClient
    from openpaisdk.config.clusters import ClusterEntry


def preflight(
    entry: ClusterEntry, cluster: ClusterClient, job: Mapping[str, object], *, strict: bool = False
) -> list[str]:
    """Warnings about a job; ``strict`` raises an error if it can never start."""
    warnings = []
    info = entry.raw.get("info")
    if isinstance(info, dict) and info.get("containers") is False:
        from paiprotocol.jobs.images import named_images, unused_images

        warnings.append(unused_images(named_images(job)))
    if not entry.is_paicluster and (numbers := exceeds_capacity(cluster, job)):
        if strict:
            raise InvalidParameters(
                f"The job can never start on {entry.alias}. {numbers}",
                code=UNSCHEDULABLE_JOB,
                hint="Request less, or use another virtual cluster. Nothing was submitted.",
            )
        warnings.append(f"The job stays pending until the cluster {entry.alias} changes. {numbers}")
    if entry.is_paicluster:
        _check_workspace(cluster, job)
    return [warning for warning in warnings if warning]


def _check_workspace(cluster: ClusterClient, job: Mapping[str, object]) -> None:
    """Raise if the job could not store its outputs, before its files are uploaded.

    The cluster refuses such a job, too; earlier ones find out when the job ends.
    """
    parameters = job.get("parameters")
    if not isinstance(parameters, dict) or not parameters.get("work_directory"):
        return
    from paiprotocol.jobs.problems import key_path
    from paiprotocol.jobs.storage_layout import WORKSPACE_KEY

    for problem in cluster.check_job(job):
        if problem.get("key") == key_path(WORKSPACE_KEY):
            raise Forbidden(str(problem.get("message")), hint="Nothing was submitted.")


def exceeds_capacity(cluster: ClusterClient, job: Mapping[str, object]) -> str:
    """Both numbers if a job requests more than its virtual cluster has in total, else empty."""
    from openpaisdk.client.models import CORES, GPUS, MEMORY
    from paiprotocol.jobs import convert_v1, read_job

    try:
        spec = read_job(job) if "protocolVersion" in job else convert_v1(job, user=cluster.user).job
        virtual_clusters = {vc.name: vc for vc in cluster.virtual_clusters()}
    except PaiError:  # the cluster's own answer to the job tells more
        return ""
    if (vc := virtual_clusters.get(spec.virtual_cluster)) is None:
        return ""
    needed = {GPUS: 0, CORES: 0, MEMORY: 0}
    for role in spec.task_roles:
        each = {GPUS: role.resources.gpu, CORES: role.resources.cpu, MEMORY: role.resources.memory_mb}
        for names, amount in each.items():
            needed[names] = (
                needed[names] + amount * role.instances if spec.gang else max(needed[names], amount)
            )
    for names, unit in ((GPUS, "GPUs"), (CORES, "cores"), (MEMORY, "MB of memory")):
        total = vc.total(*names)
        if total is not None and needed[names] > total:
            who = "It" if spec.gang else "A task of it"
            return f"{who} asks for {needed[names]} {unit}; the virtual cluster {vc.name} has {total}."
    return ""
