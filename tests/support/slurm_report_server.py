"""A Slurm engine with a minimal server for the reports of its tasks."""

from __future__ import annotations

import asyncio
import contextlib
import socket
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
from paicluster.engines.interface import Hint, Notify, ReportSink, ignore_notice
from paicluster.engines.slurm.engine import SlurmEngine
from paicluster.engines.slurm.options import SlurmOptions


def app_of(kept: ReportSink) -> ASGIApp:
    """Only the routes of the report API."""
    policies = HttpPolicies()
    routes = [
        Route(route.path, wrap_route(route, endpoint_of(route), policies), methods=list(route.methods))
        for route in task_reports.route
    ]
    app = Starlette(routes=routes)
    context = SimpleNamespace(
        engines=SimpleNamespace(report_sink=lambda uid: kept), server=SimpleNamespace(policies=policies)
    )

    async def with_context(scope: Scope, receive: Receive, send: Send) -> None:
        scope[CONTEXT_KEY] = context
        await app(scope, receive, send)

    return with_context


class QuietServer(uvicorn.Server):
    def capture_signals(self) -> Any:
        """Signals are handled by the test."""
        return contextlib.nullcontext()


class ReportedEngine(SlurmEngine):
    def __init__(self, options: SlurmOptions, port: int):
        super().__init__(options, url=f"http://127.0.0.1:{port}")
        self._port = port

    async def start(self, hint: Hint, say: Notify = ignore_notice) -> None:
        await super().start(hint, say)
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        config = uvicorn.Config(
            app_of(self.reports),
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        self._server = QuietServer(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))

    async def close(self) -> None:
        self._server.should_exit = True
        await self._serving
        await super().close()
