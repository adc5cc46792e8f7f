"""A real IPython kernel, for tests of what a notebook's cells do and show."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

LIMIT_S = 90


class CellResult:
    """What one cell printed, displayed and raised."""

    def __init__(self) -> None:
        self.out = self.err = ""
        self.displays: dict[str, dict[str, str]] = {}
        """MIME bundles by display id; those of updates replace the first."""
        self.history: list[str] = []
        """Every HTML that was displayed, also those replaced later."""
        self.error: list[str] = []
        """Name, value and traceback of the error, as the notebook shows it."""

    @property
    def html(self) -> str:
        return "\n".join(bundle.get("text/html", "") for bundle in self.displays.values())

    def __repr__(self) -> str:
        return f"out: {self.out}\nerr: {self.err}\nerror: {self.error}\nhtml: {self.history}"


class NotebookKernel:
    """Starts a kernel in the current folder and environment; cells run one after the other."""

    def __init__(self, cwd: str, env: dict[str, str]):
        self._manager = KernelManager()
        self._manager.start_kernel(cwd=cwd, env=env)
        self.client: BlockingKernelClient = self._manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=LIMIT_S)

    def run(
        self, code: str, *, interrupt_when: str = "", on_output: Callable[[CellResult], object] | None = None
    ) -> CellResult:
        """Run a cell; with ``interrupt_when``, interrupt it as soon as it has printed that text."""
        result = CellResult()
        interrupted = False

        def collect(message: dict[str, Any]) -> None:
            nonlocal interrupted
            _collect(result, message)
            if on_output is not None:
                on_output(result)
            if interrupt_when and interrupt_when in result.out and not interrupted:
                interrupted = True
                self._manager.interrupt_kernel()

        self.client.execute_interactive(code, output_hook=collect, timeout=LIMIT_S)
        return result

    def updates(self, result: CellResult, until: str) -> None:
        """Receive what is displayed later, until the HTML contains a text."""
        deadline = time.monotonic() + LIMIT_S
        while until not in result.html:
            left = deadline - time.monotonic()
            assert left > 0, f"{until!r} is not displayed: {result}"
            _collect(result, self.client.get_iopub_msg(timeout=left))

    def close(self) -> None:
        self.client.stop_channels()
        self._manager.shutdown_kernel(now=True)


def _collect(result: CellResult, message: dict[str, Any]) -> None:
    content, kind = message["content"], message["msg_type"]
    if kind == "stream" and content["name"] == "stdout":
        result.out += content["text"]
    elif kind == "stream":
        result.err += content["text"]
    elif kind in ("display_data", "update_display_data", "execute_result"):
        identity = content.get("transient", {}).get("display_id") or f"output {len(result.displays)}"
        result.displays[identity] = content["data"]
        result.history.append(content["data"].get("text/html", ""))
    elif kind == "error":
        result.error = [content["ename"], content["evalue"], *content["traceback"]]
