"""Server of the report API alone, for engines whose tasks report over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from paicluster.api.middleware.policies import HttpPolicies
from paicluster.api.middleware.route_wrapper import wrap_route
from paicluster.api.requests.endpoint import endpoint_of
from paicluster.api.routing.scope import CONTEXT_KEY
from paicluster.api.v2 import task_reports
from paicluster.engines.interface import ReportSink


def app_of(sink: ReportSink) -> ASGIApp:
    """Only the routes of the report API."""
    policies = HttpPolicies()
    routes = [
        Route(route.path, wrap_route(route, endpoint_of(route), policies), methods=list(route.methods))
        for route in task_reports.route
    ]
    app = Starlette(routes=routes)
    context = SimpleNamespace(
        engines=SimpleNamespace(report_sink=lambda uid: sink), server=SimpleNamespace(policies=policies)
    )

    async def with_context(scope: Scope, receive: Receive, send: Send) -> None:
        scope[CONTEXT_KEY] = context
        await app(scope, receive, send)

    return with_context


class QuietServer(uvicorn.Server):
    def capture_signals(self) -> Any:
        """Signals are handled by the test."""
        return contextlib.nullcontext()


@contextlib.asynccontextmanager
async def serving(sink: ReportSink, host: str, port: int) -> AsyncIterator[None]:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    config = uvicorn.Config(
        app_of(sink), lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1
    )
    server = QuietServer(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving
