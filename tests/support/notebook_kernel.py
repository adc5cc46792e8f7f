"""A real IPython kernel, for tests of what a notebook's cells do and show."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

from pairuntime.task.notebook_server import WITHOUT_GRAMMAR
from support.cli_user import until

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


class Cells:
    """Cells of one kernel; they run one after the other."""

    def __init__(self, client: BlockingKernelClient, interrupt: Callable[[], object]):
        self.client = client
        self._interrupt = interrupt
        self._shown_by: dict[str, CellResult] = {}
        self.client.start_channels()
        until(self._is_ready, LIMIT_S)

    def _is_ready(self) -> bool:
        try:
            self.client.wait_for_ready(timeout=LIMIT_S)
        except RuntimeError:  # another process starts the kernel, and it does not answer yet
            return False
        return True

    def run(
        self, code: str, *, interrupt_when: str = "", on_output: Callable[[CellResult], object] | None = None
    ) -> CellResult:
        """Run a cell; with ``interrupt_when``, interrupt it as soon as it has printed that text."""
        result = CellResult()
        interrupted = False

        def collect(message: dict[str, Any]) -> None:
            nonlocal interrupted
            self._collect(result, message)
            if on_output is not None:
                on_output(result)
            if interrupt_when and interrupt_when in result.out and not interrupted:
                interrupted = True
                self._interrupt()

        self.client.execute_interactive(code, output_hook=collect, timeout=LIMIT_S)
        return result

    def updates(self, result: CellResult, until: str) -> None:
        """Receive what is displayed later, until the HTML contains a text."""
        deadline = time.monotonic() + LIMIT_S
        while until not in result.html:
            left = deadline - time.monotonic()
            assert left > 0, f"{until!r} is not displayed: {result}"
            self._collect(result, self.client.get_iopub_msg(timeout=left))

    def _collect(self, result: CellResult, message: dict[str, Any]) -> None:
        """Add a message to a cell; an update of a display goes to the cell that showed it."""
        content, kind = message["content"], message["msg_type"]
        if kind == "stream" and content["name"] == "stdout":
            result.out += content["text"]
        elif kind == "stream":
            result.err += content["text"]
        elif kind in ("display_data", "update_display_data", "execute_result"):
            identity = content.get("transient", {}).get("display_id") or f"output {len(result.displays)}"
            if kind == "update_display_data":
                result = self._shown_by[identity]
            else:
                self._shown_by[identity] = result
            result.displays[identity] = content["data"]
            result.history.append(content["data"].get("text/html", ""))
        elif kind == "error":
            result.error = [content["ename"], content["evalue"], *content["traceback"]]

    def close(self) -> None:
        self.client.stop_channels()


class NotebookKernel(Cells):
    """A kernel that this process starts."""

    def __init__(self, cwd: str, env: dict[str, str]):
        self._manager = KernelManager()
        self._manager.start_kernel(cwd=cwd, env=env)
        super().__init__(self._manager.client(), self._manager.interrupt_kernel)

    def close(self) -> None:
        super().close()
        self._manager.shutdown_kernel(now=True)


class JupyterServer:
    """A Jupyter server with a folder of notebooks; its kernels are those of its sessions."""

    TOKEN = "token-of-the-server"

    def __init__(self, folder: Path, env: dict[str, str]):
        self.folder = folder
        self._runtime = folder.parent / "jupyter-runtime"
        self._cells: list[Cells] = []
        # No configuration of the machine.
        settings = {"JUPYTER_RUNTIME_DIR": str(self._runtime), "JUPYTER_NO_CONFIG": "1"}
        words = ["--allow-root", "--no-browser", "--port=0", f"--ServerApp.root_dir={folder}"]
        command = [sys.executable, "-c", WITHOUT_GRAMMAR, "jupyter_server"]
        self._process = subprocess.Popen(
            [*command, *words, f"--IdentityProvider.token={self.TOKEN}"],
            env={**env, **settings},
            stderr=subprocess.DEVNULL,
        )
        file = self._runtime / f"jpserver-{self._process.pid}.json"
        until(file.exists)
        until(lambda: file.read_text().endswith("}"))
        self._url = json.loads(file.read_text())["url"]
        until(self._answers)

    def _answers(self) -> bool:
        try:
            self.request("GET", "api")
        except OSError:
            return False
        return True

    def open(self, notebook: str) -> Cells:
        """Open a notebook, as a browser does: a session with a kernel."""
        session = {"path": notebook, "name": notebook, "type": "notebook", "kernel": {"name": "python3"}}
        made = self.request("POST", "api/sessions", session)
        connection = self._runtime / f"kernel-{made['kernel']['id']}.json"
        client = BlockingKernelClient(connection_file=str(connection))
        client.load_connection_file()
        self._cells.append(Cells(client, lambda: None))
        self._cells[-1].session = made["id"]  # type: ignore[attr-defined]
        return self._cells[-1]

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self._url}{path}", data=data, method=method)
        request.add_header("Authorization", f"token {self.TOKEN}")
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def close(self) -> None:
        for cells in self._cells:
            cells.close()
        self._process.terminate()
        self._process.wait(LIMIT_S)
