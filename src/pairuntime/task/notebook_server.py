"""Runs a Jupyter server in a task: ``pairuntime notebook-server NOTEBOOK``.

The server listens on loopback, with the token in ``JUPYTER_TOKEN``. When it answers, one line in the log says
at which port. When it ends, notebooks that were edited or created are in ``$PAI_OUTPUT_DIR``; the notebook
itself is also copied there while the server runs, for a task that is killed.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

from pairuntime.task import jupyter_python

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from types import FrameType

FAILED = 1
READY = "Jupyter answers at port %d: %s"
"""The line that clients wait for: port and path of the notebook's page."""
# The page of each application that is known; the first one that is installed is started.
_APPLICATIONS = (("notebook", "notebooks"), ("jupyterlab", "lab/tree"))
# Runs an application as ``python -m`` does. jsonschema, which it imports, takes two seconds to compile the
# grammar of this package; no schema of Jupyter needs it. Kernels are other processes, and have the package.
WITHOUT_GRAMMAR = (
    "import runpy, sys; sys.modules.setdefault('rfc3987_syntax', None); del sys.argv[0]; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
_POLL_INTERVAL_S = 0.2
_SAVE_INTERVAL_S = 5.0
# Less than the grace period of a stopped task: the copies are made after it.
_EXIT_TIMEOUT_S = 5.0
_HOST = "127.0.0.1"
_SUFFIX = ".ipynb"


def main(argv: "list[str]") -> "int":
    try:
        packages = [name for name, _ in _APPLICATIONS if jupyter_python.is_installed(name)][:1]
        jupyter_python.ensure_packages(packages or ["notebook"], ["notebook-server"] + argv)
    except jupyter_python.NoJupyterError as e:
        sys.stderr.write("%s\n" % e)
        return FAILED
    return _Server(argv[0]).run()


class _Server:
    def __init__(self, notebook: "str") -> "None":
        self._notebook = notebook
        self._work = os.getcwd()
        self._output = os.environ.get("PAI_OUTPUT_DIR") or self._work
        self._started_at = time.time()
        self._saved_at = 0.0
        self._application, self._page = next(
            (module, page) for module, page in _APPLICATIONS if jupyter_python.is_installed(module)
        )
        self._process = None  # type: subprocess.Popen[bytes] | None
        self._is_stopped = False

    def run(self) -> "int":
        signal.signal(signal.SIGTERM, self._stop)
        port = _port()
        # Programs in the notebook ask where they run (`user_api.where`).
        environment = dict(os.environ, PAI_INTERACTIVE="1")
        self._process = subprocess.Popen(self._command(port), env=environment, stdin=subprocess.DEVNULL)
        if self._is_stopped:  # before there was a process to end
            self._process.terminate()
        is_ready = False
        while self._process.poll() is None:
            if not is_ready and _answers(port):
                is_ready = True
                sys.stdout.write(READY % (port, self._page + "/" + self._notebook) + "\n")
                sys.stdout.flush()
            self._save()
            time.sleep(_POLL_INTERVAL_S)
        self._save_all()
        if self._is_stopped:
            return 128 + signal.SIGTERM
        return self._process.returncode if is_ready else FAILED

    def _command(self, port: "int") -> "list[str]":
        command = [
            sys.executable,
            "-c",
            WITHOUT_GRAMMAR,
            self._application,
            "--no-browser",
            "--ip=" + _HOST,
            "--port=%d" % port,
        ]
        # Another port than the announced one would be of no use.
        command.append("--ServerApp.port_retries=0")
        if os.geteuid() == 0:
            command.append("--allow-root")
        return command

    def _stop(self, number: "int", frame: "FrameType | None") -> "None":
        self._is_stopped = True
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            signal.signal(signal.SIGALRM, lambda *_: process.kill())
            signal.alarm(int(_EXIT_TIMEOUT_S))

    # -- edits ---------------------------------------------------------------------------------------

    def _save(self) -> "None":
        """Copy the notebook if it has changed since the last copy."""
        if time.time() - self._saved_at < _SAVE_INTERVAL_S:
            return
        changed_at = _changed_at(self._notebook)
        if changed_at > max(self._saved_at, self._started_at):
            self._copy(self._notebook)
        self._saved_at = time.time()

    def _save_all(self) -> "None":
        self._copy(self._notebook)
        for folder, folders, names in os.walk(self._work):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), self._work)
                if name.endswith(_SUFFIX) and _changed_at(path) > self._started_at:
                    self._copy(path)

    def _copy(self, path: "str") -> "None":
        target = os.path.join(self._output, path)
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(path, target + ".part")
            os.rename(target + ".part", target)
        except OSError as e:
            sys.stderr.write("%s could not be copied to the outputs: %s.\n" % (path, e.strerror))


def _changed_at(path: "str") -> "float":
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _port() -> "int":
    """The port that the job has for it, so that its status shows the right one; else any that is free."""
    requested = os.environ.get("PAI_CONTAINER_HOST_jupyter_PORT_LIST", "").split(",")[0]
    if requested.isdigit():
        try:
            return _bound_port(int(requested))
        except OSError:  # another program took it
            pass
    return _bound_port(0)


def _bound_port(port: "int") -> "int":
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((_HOST, port))
        return int(probe.getsockname()[1])


def _answers(port: "int") -> "bool":
    """Whether the server answers a request, with whatever status."""
    try:
        with socket.create_connection((_HOST, port), timeout=2) as connection:
            connection.sendall(b"GET /api HTTP/1.0\r\nHost: localhost\r\n\r\n")
            return connection.recv(5) == b"HTTP/"
    except OSError:
        return False
