"""A Slurm engine with a minimal server for the reports of its tasks."""

from __future__ import annotations

import contextlib

from paicluster.engines.interface import Hint, Notify, ignore_notice
from paicluster.engines.slurm.engine import SlurmEngine
from paicluster.engines.slurm.options import SlurmOptions
from support.report_server import serving


class ReportedEngine(SlurmEngine):
    def __init__(self, options: SlurmOptions, port: int):
        super().__init__(options, url=f"http://127.0.0.1:{port}")
        self._port = port
        self._serving = contextlib.AsyncExitStack()

    async def start(self, hint: Hint, say: Notify = ignore_notice) -> None:
        await super().start(hint, say)
        await self._serving.enter_async_context(serving(self.reports, "127.0.0.1", self._port))

    async def close(self) -> None:
        await self._serving.aclose()
        await super().close()
