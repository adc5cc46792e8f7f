"""Route table of version 2, without the most frequent routes, which `app.ROUTES` lists first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.v2 import (
    administration,
    alerts,
    certificates,
    groups,
    job_attempts,
    job_checks,
    job_schemas,
    jobs,
    kubernetes_lists,
    legacy_storage_configs,
    log_search,
    login,
    quotas,
    ssh,
    storage_changes,
    storage_files,
    storages,
    task_logs,
    task_metrics,
    usage,
    users,
    virtual_clusters,
)

Handler = Callable[[Request], Awaitable[Response]]
Row = tuple[str, list[str], Handler]

_JOB = "/api/v2/jobs/{framework}"
_VC = "/api/v2/virtual-clusters/{vc}"
_LEGACY_STORAGE = "/api/v2/storage/"
_LOGS = "/log-manager/{node}/api/v1"


def _user_routes(prefix: str) -> list[Row]:
    user = prefix + "/{user}"
    return [
        (prefix, ["GET"], users.list_users),
        (prefix, ["POST"], users.create_user),
        (prefix, ["PUT"], users.update_user),
        (prefix + "/me", ["PUT"], users.update_me),
        (user, ["GET"], users.one_user),
        (user, ["DELETE"], users.delete_user),
        (user + "/certificates", ["POST"], certificates.issue),
        (user + "/certificates", ["DELETE"], certificates.revoke),
        (user + "/quota", ["GET"], quotas.user_quota),
        (user + "/quota", ["PUT"], quotas.set_user_quota),
        (user + "/group", ["PUT"], users.add_group),
        (user + "/group", ["DELETE"], users.remove_group),
        (user + "/grouplist", ["PUT"], users.set_groups),
        (user + "/extension", ["PUT"], users.update_extension),
        (user + "/virtualcluster", ["PUT"], users.update_virtual_clusters),
        (user + "/password", ["PUT"], users.update_password),
        (user + "/email", ["PUT"], users.update_email),
        (user + "/admin", ["PUT"], users.update_admin),
        (user + "/disabled", ["PUT"], users.update_disabled),
        (user + "/ssh-keys", ["POST"], users.add_ssh_key),
        (user + "/ssh-keys", ["DELETE"], users.remove_ssh_key),
    ]


def _group_routes(prefix: str) -> list[Row]:
    group = prefix + "/{group}"
    return [
        (prefix, ["GET"], groups.list_groups),
        (prefix, ["POST"], groups.create_group),
        (prefix, ["PUT"], groups.update_group),
        (group, ["GET"], groups.one_group),
        (group, ["DELETE"], groups.delete_group),
        (group + "/userlist", ["GET"], groups.members),
        (group + "/quota", ["GET"], quotas.group_quota),
        (group + "/quota", ["PUT"], quotas.set_group_quota),
        (group + "/extension", ["PUT"], groups.update_extension),
        (group + "/extension/{path:path}", ["PUT"], groups.update_extension_at),
        (group + "/description", ["PUT"], groups.update_description),
        (group + "/externalname", ["PUT"], groups.update_external_name),
    ]


ROUTES: list[Row] = [
    (_JOB + "/ssh", ["GET"], ssh.ssh),
    (_JOB + "/metrics", ["GET"], task_metrics.metrics),
    (_JOB + "/usage", ["GET"], usage.of_job),
    ("/api/v2/usage", ["GET"], usage.current),
    ("/api/v2/usage/nodes/{node}", ["GET"], usage.of_node),
    ("/api/v2/usage/virtual-clusters/{vc}", ["GET"], usage.of_virtual_cluster),
    (_JOB + "/log-search", ["GET"], log_search.search),
    (_JOB + "/tag", ["PUT"], jobs.add_tag),
    (_JOB + "/tag", ["DELETE"], jobs.delete_tag),
    (_JOB + "/job-attempts", ["GET"], job_attempts.list_attempts),
    (_JOB + "/job-attempts/healthz", ["GET"], job_attempts.healthz),
    (_JOB + "/job-attempts/{attempt:count}", ["GET"], job_attempts.one_attempt),
    ("/api/v2/job-checks", ["POST"], job_checks.check),
    ("/api/v2/job-schemas/{version}", ["GET"], job_schemas.schema),
    *_user_routes("/api/v2/users"),
    *_user_routes("/api/v2/user"),
    *_group_routes("/api/v2/groups"),
    *_group_routes("/api/v2/group"),
    ("/api/v2/settings", ["GET"], administration.settings),
    ("/api/v2/audit", ["GET"], administration.audit),
    ("/api/v2/quota", ["GET"], quotas.own_quotas),
    (_VC, ["PUT"], virtual_clusters.put_cluster),
    (_VC, ["DELETE"], virtual_clusters.delete_cluster),
    (_VC + "/status", ["PUT"], virtual_clusters.put_status),
    (_VC + "/sku-types", ["GET"], virtual_clusters.sku_types),
    ("/api/v2/cluster/sku-types", ["GET"], virtual_clusters.sku_types),
    ("/api/v2/storages", ["GET"], storages.list_storages),
    ("/api/v2/storages/{storage}", ["GET"], storages.one_storage),
    ("/api/v2/storages/{storage}/entries", ["GET"], storage_files.list_entries),
    ("/api/v2/storages/{storage}/entries", ["PUT"], storage_changes.make_folder),
    ("/api/v2/storages/{storage}/entries", ["DELETE"], storage_changes.delete_entry),
    ("/api/v2/storages/{storage}/moves", ["POST"], storage_changes.move_entry),
    ("/api/v2/storages/{storage}/uploads", ["POST"], storage_changes.begin_upload),
    ("/api/v2/storages/{storage}/uploads", ["DELETE"], storage_changes.cancel_upload),
    ("/api/v2/storages/{storage}/content", ["GET"], storage_files.read_content),
    ("/api/v2/storages/{storage}/content", ["PUT"], storage_changes.write_content),
    ("/api/v2/storages/{storage}/content-link", ["POST"], storage_files.issue_content_link),
    (_LEGACY_STORAGE + "config", ["GET"], legacy_storage_configs.list_configs),
    (_LEGACY_STORAGE + "configs", ["GET", "POST"], legacy_storage_configs.list_configs),
    (_LEGACY_STORAGE + "config", ["POST"], legacy_storage_configs.create_config),
    (_LEGACY_STORAGE + "config", ["PUT"], legacy_storage_configs.update_config),
    (_LEGACY_STORAGE + "config", ["DELETE"], legacy_storage_configs.delete_config),
    (_LEGACY_STORAGE + "config/{storage}", ["GET"], legacy_storage_configs.one_config),
    (_LEGACY_STORAGE + "config/{storage}", ["DELETE"], legacy_storage_configs.delete_config),
    (_LEGACY_STORAGE + "server", ["GET"], legacy_storage_configs.list_servers),
    (_LEGACY_STORAGE + "servers", ["GET", "POST"], legacy_storage_configs.list_servers),
    (_LEGACY_STORAGE + "server", ["POST"], legacy_storage_configs.create_server),
    (_LEGACY_STORAGE + "server", ["PUT"], legacy_storage_configs.update_server),
    (_LEGACY_STORAGE + "server", ["DELETE"], legacy_storage_configs.delete_server),
    (_LEGACY_STORAGE + "server/{storage}", ["GET"], legacy_storage_configs.one_server),
    (_LEGACY_STORAGE + "server/{storage}", ["DELETE"], legacy_storage_configs.delete_server),
    ("/api/v2/alerts", ["GET"], alerts.alerts),
    ("/alert-manager/api/v1/alerts", ["GET"], alerts.as_alertmanager),
    ("/api/v2/kubernetes/nodes", ["GET"], kubernetes_lists.nodes),
    ("/api/v2/kubernetes/pods", ["GET"], kubernetes_lists.pods),
    (_LOGS + "/tokens", ["POST"], login.log_token),
    (_LOGS + "/logs", ["GET"], task_logs.list_logs),
]
