"""Copy of a job on its cluster, with changes: ``job.resubmit(gpu=8)``, like ``pai resubmit``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openpaisdk.jobs.call_copy import CopiedJob
from openpaisdk.jobs.caller_notice import warn_caller
from openpaisdk.jobs.clone import clone_job
from openpaisdk.jobs.copy_changes import CopyChanges
from openpaisdk.jobs.job_options import KEYWORDS
from openpaisdk.jobs.option_values import items_of
from openpaisdk.jobs.variables import parse_variables
from paiprotocol.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from openpaisdk.client import ClusterClient
    from openpaisdk.config.clusters import ClusterEntry

    Upload = Callable[[ClusterClient], None]

OPTIONS = frozenset(keyword for keyword, option in KEYWORDS.items() if option.for_copies) - {
    "secrets",
    "sources",
    "virtual_cluster",
}
"""Options of ``Job.one_liner`` that change a copy; each leaves the value of the job if it is not given.

The others are parameters of `copy_of_job`.
"""


def copy_of_job(
    client: ClusterClient,
    entry: ClusterEntry,
    job: str,
    name: str,
    *,
    commands: Any = (),
    role: Any = (),
    secrets: Any = (),
    sources: Any = None,
    updates: Any = (),
    deployment: str = "",
    virtual_cluster: str = "",
    tasks: Sequence[int] = (),
    **options: Any,
) -> tuple[dict[str, Any], Upload | None]:
    """The copy, ready to be submitted, and the function that uploads the files that only it has.

    ``tasks``: the only ones of an array that it runs.
    """
    if unknown := [key for key in options if key not in OPTIONS]:
        raise UsageError(
            f"A copy of a job has no option {unknown[0]!r}.",
            hint="The options are commands, role, secrets, sources, updates, deployment, virtual_cluster, "
            f"{', '.join(sorted(OPTIONS))}.",
        )
    _, secret_values = parse_variables((), secrets)
    changes = CopyChanges(commands=items_of(commands, "commands"), roles=items_of(role, "role"), **options)
    changes.tasks = tasks
    if tasks and (changes.instances is not None or changes.roles):
        raise UsageError("The tasks that failed run again: leave instances and role out.")
    upload = None
    if sources is not None:
        changes.sources, upload = _collect(client, items_of(sources, "sources"))
    changes.check(entry)
    config = client.job_config(job)
    data = clone_job(
        config,
        name=name,
        updates=items_of(updates, "updates"),
        deployment=deployment,
        virtual_cluster=virtual_cluster,
        secrets=secret_values,
        changes=changes,
        user=client.user,
        notify=warn_caller,
    )
    function = CopiedJob.of(
        config,
        data,
        job=job,
        owner=client.whole_name(job).partition("~")[0],
        user=client.user,
        image=changes.options.image,
    )
    if function is None:
        return data, upload

    def upload_all(client: ClusterClient) -> None:
        if upload is not None:
            upload(client)
        function.send_calls(client)

    return function.data, upload_all


def failed_tasks_of(
    client: ClusterClient, job: str, *, now: bool = False, has_own_files: bool = False
) -> list[int]:
    """The tasks of an array that did not succeed; the files of the job must still be there for a copy of it,
    unless that one ``has_own_files``.
    """
    from openpaisdk.client.job_config import parse_config
    from openpaisdk.jobs.failed_tasks import check_files, failed_tasks

    config, status = parse_config(client.job_config(job)), client.job(job)
    tasks = failed_tasks(config, status, now=now)
    if tasks and not has_own_files:
        check_files(client, config, status)
    return tasks


def _collect(client: ClusterClient, paths: list[str]) -> tuple[dict[str, object], Upload | None]:
    if not paths:
        return {}, None
    from openpaisdk.jobs.command_submission import current_folder
    from openpaisdk.jobs.sources import collect, send

    archive = collect(current_folder(), paths, connect=lambda: client)
    if archive is None:
        return {}, None

    def upload(client: ClusterClient) -> None:
        send(client, archive)

    return {"sha256": archive.sha256, "size": archive.size}, upload
