"""Current notebook: the file whose cell runs this program, and whether it has what is on the screen.

A kernel does not know its notebook. In this order are asked: VS Code's variable, the Jupyter server that has
started the kernel (which knows the name after a rename, too), the variable that it set at the start.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from paiprotocol.errors import UsageError

SUFFIX = ".ipynb"
_VSCODE_VARIABLE = "__vsc_ipynb_file__"
_JUPYTER_VARIABLE = "JPY_SESSION_NAME"
_SERVER_TIMEOUT_S = 2.0
"""The servers are on this machine. One that hangs must not keep the cell."""
_MAX_SERVERS = 20
_MAX_ANSWER_BYTES = 4 << 20


def current_notebook() -> str:
    """Path of the notebook whose cell runs this, saved as it is now."""
    shell = _shell()
    if shell is None:
        raise UsageError(
            "This program is not a cell of a notebook.", hint="Name the notebook: its .ipynb file."
        )
    notebook = next((path for path in _candidates(shell) if path.suffix == SUFFIX and path.is_file()), None)
    if notebook is None:
        raise UsageError(
            "The file of this notebook cannot be found out.",
            hint="Name it: submit_notebook('train.ipynb'), Job().from_notebook('train.ipynb').",
        )
    _check_saved(shell, notebook)
    return str(notebook)


def _shell() -> Any:
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_ipython() if get_ipython is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None


def _candidates(shell: Any) -> Any:
    if path := shell.user_ns.get(_VSCODE_VARIABLE):
        yield Path(str(path))
    yield from _from_servers(_kernel_id(shell))
    if path := os.environ.get(_JUPYTER_VARIABLE):
        yield Path(path)


def _kernel_id(shell: Any) -> str:
    parent = getattr(shell.kernel, "parent", None)  # the application that runs the kernel
    file = Path(str(getattr(parent, "connection_file", ""))).name
    match = re.fullmatch(r"kernel-(.+)\.json", file)
    return match[1] if match else ""


def _from_servers(kernel_id: str) -> Any:
    """Paths that the running Jupyter servers of this user have for a kernel."""
    if not kernel_id:
        return
    try:
        from jupyter_core.paths import jupyter_runtime_dir

        files = sorted(Path(jupyter_runtime_dir()).glob("*server-*.json"), key=os.path.getmtime, reverse=True)
    except (ImportError, OSError):
        return
    for file in files[:_MAX_SERVERS]:
        try:
            server = json.loads(file.read_text())
            sessions = _sessions(server)
            root = Path(str(server.get("root_dir") or server.get("notebook_dir") or "."))
            for session in sessions:
                if session["kernel"]["id"] == kernel_id:
                    yield root / str(session.get("path") or session["notebook"]["path"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # a server that has ended, or another kind of file


def _sessions(server: dict[str, Any]) -> list[dict[str, Any]]:
    from urllib.request import ProxyHandler, Request, build_opener

    request = Request(f"{str(server['url']).rstrip('/')}/api/sessions")
    request.add_header("Authorization", f"token {server.get('token') or ''}")
    # Without proxies: the token is for this machine only.
    with build_opener(ProxyHandler({})).open(request, timeout=_SERVER_TIMEOUT_S) as answer:
        sessions: list[dict[str, Any]] = json.loads(answer.read(_MAX_ANSWER_BYTES))
        return sessions


def _check_saved(shell: Any, path: Path) -> None:
    """Reject a file that lacks the cell that runs now: then it is not what is on the screen."""
    history = getattr(shell.history_manager, "input_hist_raw", None) or [""]
    running = str(history[-1]).strip()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        cells = ["".join(cell.get("source") or "").strip() for cell in content["cells"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return  # opening the notebook says what is wrong with it
    if running and running not in cells:
        raise UsageError(
            f"{path.name} has changes that are not saved, at least in this cell.",
            hint="Save the notebook (Ctrl-S), and run the cell again.",
        )
