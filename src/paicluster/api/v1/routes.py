"""Which address leads where in version 1. Every address of jobs is there with a user in it and without."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.v1 import clusters, jobs, ssh, tasklogs, users
from paicluster.api.v2 import authn, kubernetes
from paicluster.api.v2 import users as v2_users

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
        (where + "/{job}/ssh", ["GET"], ssh.ssh),
    ]


ROUTES: list[tuple[str, list[str], Handler]] = [
    *_of_jobs("/api/v1/jobs"),
    *_of_jobs("/api/v1/user/{user}/jobs"),
    ("/api/v1/virtual-clusters", ["GET"], clusters.list_clusters),
    ("/api/v1/virtual-clusters/{vc}", ["GET"], clusters.one_cluster),
    ("/api/v1/virtual-clusters/{vc}", ["PUT"], clusters.put_cluster),
    ("/api/v1/virtual-clusters/{vc}", ["DELETE"], clusters.delete_cluster),
    ("/api/v1/virtual-clusters/{vc}/status", ["PUT"], clusters.put_status),
    ("/api/v1/token", ["GET"], authn.list_tokens),
    ("/api/v1/token/application", ["POST"], authn.application_token),
    ("/api/v1/token/check", ["GET"], authn.check_token),
    ("/api/v1/token/{token}", ["DELETE"], authn.revoke_token),
    ("/api/v1/authn/info", ["GET"], authn.authn_info),
    ("/api/v1/authn/basic/login", ["POST"], authn.login),
    ("/api/v1/authn/basic/logout", ["DELETE"], authn.logout),
    ("/api/v1/user", ["PUT"], users.put_user),
    ("/api/v1/user", ["DELETE"], users.delete_user),
    ("/api/v1/user/{user}", ["GET"], v2_users.one_user),
    ("/api/v1/user/{user}/virtualClusters", ["PUT"], users.put_virtual_clusters),
    ("/api/v1/kubernetes/nodes", ["GET"], kubernetes.nodes),
    ("/api/v1/kubernetes/pods", ["GET"], kubernetes.pods),
    ("/ssh-keys/{ticket}/{framework}", ["GET"], ssh.private_key),
    (_LOGS, ["GET"], tasklogs.list_files),
    (_LOGS + "{file}", ["GET"], tasklogs.read_file),
    (_LOGS + "{file}/", ["GET"], tasklogs.read_file),
]
