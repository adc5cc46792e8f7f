"""Runs a notebook in a task: ``pairuntime notebook [--parameters JSON] [-p NAME=VALUE ...] NOTEBOOK``.

The outputs of the cells go to the log while they arise. The executed notebook and a page of it are written to
``$PAI_OUTPUT_DIR``, also if a cell fails, the kernel dies or the task is stopped: then as far as it came.
Jupyter itself (nbclient, nbconvert) is that of the task's environment.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time

from pairuntime.task import jupyter_python, notebook_parameters
from pairuntime.task.notebook_parameters import ParameterError

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any

FAILED = 1
STOPPED = 128 + signal.SIGTERM
EXECUTED_SUFFIX = ".executed.ipynb"
PAGE_SUFFIX = ".html"
# The executed notebook is also written during the run: a task that is killed leaves what was done until then.
_SAVE_INTERVAL_S = 5.0
# Addresses of sockets in folders have 107 bytes at most, of which the name takes some.
_MAX_SOCKET_FOLDER = 90
_PYTHON_KERNEL = "python3"
# Colours and cursor movements, which IPython puts into tracebacks.
_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class NotebookError(Exception):
    """The notebook cannot be run; the message is for the user."""


def main(argv: "list[str]") -> "int":
    arguments = argv
    parameters = {}  # type: dict[str, Any]
    while len(arguments) > 2:
        option, value, arguments = arguments[0], arguments[1], arguments[2:]
        parameters.update(
            json.loads(value) if option == "--parameters" else [notebook_parameters.parse(value)]
        )
    try:
        jupyter_python.ensure_packages(jupyter_python.EXECUTION_PACKAGES, ["notebook"] + argv)
        return _Run(arguments[0], parameters).run()
    except (NotebookError, ParameterError, jupyter_python.NoJupyterError) as e:
        sys.stderr.write("%s\n" % e)
        return FAILED


def read_notebook(path: "str") -> "Any":
    """The notebook in Jupyter's newest format."""
    # nbformat imports jsonschema, which takes two seconds to compile the grammar of this package where
    # Jupyter brought it; no schema of a notebook needs it. The notebook's own code runs in another process.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    import nbformat

    name = os.path.basename(path)
    try:
        with open(path, encoding="utf-8") as f:
            return nbformat.reads(f.read(), as_version=4)
    except OSError as e:
        raise NotebookError("The notebook %s cannot be read: %s." % (name, e.strerror))
    except Exception as e:  # noqa: BLE001 - nbformat raises many kinds of errors
        raise NotebookError("%s is not a Jupyter notebook: %s" % (name, str(e).splitlines()[0]))


def complete_kernel(notebook: "Any") -> "None":
    """Complete what a notebook tells of its kernel: editors and programs write parts of it, or nothing.

    Without name and title no page is made of a notebook, and other programs refuse the executed one.
    """
    spec = notebook.metadata.pop("kernelspec", None)
    if not isinstance(spec, dict):
        return
    language = spec.get("language") if isinstance(spec.get("language"), str) else ""
    name = spec.get("name") if isinstance(spec.get("name"), str) else ""
    name = name or (_kernel_of_language(language) if language else "") or _PYTHON_KERNEL
    title = spec.get("display_name")
    spec.update(name=name, display_name=title if isinstance(title, str) and title else name)
    if not language:
        spec.pop("language", None)
    notebook.metadata["kernelspec"] = spec


def _kernel_of_language(language: "str") -> "str":
    """A kernel of this task for a language; the language itself if there is none, for the error message."""
    if language.lower() == "python":
        return _PYTHON_KERNEL
    from jupyter_client.kernelspec import KernelSpecManager

    for name, kernel in sorted(KernelSpecManager().get_all_specs().items()):
        if str(kernel["spec"].get("language", "")).lower() == language.lower():
            return str(name)
    return language


class _Run:
    def __init__(self, path: "str", parameters: "dict[str, Any]") -> "None":
        self._path = path
        self._name = os.path.basename(path)
        notebook = read_notebook(path)
        complete_kernel(notebook)
        self._notebook = notebook_parameters.with_parameters(notebook, parameters)
        stem = self._name[: -len(".ipynb")] if self._name.endswith(".ipynb") else self._name
        self._target = os.path.join(os.environ.get("PAI_OUTPUT_DIR") or os.getcwd(), stem)
        self._saved_at = time.monotonic()

    def run(self) -> "int":
        # A kernel of a batch job is not interactive (`user_api.where`).
        os.environ["PAI_INTERACTIVE"] = "0"
        # By which `pai resubmit` in a cell recognises the notebook that already runs.
        os.environ["PAI_NOTEBOOK"] = os.path.abspath(self._path)
        # Its import takes as long as the start of the kernel: both happen at the same time.
        page_import = threading.Thread(target=_import_nbconvert)
        # Only this user may enter it: who can connect to a kernel can run code in it.
        sockets = tempfile.mkdtemp(prefix="kernel-")
        try:
            client = _make_client(self._notebook, sockets, page_import, self._save_sometimes)
            try:
                status = self._execute(client)
            finally:
                self._save()
        finally:
            # Also if the disk is full.
            shutil.rmtree(sockets, ignore_errors=True)
        if page_import.ident is not None:
            page_import.join()
        return self._write_page() or status

    def _execute(self, client: "Any") -> "int":
        from jupyter_client.kernelspec import NoSuchKernel
        from nbclient.exceptions import CellExecutionError, DeadKernelError

        folder = os.path.dirname(os.path.abspath(self._path))
        try:
            client.execute(cwd=folder)
        except CellExecutionError:
            sys.stderr.write("%s of %s failed.\n" % (client.current_cell, self._name))
            return FAILED
        except DeadKernelError:
            if client.is_stopped:
                sys.stderr.write("%s was stopped in %s.\n" % (self._name, client.current_cell.lower()))
                return STOPPED
            sys.stderr.write(
                "The kernel died in %s of %s. It may have used more memory than the job has (--mem).\n"
                % (client.current_cell.lower(), self._name)
            )
            return FAILED
        except NoSuchKernel as e:
            raise NotebookError(
                "%s needs the kernel %s, which this task does not have. Install it where the job runs, or "
                "use an image that has it." % (self._name, e.name)
            )
        except RuntimeError as e:  # the kernel ended before it answered
            raise NotebookError("The kernel of %s could not be started: %s" % (self._name, e))
        return 0

    def _save_sometimes(self) -> "None":
        if time.monotonic() - self._saved_at > _SAVE_INTERVAL_S:
            self._save()

    def _save(self) -> "None":
        import nbformat

        _write(self._target + EXECUTED_SUFFIX, nbformat.writes(self._notebook))
        self._saved_at = time.monotonic()

    def _write_page(self) -> "int":
        title = os.path.basename(self._target)
        try:
            from nbconvert import HTMLExporter

            page, _ = HTMLExporter().from_notebook_node(self._notebook, {"metadata": {"name": title}})
        except Exception as e:  # noqa: BLE001 - nbconvert of whatever version, with whatever templates
            sys.stderr.write("The page of %s could not be made: %s\n" % (self._name, e))
            return FAILED
        _write(self._target + PAGE_SUFFIX, page)
        return 0


def _write(path: "str", text: "str") -> "None":
    with open(path + ".part", "w", encoding="utf-8") as f:
        f.write(text)
    os.rename(path + ".part", path)


def _import_nbconvert() -> "None":
    try:
        import nbconvert  # noqa: F401
    except Exception:  # noqa: BLE001 - reported where it is used
        pass


def _make_client(
    notebook: "Any", socket_folder: "str", page_import: "threading.Thread", on_cell_end: "Any"
) -> "Any":
    """Client of the notebook's kernel. Its class exists only where nbclient does."""
    from nbclient import NotebookClient

    class LogClient(NotebookClient):  # type: ignore[misc]
        """Runs the cells and writes their outputs to the log as they arise."""

        is_stopped = False
        _index = 0

        @property
        def current_cell(self) -> "str":
            return "Cell %d" % (self._index + 1)

        def create_kernel_manager(self) -> "Any":
            manager = NotebookClient.create_kernel_manager(self)
            # With the key of the kernel; in the temporary folder it would stay there if the task is killed.
            manager.connection_file = os.path.join(socket_folder, "connection.json")
            # Not all languages know sockets in a folder.
            is_python = any("ipykernel" in word for word in manager.kernel_spec.argv)
            if is_python and len(socket_folder) < _MAX_SOCKET_FOLDER:
                # Ports are chosen before the kernel binds them: another program may have them by then.
                manager.transport = "ipc"
                manager.ip = os.path.join(socket_folder, "kernel")
            elif manager.has_trait("transport_encryption"):  # other users of the machine share its loopback
                manager.transport_encryption = "auto"
            return manager

        async def async_start_new_kernel_client(self, **kwargs: "Any") -> "Any":
            page_import.start()
            # In place of nbclient's own handler, which does not tell a stop from a kernel that died.
            asyncio.get_event_loop().add_signal_handler(signal.SIGTERM, self._stop)
            return await NotebookClient.async_start_new_kernel_client(self, **kwargs)

        def _stop(self) -> "None":
            self.is_stopped = True
            if self.task_poll_for_reply is not None:
                self.task_poll_for_reply.cancel()

        async def async_execute_cell(self, cell: "Any", cell_index: "int", **kwargs: "Any") -> "Any":
            self._index = cell_index
            result = await NotebookClient.async_execute_cell(self, cell, cell_index, **kwargs)
            on_cell_end()
            return result

        def output(self, outs: "Any", msg: "Any", display_id: "Any", cell_index: "int") -> "Any":
            print_output(msg["msg_type"], msg["content"])
            return NotebookClient.output(self, outs, msg, display_id, cell_index)

    kernel = notebook.metadata.get("kernelspec", {}).get("name") or _PYTHON_KERNEL
    return LogClient(notebook, timeout=None, kernel_name=_available_kernel(kernel, notebook))


def _available_kernel(name: "str", notebook: "Any") -> "str":
    """The notebook's kernel; another one for Python if the task does not have it.

    Kernels are named after environments of the machine on which a notebook was written.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    is_python = notebook.metadata.get("kernelspec", {}).get("language", "python") == "python"
    if name in KernelSpecManager().find_kernel_specs() or not is_python:
        return name
    return _PYTHON_KERNEL


def print_output(kind: "str", content: "dict[str, Any]") -> "None":
    """Write an output of a cell to the log."""
    if kind == "stream":
        stream = sys.stderr if content["name"] == "stderr" else sys.stdout
        stream.write(content["text"])
    elif kind in ("execute_result", "display_data"):
        stream = sys.stdout
        stream.write(_as_text(content.get("data", {})) + "\n")
    elif kind == "error":
        stream = sys.stderr
        stream.write(_ESCAPE_SEQUENCE.sub("", "\n".join(content["traceback"])) + "\n")
    else:
        return
    stream.flush()


def _as_text(data: "dict[str, Any]") -> "str":
    text = data.get("text/plain", "")
    return "".join(text) if isinstance(text, list) else str(text)
