"""Route table of version 2, without the most frequent routes, which `app.ROUTES` lists first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.v2 import (
    alerts,
    groups,
    job_attempts,
    jobs,
    kubernetes_lists,
    legacy_storage_configs,
    login,
    storages,
    task_logs,
    task_metrics,
    users,
    virtual_clusters,
)

Handler = Callable[[Request], Awaitable[Response]]
Row = tuple[str, list[str], Handler]

_JOB = "/api/v2/jobs/{framework}"
_VC = "/api/v2/virtual-clusters/{vc}"
_OLDER = "/api/v2/storage/"
_LOGS = "/log-manager/{node}/api/v1"


def _of_users(where: str) -> list[Row]:
    user = where + "/{user}"
    return [
        (where, ["GET"], users.list_users),
        (where, ["POST"], users.create_user),
        (where, ["PUT"], users.update_user),
        (where + "/me", ["PUT"], users.update_me),
        (user, ["GET"], users.one_user),
        (user, ["DELETE"], users.delete_user),
        (user + "/group", ["PUT"], users.add_group),
        (user + "/group", ["DELETE"], users.remove_group),
        (user + "/grouplist", ["PUT"], users.set_groups),
        (user + "/extension", ["PUT"], users.update_extension),
        (user + "/virtualcluster", ["PUT"], users.update_virtual_clusters),
        (user + "/password", ["PUT"], users.update_password),
        (user + "/email", ["PUT"], users.update_email),
        (user + "/admin", ["PUT"], users.update_admin),
    ]


def _of_groups(where: str) -> list[Row]:
    group = where + "/{group}"
    return [
        (where, ["GET"], groups.list_groups),
        (where, ["POST"], groups.create_group),
        (where, ["PUT"], groups.update_group),
        (group, ["GET"], groups.one_group),
        (group, ["DELETE"], groups.delete_group),
        (group + "/userlist", ["GET"], groups.members),
        (group + "/extension", ["PUT"], groups.update_extension),
        (group + "/extension/{path:path}", ["PUT"], groups.update_extension_at),
        (group + "/description", ["PUT"], groups.update_description),
        (group + "/externalname", ["PUT"], groups.update_external_name),
    ]


ROUTES: list[Row] = [
    (_JOB + "/ssh", ["GET"], jobs.ssh),
    (_JOB + "/metrics", ["GET"], task_metrics.metrics),
    (_JOB + "/tag", ["PUT"], jobs.add_tag),
    (_JOB + "/tag", ["DELETE"], jobs.delete_tag),
    (_JOB + "/job-attempts", ["GET"], job_attempts.list_attempts),
    (_JOB + "/job-attempts/healthz", ["GET"], job_attempts.healthz),
    (_JOB + "/job-attempts/{attempt:count}", ["GET"], job_attempts.one_attempt),
    *_of_users("/api/v2/users"),
    *_of_users("/api/v2/user"),
    *_of_groups("/api/v2/groups"),
    *_of_groups("/api/v2/group"),
    (_VC, ["PUT"], virtual_clusters.put_cluster),
    (_VC, ["DELETE"], virtual_clusters.delete_cluster),
    (_VC + "/status", ["PUT"], virtual_clusters.put_status),
    (_VC + "/sku-types", ["GET"], virtual_clusters.sku_types),
    ("/api/v2/cluster/sku-types", ["GET"], virtual_clusters.sku_types),
    ("/api/v2/storages", ["GET"], storages.list_storages),
    ("/api/v2/storages/{storage}", ["GET"], storages.one_storage),
    (_OLDER + "config", ["GET"], legacy_storage_configs.list_configs),
    (_OLDER + "configs", ["GET", "POST"], legacy_storage_configs.list_configs),
    (_OLDER + "config", ["POST"], legacy_storage_configs.create_config),
    (_OLDER + "config", ["PUT"], legacy_storage_configs.update_config),
    (_OLDER + "config", ["DELETE"], legacy_storage_configs.delete_config),
    (_OLDER + "config/{storage}", ["GET"], legacy_storage_configs.one_config),
    (_OLDER + "config/{storage}", ["DELETE"], legacy_storage_configs.delete_config),
    (_OLDER + "server", ["GET"], legacy_storage_configs.list_servers),
    (_OLDER + "servers", ["GET", "POST"], legacy_storage_configs.list_servers),
    (_OLDER + "server", ["POST"], legacy_storage_configs.create_server),
    (_OLDER + "server", ["PUT"], legacy_storage_configs.update_server),
    (_OLDER + "server", ["DELETE"], legacy_storage_configs.delete_server),
    (_OLDER + "server/{storage}", ["GET"], legacy_storage_configs.one_server),
    (_OLDER + "server/{storage}", ["DELETE"], legacy_storage_configs.delete_server),
    ("/api/v2/alerts", ["GET"], alerts.alerts),
    ("/alert-manager/api/v1/alerts", ["GET"], alerts.as_alertmanager),
    ("/api/v2/kubernetes/nodes", ["GET"], kubernetes_lists.nodes),
    ("/api/v2/kubernetes/pods", ["GET"], kubernetes_lists.pods),
    (_LOGS + "/tokens", ["POST"], login.log_token),
    (_LOGS + "/logs", ["GET"], task_logs.list_logs),
]
