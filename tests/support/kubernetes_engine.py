"""A Kubernetes engine with a minimal server for the reports of its tasks, for contract tests."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from paicluster.engines.interface import Hint, Notify, ignore_notice
from paicluster.engines.kubernetes import cluster_access
from paicluster.engines.kubernetes.engine import KubernetesEngine
from paicluster.engines.kubernetes.options import KubernetesOptions, PodSettings
from support.container_images import WITH_BASH, WITH_PYTHON
from support.report_server import serving


class ReportedEngine(KubernetesEngine):
    def __init__(
        self,
        home: Path,
        kubeconfig: Path,
        host: str,
        port: int,
        shared: tuple[Path, str] | None = None,
        **more: Any,
    ):
        """``host``: address of this machine for pods. ``shared``: a folder that tasks see, and its claim."""
        # As root, which may write to the folders of tests.
        given: dict[str, Any] = {"runtime_image": WITH_PYTHON, "image": WITH_BASH, "run_as": 0, "drain_s": 5}
        if shared is not None:
            # The test's folder, under its own name, in every task.
            given["default_pods"] = PodSettings(claims={str(shared[0]): shared[1]})
        options = KubernetesOptions(**{**given, **more})
        access = cluster_access.of_kubeconfig([kubeconfig])
        super().__init__(home, options, access, url=f"http://{host}:{port}", grace_s=10)
        self._address = (host, port)
        self._serving = contextlib.AsyncExitStack()

    async def start(self, hint: Hint, notify: Notify = ignore_notice) -> None:
        await super().start(hint, notify)
        await self._serving.enter_async_context(serving(self.reports, *self._address))

    async def close(self) -> None:
        await self._serving.aclose()
        await super().close()
