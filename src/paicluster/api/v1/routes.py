"""Route table of version 1. Every path of jobs exists with and without a user in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.v1 import jobs, ssh, task_logs, users, virtual_clusters
from paicluster.api.v2 import kubernetes_lists, login
from paicluster.api.v2 import users as v2_users

Handler = Callable[[Request], Awaitable[Response]]

_LOGS = "/log-manager/tail/{ticket}/{uid}/"


def _job_routes(prefix: str) -> list[tuple[str, list[str], Handler]]:
    return [
        (prefix, ["GET"], jobs.list_jobs),
        (prefix, ["POST"], jobs.submit),
        (prefix + "/{job}", ["PUT"], jobs.submit),
        (prefix + "/{job}", ["GET"], jobs.detail),
        (prefix + "/{job}", ["DELETE"], jobs.remove),
        (prefix + "/{job}/config", ["GET"], jobs.config),
        (prefix + "/{job}/executionType", ["PUT"], jobs.execution_type),
        (prefix + "/{job}/ssh", ["GET"], ssh.ssh),
    ]


ROUTES: list[tuple[str, list[str], Handler]] = [
    *_job_routes("/api/v1/jobs"),
    *_job_routes("/api/v1/user/{user}/jobs"),
    ("/api/v1/virtual-clusters", ["GET"], virtual_clusters.list_clusters),
    ("/api/v1/virtual-clusters/{vc}", ["GET"], virtual_clusters.one_cluster),
    ("/api/v1/virtual-clusters/{vc}", ["PUT"], virtual_clusters.put_cluster),
    ("/api/v1/virtual-clusters/{vc}", ["DELETE"], virtual_clusters.delete_cluster),
    ("/api/v1/virtual-clusters/{vc}/status", ["PUT"], virtual_clusters.put_status),
    ("/api/v1/token", ["GET"], login.list_tokens),
    ("/api/v1/token/application", ["POST"], login.application_token),
    ("/api/v1/token/check", ["GET"], login.check_token),
    ("/api/v1/token/{token}", ["DELETE"], login.revoke_token),
    ("/api/v1/authn/info", ["GET"], login.authn_info),
    ("/api/v1/authn/basic/login", ["POST"], login.login),
    ("/api/v1/authn/basic/logout", ["DELETE"], login.logout),
    ("/api/v1/user", ["PUT"], users.put_user),
    ("/api/v1/user", ["DELETE"], users.delete_user),
    ("/api/v1/user/{user}", ["GET"], v2_users.one_user),
    ("/api/v1/user/{user}/virtualClusters", ["PUT"], users.put_virtual_clusters),
    ("/api/v1/kubernetes/nodes", ["GET"], kubernetes_lists.nodes),
    ("/api/v1/kubernetes/pods", ["GET"], kubernetes_lists.pods),
    ("/ssh-keys/{ticket}/{framework}", ["GET"], ssh.private_key),
    (_LOGS, ["GET"], task_logs.list_files),
    (_LOGS + "{file}", ["GET"], task_logs.read_file),
    (_LOGS + "{file}/", ["GET"], task_logs.read_file),
]
