"""Which address leads where in version 1. Every address of jobs is there with a user in it and without."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.v1 import clusters, jobs, tasklogs

Handler = Callable[[Request], Awaitable[Response]]

_LOGS = "/log-manager/tail/{ticket}/{uid}/"


def _of_jobs(where: str) -> list[tuple[str, list[str], Handler]]:
    return [
        (where, ["GET"], jobs.list_jobs),
        (where, ["POST"], jobs.submit),
        (where + "/{job}", ["PUT"], jobs.submit),
        (where + "/{job}", ["GET"], jobs.detail),
        (where + "/{job}", ["DELETE"], jobs.remove),
        (where + "/{job}/config", ["GET"], jobs.config),
        (where + "/{job}/executionType", ["PUT"], jobs.execution_type),
        (where + "/{job}/ssh", ["GET"], jobs.ssh),
    ]


ROUTES: list[tuple[str, list[str], Handler]] = [
    *_of_jobs("/api/v1/jobs"),
    *_of_jobs("/api/v1/user/{user}/jobs"),
    ("/api/v1/virtual-clusters", ["GET"], clusters.list_clusters),
    ("/api/v1/virtual-clusters/{vc}", ["GET"], clusters.one_cluster),
    (_LOGS, ["GET"], tasklogs.list_files),
    (_LOGS + "{file}", ["GET"], tasklogs.read_file),
    (_LOGS + "{file}/", ["GET"], tasklogs.read_file),
]
