"""All routes of the server, from the modules that declare them, in the order in which paths are compared.

A new module with routes is added to one of the tuples; a new route of a listed module is added nowhere.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.monitoring import prometheus_query, server_status
from paicluster.api.paddlecloud import chunks, files, registries, workers
from paicluster.api.paddlecloud import jobs as paddle_jobs
from paicluster.api.paddlecloud import login as paddle_login
from paicluster.api.portal import openpai_addresses
from paicluster.api.portal import routes as portal
from paicluster.api.routing.authority import PUBLIC
from paicluster.api.routing.route import Route, Routes
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
    browser_logins,
    certificates,
    exec,
    follow,
    forward,
    groups,
    job_attempts,
    job_checks,
    job_runs,
    job_schemas,
    job_templates,
    jobs,
    kubernetes_lists,
    legacy_storage_configs,
    log_search,
    log_times,
    login,
    marketplace,
    quotas,
    sources,
    ssh,
    storage_changes,
    storage_files,
    storages,
    task_logs,
    task_metrics,
    task_reports,
    usage,
    users,
    virtual_clusters,
)
from paicluster.api.webhdfs import routes as webhdfs
from paicluster.api.wire.responses import Encoded

route = Routes("server")


@route(
    "GET /openapi.json",
    authority=PUBLIC,
    summary="This document",
    other_methods=405,
)
async def openapi(request: Request) -> Encoded[dict[str, Any]]:
    """In this module because the document describes all routes."""
    return Encoded(await asyncio.to_thread(_openapi_json, context(request).server.version))


@cache
def _openapi_json(version: str) -> bytes:
    """Built at the first request: most servers are never asked."""
    from paicluster.api.wire.openapi import openapi_json

    return openapi_json(DESCRIBED_ROUTES, version)


_OPENPAI = (
    # The most frequent first.
    *(jobs, follow, forward, exec, apps, task_logs, sources, virtual_clusters, login, browser_logins),
    *(ssh, task_metrics, job_runs, usage, log_search, log_times, job_attempts, job_checks, job_schemas),
    *(job_templates, users, certificates, quotas, groups, administration),
    *(storages, storage_files, storage_changes, legacy_storage_configs, alerts, kubernetes_lists),
    *(v1_jobs, v1_virtual_clusters, v1_users, v1_ssh, v1_task_logs),
    *(
        server_status,
        marketplace,
        prometheus_query,
        webhdfs,
        transfer,
        task_reports,
        portal,
        openpai_addresses,
    ),
)
_PADDLECLOUD = (paddle_login, paddle_jobs, workers, files, registries, chunks)

OPENPAI_ROUTES: tuple[Route, ...] = (*(declared for module in _OPENPAI for declared in module.route), *route)
PADDLECLOUD_ROUTES: tuple[Route, ...] = tuple(
    declared for module in _PADDLECLOUD for declared in module.route
)
_SHARED = {(method, declared.path) for declared in OPENPAI_ROUTES for method in declared.methods}
# On a path of both dialects a request without a mark of PaddleCloud's is OpenPAI's.
ROUTES: tuple[Route, ...] = (
    *OPENPAI_ROUTES,
    *(
        declaration
        for declaration in PADDLECLOUD_ROUTES
        if (declaration.methods[0], declaration.path) not in _SHARED
    ),
)
# WebHDFS is Hadoop's protocol, with its operations in the query; transfers are between our client and server,
# reports between our tasks and server; OpenAPI has no words for a WebSocket; and the portal is for browsers.
DESCRIBED_ROUTES: tuple[Route, ...] = tuple(
    declaration for declaration in (*OPENPAI_ROUTES, *PADDLECLOUD_ROUTES) if declaration.summary
)
