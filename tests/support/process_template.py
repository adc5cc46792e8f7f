"""Processes forked from one that has imported everything: imports are most of the start of a program.

A process of the tests has three templates, each from its first use: one for servers, one for the commands of
users, and one for commands that use a cloud. They end with it. A forked process runs the function of its
program, or a Python file, with its own arguments, variables, folder and streams. The programs themselves are
started by the tests of their start, by every shell and terminal, and by every `pai` that starts the embedded
cluster.

A forked command ends in another way: `exit_at_once` never ends it, because all modules are imported. It waits
for its threads, calls its `atexit` functions, and flushes its output, but does nothing else of what an
interpreter does at its end. When the last output cannot be written, it has the status of such an interpreter,
without the message. `tests/openpaisdk/cli/test_exit_statuses.py` compares the ends of both.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

COMMAND = (sys.executable, "-m", "paicluster")

# The programs that a user types, and the functions behind them.
USER_PROGRAMS = {
    "pai": ("openpaisdk.cli", "pai"),
    "opai": ("openpaisdk.cli", "opai"),
    "paddlecloud": ("openpaisdk.paddlecloud", "paddlecloud"),
}
_USED_PACKAGES = (
    "openpaisdk.cli",
    "openpaisdk.client",
    "openpaisdk.config",
    "openpaisdk.embedded",
    "openpaisdk.jobs",
    "openpaisdk.output",
    "openpaisdk.paddlecloud",
    "openpaisdk.storage",
    "paiprotocol",
)
# Of a server: programs, and scripts that only alembic can run.
_NOT_IMPORTED = ("paicluster.__main__", "paicluster.store.migrations")
# What libraries of a server import when it starts, or with its first request.
_IMPORTED_BY_LIBRARIES = (
    "anyio._backends._asyncio",
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.x509",
    "uvicorn.lifespan.off",
)
_SERVER, _USER_PROGRAM, _CLOUD_PROGRAM = "server", "user-program", "cloud-program"

# A command with the credentials of a cloud imports its libraries, which takes longer than all else it does.
_OF_CLOUDS = ("AWS_", "AZURE_")
_CLOUD_LIBRARIES = ("s3fs", "adlfs", "azure.storage.blob.aio")

_RECEIVED_BYTES = 1 << 20
# Of the arguments and variables, as they are sent: in one message, of which the kernel takes about 200 kB.
_MAX_REQUEST_BYTES = 1 << 17
_COMMAND_TIMEOUT_S = 90.0
# What a pipe takes before anything is read from it.
_PIPE_BYTES = 1 << 16

# The status of an interpreter that could not write the rest of its output.
_UNWRITTEN_OUTPUT_STATUS = 120

# Python and the loader read these once, when a process starts.
_READ_AT_EXEC = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_")


# Variables of developers and their containers, without which the commands of users are started.
_OF_DEVELOPERS = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")

# Of each command that has ended: the kernel does not count them as children of this process.
commands_cpu_s: list[float] = []


class TemplateDied(Exception):
    """The template has ended, and with it the reports about its processes."""


class ForkedProcess:
    """A running process, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int, args: Sequence[str], status: socket.socket):
        self.pid = pid
        self.args = list(args)
        self.returncode: int | None = None
        self.cpu_s = 0.0
        """Processor time, once it has ended."""
        self._status = status

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._ended(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and self._is_reported(timeout):
            reported = self._status.recv(64)
            if not reported:
                raise TemplateDied(
                    f"The status of {self.args} is unknown: the template of its process ended."
                )
            code, cpu_s = reported.split()
            self.returncode, self.cpu_s = int(code), float(cpu_s)
            self._status.close()
        return self.returncode

    def _is_reported(self, timeout: float | None) -> bool:
        # `select.select` refuses descriptors above 1023, which the process of many tests may have.
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))


def can_fork(program: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Whether a forked server is like this program, started with these variables."""
    runs_here = program == COMMAND or _is_python_file(program)
    return runs_here and not any(name.startswith(_READ_AT_EXEC) for name in variables)


def _is_python_file(program: Sequence[str]) -> bool:
    return len(program) == 2 and program[0] == sys.executable and program[1].endswith(".py")


def fork_server(
    program: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str], output: BinaryIO
) -> ForkedProcess:
    """Run a server with these arguments in a new process; output and errors go to one file."""
    file = program[1] if _is_python_file(program) else ""
    with Path(os.devnull).open("rb") as nothing:
        streams = [nothing.fileno(), output.fileno(), output.fileno()]
        return _fork(_SERVER, file, arguments, environment, Path.cwd(), streams)


def can_fork_command(command: Sequence[str], environment: Mapping[str, str], stdin: str) -> bool:
    """Whether a forked process is like this command, which is found by the PATH of these variables."""
    if command[0] not in USER_PROGRAMS or len(stdin.encode()) > _PIPE_BYTES:
        return False
    if len(json.dumps([list(command), dict(environment)])) > _MAX_REQUEST_BYTES:
        return False
    if "--background" in command:
        return False  # what stays behind is known by its command line, which a forked process does not have
    if _read_at_exec(environment) != _read_at_exec(_template_environment(_USER_PROGRAM)):
        return False
    found = shutil.which(command[0], path=environment.get("PATH"))
    return found == str(Path(sys.executable).with_name(command[0]))


def _read_at_exec(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_EXEC)}


def _template_environment(kind: str) -> dict[str, str]:
    dropped = () if kind == _SERVER else _OF_DEVELOPERS
    return {name: value for name, value in os.environ.items() if name not in dropped}


def run_command(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, stdin: str, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command of a user, as `subprocess.run` does with `capture_output` and `text`."""
    uses_cloud = any(name.startswith(_OF_CLOUDS) for name in environment)
    kind = _CLOUD_PROGRAM if uses_cloud else _USER_PROGRAM
    return _run_captured(kind, command, environment, folder, stdin, timeout)


def run_paicluster(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of the administrator, in the same way."""
    command = ["", *arguments]
    return _run_captured(_SERVER, command, os.environ, Path.cwd(), stdin, _COMMAND_TIMEOUT_S)


def _run_captured(
    kind: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    stdin: str,
    timeout: float,
) -> subprocess.CompletedProcess[str]:
    with contextlib.ExitStack() as ends:

        def pipe() -> tuple[BinaryIO, BinaryIO]:
            reader, writer = os.pipe()
            ours = os.fdopen(reader, "rb", 0), os.fdopen(writer, "wb", 0)
            return ends.enter_context(ours[0]), ends.enter_context(ours[1])

        stdin_reader, stdin_writer = pipe()
        stdout_reader, stdout_writer = pipe()
        stderr_reader, stderr_writer = pipe()
        ends_of_command = (stdin_reader, stdout_writer, stderr_writer)
        streams = [end.fileno() for end in ends_of_command]
        process = _fork(kind, command[0], command[1:], environment, folder, streams)
        try:
            for end in ends_of_command:
                end.close()
            with contextlib.suppress(BrokenPipeError):  # it may end without having read all of it
                stdin_writer.write(stdin.encode())
            stdin_writer.close()
            deadline = time.monotonic() + timeout
            texts = _read_to_end([stdout_reader, stderr_reader], deadline)
            process.wait(max(0.0, deadline - time.monotonic()))
        except BaseException as e:
            with contextlib.suppress(TemplateDied):
                process.kill()
                process.wait()
            if isinstance(e, (subprocess.TimeoutExpired, TimeoutError)):
                raise subprocess.TimeoutExpired(list(command), timeout) from None
            raise
        finally:
            commands_cpu_s.append(process.cpu_s)
    return subprocess.CompletedProcess(list(command), process.returncode or 0, *texts)


def _read_to_end(streams: Sequence[BinaryIO], deadline: float) -> list[str]:
    """What is written to some pipes until they are closed; line ends as in a text file."""
    parts: dict[BinaryIO, list[bytes]] = {stream: [] for stream in streams}
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ, stream)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                if data := os.read(key.fd, _PIPE_BYTES):
                    parts[key.data].append(data)
                else:
                    selector.unregister(key.data)
    texts = (b"".join(parts[stream]).decode() for stream in streams)
    return [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]


def _fork(
    kind: str,
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    streams: Sequence[int],
) -> ForkedProcess:
    request = {
        "program": program,
        "arguments": list(arguments),
        "environment": dict(environment),
        "folder": str(folder),
        "umask": _umask(),
        # As a child of this process would inherit them: the template may have been started under nohup, and
        # ignores Ctrl-C itself.
        "ignores-hangup": signal.getsignal(signal.SIGHUP) == signal.SIG_IGN,
        "ignores-interrupt": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
    }
    message = json.dumps(request).encode()
    template = _running_template(kind)
    forked = template.fork(message, streams)
    if forked is None:
        # Servers have to be stopped by commands after its end, too.
        _remove_template(kind, template)
        forked = _running_template(kind).fork(message, streams)
        if forked is None:
            raise TemplateDied(f"The template of {kind} processes ended twice.")
    pid, status = forked
    return ForkedProcess(pid, [program, *arguments], status)


def _umask() -> int:
    """The umask of this process. `os.umask` reads it by a change, which other threads would notice."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("Umask:")).split()[1], 8)


@dataclass
class _RunningTemplate:
    """A template of this process, which ends when this end of its requests is closed."""

    process: subprocess.Popen[bytes]
    requests: socket.socket
    has_forked: bool = False

    def fork(self, request: bytes, streams: Sequence[int]) -> tuple[int, socket.socket] | None:
        """Pid of a new process, and the socket that reports its end; None where the template has ended."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = b""
        with contextlib.suppress(ConnectionError):
            with theirs:
                socket.send_fds(self.requests, [request], [*streams, theirs.fileno()])
            pid = ours.recv(16)
        if pid:
            self.has_forked = True
            return int(pid), ours
        ours.close()
        status = self.process.wait(30)
        if not self.has_forked and status > 0:
            raise TemplateDied(
                f"The template failed with status {status} before its first process; see stderr."
            )
        return None


_templates: dict[str, _RunningTemplate] = {}
_templates_lock = threading.Lock()


def _running_template(kind: str) -> _RunningTemplate:
    with _templates_lock:
        if kind not in _templates:
            _templates[kind] = _start_template(kind)
        return _templates[kind]


def _remove_template(kind: str, ended: _RunningTemplate) -> None:
    with _templates_lock:
        if _templates.get(kind) is ended:  # another thread may have started a new one
            del _templates[kind]
    ended.requests.close()


def _start_template(kind: str) -> _RunningTemplate:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        # -P: the modules beside this one must not hide others.
        command = [sys.executable, "-P", str(Path(__file__)), kind, str(theirs.fileno())]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=_template_environment(kind),
            pass_fds=[theirs.fileno()],
        )
    return _RunningTemplate(process, ours)


# -- in the template ----------------------------------------------------------------------------------------


class _Template:
    """The process that forks: reads requests, and reports the pid and later the status of each process."""

    def __init__(self, requests: socket.socket):
        self._requests = requests
        self._reports: dict[int, socket.socket] = {}
        self._woken, self._wakes = socket.socketpair()

    def run(self) -> dict[str, Any] | None:
        """Fork processes; returns its request in a new one, None when the tests have ended."""
        self._wake_when_one_ends()
        poll = select.poll()
        poll.register(self._requests, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poll.poll()]
            if self._woken.fileno() in ready:
                self._woken.recv(4096)
                self._report_ended()
            if self._requests.fileno() in ready:
                text, fds, _, _ = socket.recv_fds(self._requests, _RECEIVED_BYTES, 4)
                if not text:
                    return None
                request: dict[str, Any] = json.loads(text)
                if self._fork(request, fds[:3], socket.socket(fileno=fds[3])):
                    return request

    def _wake_when_one_ends(self) -> None:
        """Python's own handler would run too late where a signal comes just before the wait for requests."""
        for end in (self._woken, self._wakes):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _fork(self, request: dict[str, Any], streams: Sequence[int], report: socket.socket) -> bool:
        """Whether this is the new process."""
        pid = os.fork()
        if pid == 0:
            self._reports[0] = report
            self._become(request, streams)
            return True
        for stream in streams:
            os.close(stream)
        self._reports[pid] = report
        try:
            report.send(str(pid).encode())
        except OSError:
            os.kill(pid, signal.SIGKILL)  # the test was interrupted: no one will end it
        return False

    def _report_ended(self) -> None:
        for pid in list(self._reports):
            ended, status, used = os.wait4(pid, os.WNOHANG)
            if ended:
                # A test may have abandoned its process.
                with self._reports.pop(pid) as report, contextlib.suppress(OSError):
                    cpu_s = used.ru_utime + used.ru_stime
                    report.send(f"{os.waitstatus_to_exitcode(status)} {cpu_s:.4f}".encode())

    def _become(self, request: dict[str, Any], streams: Sequence[int]) -> None:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for inherited in (self._requests, self._woken, self._wakes, *self._reports.values()):
            inherited.detach()  # else it would close a descriptor of the process when it is collected
        os.closerange(3, 1 << 16)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if request["ignores-hangup"] else signal.SIG_DFL)
        if not request["ignores-interrupt"]:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        os.umask(request["umask"])
        os.environ.clear()
        os.environ.update(request["environment"])
        time.tzset()
        os.chdir(request["folder"])


def _main(kind: str, requests: int) -> None:
    # Ctrl-C reaches every process of the terminal; afterwards fixtures run commands that stop their servers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    if kind == _SERVER:
        _import_server()
    else:
        _import_user_programs()
        if kind == _CLOUD_PROGRAM:
            for library in _CLOUD_LIBRARIES:
                importlib.import_module(library)
    gc.freeze()
    gc.enable()
    request = _Template(socket.socket(fileno=requests)).run()
    if request is None:
        return
    if kind != _SERVER:
        _run_user_program(request["program"], request["arguments"])
    _end_at_once(_run_server(request["program"], request["arguments"]))


def _import_server() -> None:
    """Import every module that a server may use, and do once what each of them would do at its start."""
    import paicluster
    from paicluster.engines.common import runtime_install

    for module in pkgutil.walk_packages(paicluster.__path__, "paicluster."):
        if not module.name.startswith(_NOT_IMPORTED):
            with contextlib.suppress(ImportError):  # what it needs is optional
                importlib.import_module(module.name)
    for name in _IMPORTED_BY_LIBRARIES:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        runtime_install.install(Path(folder))  # compiles it


def _run_server(program: str, arguments: Sequence[str]) -> object:
    """The status, as `sys.exit` takes it."""
    try:
        if not program:
            return importlib.import_module("paicluster.cli").main(arguments)
        sys.argv = [program, *arguments]
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        return end.code
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _import_user_programs() -> None:
    """Import every module that a command line may use."""

    for name in _USED_PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with contextlib.suppress(ImportError):  # what it needs is optional
                importlib.import_module(module.name)


def _run_user_program(program: str, arguments: Sequence[str]) -> NoReturn:
    # Text streams remember whether their file can be sought, and how it is buffered. Python opens its own
    # with this newline, which keeps carriage returns.
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, buffering, old.encoding, old.errors, newline="\n", closefd=False)
        for number, mode, buffering, old in (
            (0, "r", -1, sys.stdin),
            (1, "w", -1, sys.stdout),
            (2, "w", 1, sys.stderr),
        )
    )
    module, function = USER_PROGRAMS[program]
    sys.argv = [str(Path(sys.executable).with_name(program)), *arguments]
    try:
        status = getattr(importlib.import_module(module), function)()
    except SystemExit as end:
        status = end.code
    _end_at_once(status)


def _end_at_once(status: object) -> NoReturn:
    """End as an interpreter does, without the destruction of all that was imported."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if status is None:
        status = 0
    elif not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = _UNWRITTEN_OUTPUT_STATUS
    os._exit(status)


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
