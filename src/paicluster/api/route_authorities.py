"""Authorities of all routes, by handler (that of `/openapi.json` is in `app`). A handler that is not listed
accepts no token.

`docs/contributing/api.md` has them as a table, which `make docs` writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api import marketplace, prometheus_query, server_status, task_reports
from paicluster.api.authority import (
    ACCOUNT,
    ADMIN_READS,
    ADMINISTRATION,
    CLUSTER,
    FILES,
    JOBS,
    JOBS_V1,
    PUBLIC,
    READABLE_BY_TICKET,
    TICKET,
    Authority,
)
from paicluster.api.paddlecloud import chunks as paddle_chunks
from paicluster.api.paddlecloud import files as paddle_files
from paicluster.api.paddlecloud import jobs as paddle_jobs
from paicluster.api.paddlecloud import login as paddle_login
from paicluster.api.paddlecloud import registries as paddle_registries
from paicluster.api.paddlecloud import workers as paddle_workers
from paicluster.api.portal import routes as portal
from paicluster.api.transfer import routes as transfer
from paicluster.api.v1 import jobs as v1_jobs
from paicluster.api.v1 import ssh as v1_ssh
from paicluster.api.v1 import task_logs as v1_task_logs
from paicluster.api.v1 import users as v1_users
from paicluster.api.v1 import virtual_clusters as v1_virtual_clusters
from paicluster.api.v2 import (
    administration,
    alerts,
    apps,
    browser_sessions,
    certificates,
    follow,
    forward,
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
    sources,
    ssh,
    storage_files,
    storages,
    task_logs,
    task_metrics,
    usage,
    users,
    virtual_clusters,
)
from paicluster.api.v2 import exec as exec_route
from paicluster.api.webhdfs import routes as webhdfs

Handler = Callable[[Request], Awaitable[Response]]

_HANDLERS: Mapping[Authority, tuple[Handler, ...]] = {
    PUBLIC: (
        login.banner,
        login.info,
        login.authn_info,
        login.login,
        login.log_token,
        server_status.health,
        paddle_login.api_token_auth,
        paddle_files.get_published,
        browser_sessions.sign_in,
        *(handler for _, _, handler in portal.ROUTES),
    ),
    TICKET: (
        *(handler for _, _, handler in task_reports.ROUTES),
        v1_ssh.private_key,
        v1_task_logs.list_files,
        v1_task_logs.read_file,
    ),
    FILES: (webhdfs.webhdfs, *(handler for _, _, handler in transfer.ROUTES)),
    JOBS: (
        jobs.submit,
        job_checks.check,
        job_schemas.schema,
        jobs.list_jobs,
        jobs.detail,
        jobs.config,
        jobs.execution_type,
        jobs.events,
        jobs.task_attempts,
        ssh.ssh,
        jobs.add_tag,
        jobs.delete_tag,
        follow.follow,
        log_search.search,
        exec_route.exec_session,
        forward.forward,
        apps.open_app,
        task_logs.locations,
        task_metrics.metrics,
        usage.current,
        usage.of_job,
        usage.of_node,
        usage.of_virtual_cluster,
        job_attempts.list_attempts,
        job_attempts.healthz,
        job_attempts.one_attempt,
        quotas.own_quotas,
        sources.has_sources,
        sources.put_sources,
        virtual_clusters.list_clusters,
        virtual_clusters.one_cluster,
        virtual_clusters.sku_types,
        storages.list_storages,
        storages.one_storage,
        storage_files.list_entries,
        storage_files.issue_content_link,
        legacy_storage_configs.list_configs,
        legacy_storage_configs.one_config,
        legacy_storage_configs.list_servers,
        legacy_storage_configs.one_server,
        v1_jobs.submit,
        v1_jobs.execution_type,
        paddle_jobs.submit,
        paddle_jobs.submit_v1,
        paddle_jobs.submit_v2,
        paddle_jobs.list_jobs,
        paddle_jobs.list_pservers,
        paddle_workers.list_workers,
        paddle_workers.logs,
        paddle_workers.quota,
        paddle_files.get_file,
        paddle_files.put_file,
        paddle_files.list_names,
        paddle_files.list_published,
        paddle_chunks.get_files,
        paddle_chunks.change_files,
        paddle_chunks.chunk_meta,
        paddle_chunks.get_chunk,
        paddle_chunks.put_chunk,
    ),
    JOBS_V1: (
        v1_jobs.list_jobs,
        v1_jobs.detail,
        v1_jobs.config,
        v1_ssh.ssh,
        v1_virtual_clusters.list_clusters,
        v1_virtual_clusters.one_cluster,
    ),
    READABLE_BY_TICKET: (task_logs.list_logs, task_logs.read_log, storage_files.read_content),
    CLUSTER: (
        v1_jobs.remove,
        paddle_jobs.kill,
        paddle_login.token2user,
        paddle_files.publish,
        paddle_registries.list_registries,
        paddle_registries.put_registry,
        paddle_registries.delete_registry,
        users.list_users,
        users.one_user,
        groups.list_groups,
        groups.one_group,
        quotas.user_quota,
        quotas.group_quota,
        alerts.alerts,
        alerts.as_alertmanager,
        login.check_token,
        browser_sessions.issue_link,
        server_status.metrics,
        prometheus_query.query,
        prometheus_query.query_range,
        marketplace.empty_list,
        marketplace.no_item,
        marketplace.refuse_change,
    ),
    ACCOUNT: (
        login.logout,
        browser_sessions.sign_out,
        login.list_tokens,
        login.application_token,
        login.revoke_token,
        users.update_me,
        users.update_extension,
        users.update_password,
        users.update_email,
        users.add_ssh_key,
        users.remove_ssh_key,
        v1_users.put_user,
    ),
    ADMIN_READS: (
        administration.settings,
        administration.audit,
        groups.members,
        kubernetes_lists.nodes,
        kubernetes_lists.pods,
    ),
    ADMINISTRATION: (
        users.create_user,
        users.update_user,
        users.delete_user,
        users.add_group,
        users.remove_group,
        users.set_groups,
        users.update_virtual_clusters,
        users.update_admin,
        users.update_disabled,
        groups.create_group,
        groups.update_group,
        groups.delete_group,
        groups.update_extension,
        groups.update_extension_at,
        groups.update_description,
        groups.update_external_name,
        quotas.set_user_quota,
        certificates.issue,
        certificates.revoke,
        quotas.set_group_quota,
        virtual_clusters.put_cluster,
        virtual_clusters.delete_cluster,
        virtual_clusters.put_status,
        legacy_storage_configs.create_config,
        legacy_storage_configs.update_config,
        legacy_storage_configs.delete_config,
        legacy_storage_configs.create_server,
        legacy_storage_configs.update_server,
        legacy_storage_configs.delete_server,
        v1_users.delete_user,
        v1_users.put_virtual_clusters,
        v1_virtual_clusters.put_cluster,
        v1_virtual_clusters.delete_cluster,
        v1_virtual_clusters.put_status,
    ),
}

AUTHORITIES: Mapping[Handler, Authority] = {
    handler: authority for authority, handlers in _HANDLERS.items() for handler in handlers
}
