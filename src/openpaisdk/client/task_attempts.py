"""Attempts of a task: it runs again when its job is retried, and when it is retried itself."""

from __future__ import annotations

from paiprotocol.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from openpaisdk.client.cluster_client import ClusterClient
    from openpaisdk.client.models import JobStatus

    TaskAttempt = tuple[int, int]


def was_retried(job: JobStatus, tasks: Collection[tuple[str, int]]) -> bool:
    """Whether one of these tasks has attempts before the latest one."""
    return job.attempt > 0 or any(task.attempt > 0 for task in job.tasks if (task.role, task.index) in tasks)


def attempts_of_task(cluster: ClusterClient, job: JobStatus, role: str, index: int) -> Iterator[TaskAttempt]:
    """Each attempt of a task, oldest first: the number of the job's attempt, and of the task's in it.

    The cluster is asked about an earlier attempt of the job only when it is reached: a job that is retried
    for ever has thousands of them.
    """
    for number, status in _attempts_of_job(cluster, job):
        for task in status.tasks:
            if (task.role, task.index) == (role or status.tasks[0].role, index):
                yield from ((number, attempt) for attempt in range(task.attempt + 1))


def attempts_of_tasks(cluster: ClusterClient, job: JobStatus) -> dict[tuple[str, int], list[TaskAttempt]]:
    """The attempts of all tasks of a job, oldest first."""
    found: dict[tuple[str, int], list[TaskAttempt]] = {}
    for number, status in _attempts_of_job(cluster, job):
        for task in status.tasks:
            attempts = found.setdefault((task.role, task.index), [])
            attempts += ((number, attempt) for attempt in range(task.attempt + 1))
    return found


def _attempts_of_job(cluster: ClusterClient, job: JobStatus) -> Iterator[tuple[int, JobStatus]]:
    for number in range(job.attempt + 1):
        try:
            status = job if number == job.attempt else cluster.job_attempt(job.name, job.user, number)
        except NotFound:
            continue  # the cluster keeps no record of it
        yield number, status
