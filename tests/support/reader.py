"""Reader of the documentation: pastes the blocks of pages into a shell on a machine of its own.

The machine is a set of namespaces of this one. The user is always alice, the home /home/alice, and every port
is free, so that pages can name all three; several readers work at the same time.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.cli_user import CliUser
from support.external_services import missing
from support.notebook_kernel import Cells
from support.page_blocks import Block, Page, read_page
from support.paths import REPOSITORY
from support.reader_machine import HOME, USER
from support.shown_output import ShownOutput

_BLOCK_LIMIT_S = 180
_END_LIMIT_S = 90
_SOON = "20s"
_STRICT = "set -euo pipefail"
_LENIENT = "set +euo pipefail"
# On whatever page the reader begins.
_START_NOTICE = "Starting the embedded cluster"
CHECKOUT = f"{HOME}/openpaisdk"


class PageError(AssertionError):
    """A block did not do what the page shows."""


class Reader:
    """A user on a machine of its own, with one home and one embedded cluster for all pages."""

    def __init__(self, folder: Path):
        self.folder = folder
        unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
        if os.geteuid() != 0:
            unshare += ["--user", "--map-root-user"]
        machine = [sys.executable, "-P", str(REPOSITORY / "tests/support/reader_machine.py"), str(folder)]
        self._machine = subprocess.Popen(
            [*unshare, *machine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tests")},
        )
        assert self._machine.stdout and self._machine.stderr
        pid = self._machine.stdout.readline().strip()
        if not pid:
            missing(f"A machine in namespaces of its own (unshare: {self._machine.stderr.read().strip()})")
        self.enter = ["nsenter", "--target", pid, "--mount", "--net", "--pid"]
        if os.geteuid() != 0:
            self.enter += ["--user", "--preserve-credentials"]
        self.home = folder / "home"
        """The home as this process sees it."""
        shutil.copytree(REPOSITORY / "examples", self.home / "openpaisdk/examples")
        self.variables: dict[str, str] = {}
        """What the services of a page add to the environment."""
        self.read: dict[str, str] = {}
        """Pages that were read, and what was wrong with them."""

    def env(self) -> dict[str, str]:
        account = {"HOME": HOME, "USER": USER, "LOGNAME": USER, "SHELL": "/bin/bash", "MAIL": ""}
        return {**CliUser.env(self), **account, **self.variables}  # type: ignore[arg-type]

    def popen(self, command: list[str], **more: object) -> subprocess.Popen[str]:
        """Start a command on the machine, in the home."""
        words = [*self.enter, "env", f"--chdir={HOME}", *command]
        return subprocess.Popen(words, env=self.env(), text=True, **more)  # type: ignore[call-overload]

    def sh(self, line: str) -> str:
        """Run a line of the shell, which has to succeed."""
        process = self.popen(
            ["bash", "-ec", line],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        out, _ = process.communicate(timeout=_BLOCK_LIMIT_S)
        assert process.returncode == 0, (line, out)
        return out

    def close(self) -> None:
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            self.sh("test ! -e ~/.openpai/local || pai stop-cluster --now")
        assert self._machine.stdin
        self._machine.stdin.close()
        self._machine.wait(_END_LIMIT_S)


@dataclass
class Terminal:
    """A shell of the reader, in which one block after the other is run."""

    reader: Reader
    cwd: str
    _outputs: int = 0
    _process: subprocess.Popen[str] = field(init=False)
    _status: int = field(init=False)

    def __post_init__(self) -> None:
        self.files = self.reader.folder / f"terminal-{time.monotonic_ns()}"
        self.files.mkdir()
        self._status, theirs = os.pipe()
        # The status of the last command is that of the reader's own last command.
        setup = f'trap \'echo "$? end" >&{theirs}\' EXIT; last() {{ return "$1"; }}; cd "{self.cwd}"\n'
        self._process = self.reader.popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs],
            start_new_session=True,
        )
        self._theirs, self._last = theirs, 0
        os.close(theirs)
        self._send(setup)

    def _send(self, text: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def run(self, text: str, *, strict: bool) -> tuple[int, str, str]:
        """Run text as if it were pasted: status, output, errors. A strict one ends at the first failure."""
        self._outputs += 1
        script, out, err = (self.files / f"{self._outputs}.{kind}" for kind in ("sh", "out", "err"))
        script.write_text(text)
        streams = f">'{out}' 2>'{err}'" if strict else f">'{out}' 2>&1"
        before = _STRICT if strict else f"{_LENIENT}; last {self._last}"
        self._send(f"{before}; source '{script}' </dev/null {streams}; echo $? >&{self._theirs}\n")
        status, _, end = self._read_status().partition(" ")
        self._last = int(status)
        printed = _without_notice(out.read_text(errors="replace"))
        errors = err.read_text(errors="replace") if strict else ""
        if end and not strict:
            raise PageError(f"The shell ended: {text}\n{printed}")
        return self._last, printed, errors

    def _read_status(self) -> str:
        ready, _, _ = select.select([self._status], [], [], _BLOCK_LIMIT_S)
        if not ready:
            return f"{-signal.SIGALRM} timeout"
        return os.read(self._status, 64).decode().partition("\n")[0] or "-1 end"

    def close(self) -> None:
        """Close the window: what runs in the foreground ends, and so does the shell."""
        assert self._process.stdin
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGHUP)
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait(_END_LIMIT_S)
        os.close(self._status)


class ForegroundCommand:
    """A block in a second terminal, which runs until Ctrl-C."""

    def __init__(self, reader: Reader, cwd: str, text: str):
        self._out = reader.folder / f"foreground-{time.monotonic_ns()}"
        self._ended, theirs = os.pipe()
        with self._out.open("wb") as out:
            self._process = reader.popen(
                ["bash", "--noprofile", "--norc", "-ec", f'cd "{cwd}"\n{text}'],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=[theirs],
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        os.close(theirs)

    @property
    def printed(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def interrupt(self) -> None:
        """Press Ctrl-C, and wait until all its processes have ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)
        self._process.wait(_END_LIMIT_S)
        ready, _, _ = select.select([self._ended], [], [], _END_LIMIT_S)
        assert ready, self.printed
        os.close(self._ended)


class PageReading:
    """One page, read from top to bottom in a terminal."""

    def __init__(self, reader: Reader, page: Page):
        self.reader, self.page = reader, page
        self.compared = ShownOutput()
        self.cwd = _folder_of(page.path)
        self._foreground: ForegroundCommand | None = None
        self._kernel: Cells | None = None

    def run(self) -> None:
        (self.reader.home / self.cwd.removeprefix(f"{HOME}/")).mkdir(parents=True, exist_ok=True)
        self.terminal = Terminal(self.reader, self.cwd)
        try:
            for block in self.page.run_blocks:
                self._run_block(block)
        finally:
            if self._foreground is not None:
                self._foreground.interrupt()
            if self._kernel is not None:
                self._kernel.client.shutdown()
                self._kernel.close()
            self.terminal.close()

    def _run_block(self, block: Block) -> None:
        if self.page.is_notebook and block.language == "python":
            self._run_cell(block)
        elif block.in_second_terminal:
            self._run_in_second_terminal(block)
        elif block.language == "console":
            self._run_console(block)
        else:
            text = block.text
            if block.language == "python":
                text = f"cat > program.py <<'END_OF_PROGRAM'\n{text}END_OF_PROGRAM\npython program.py\n"
            status, out, err = self.terminal.run(text, strict=True)
            if status != 0:
                raise PageError(f"{block.place}: status {status}\n{block.text}\nout: {out}\nerr: {err}")
            if block.shown is not None and not self.compared.matches(block.shown, out):
                raise PageError(f"{block.place}: it shows\n{block.shown}\nand printed\n{out}\nerr: {err}")

    def _run_cell(self, block: Block) -> None:
        if self._kernel is None:
            self._kernel = self._start_kernel()
        done = self._kernel.run(block.text)
        if done.error or not self.compared.matches(block.shown or "", _without_notice(done.out)):
            raise PageError(f"{block.place}: it shows\n{block.shown}\nand there was\n{done}")

    def _start_kernel(self) -> Cells:
        """A kernel on the reader's machine; its sockets are files, which are seen from here."""
        from jupyter_client.blocking import BlockingKernelClient
        from jupyter_client.connect import write_connection_file

        file = self.reader.folder / f"kernel-{time.monotonic_ns()}.json"
        write_connection_file(str(file), transport="ipc", ip=str(file.with_suffix("")))
        command = f"cd {self.cwd}; exec python -m ipykernel_launcher -f {file}"
        with file.with_suffix(".log").open("wb") as log:
            self.reader.popen(["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        client = BlockingKernelClient(connection_file=str(file))
        client.load_connection_file()
        return Cells(client, lambda: None)

    def _run_console(self, block: Block) -> None:
        for command, shown in block.steps():
            deadline = time.monotonic() + (_BLOCK_LIMIT_S if block.is_repeated else 0)
            while True:
                _, printed, _ = self.terminal.run(f"{command}\n", strict=False)
                if self.compared.matches(shown, printed):
                    break
                if time.monotonic() >= deadline:
                    said = f"it shows\n{shown}\nand printed\n{printed}"
                    raise PageError(f"{block.place}: $ {command}\n{said}")

    def _run_in_second_terminal(self, block: Block) -> None:
        if self._foreground is not None:
            self._foreground.interrupt()
        _, out, _ = self.terminal.run("pwd\n", strict=True)
        running = self._foreground = ForegroundCommand(self.reader, out.strip(), block.text)
        deadline = time.monotonic() + _BLOCK_LIMIT_S
        assert block.shown is not None, f"{block.place}: what it prints tells when it is ready"
        while not self.compared.begins(block.shown, running.printed):
            if running.has_ended or time.monotonic() > deadline:
                raise PageError(f"{block.place}: it shows\n{block.shown}\nand printed\n{running.printed}")
            time.sleep(0.02)


def _folder_of(path: str) -> str:
    """Where the reader begins: in the example's own folder, else in an empty one."""
    if path.startswith("examples/"):
        return f"{CHECKOUT}/{Path(path).parent}"
    return f"{HOME}/{Path(path).stem.lower()}"


def _without_notice(printed: str) -> str:
    return "".join(line for line in printed.splitlines(True) if not line.startswith(_START_NOTICE))


def unfinished_jobs(reader: Reader) -> str:
    """Names of jobs that a page left running or waiting, and that do not end by themselves soon."""
    listed = "pai list-jobs -a local --state RUNNING,WAITING -o json"
    names = "import json, sys; print(*[job['name'] for job in json.load(sys.stdin)])"
    line = f'test ! -e ~/.openpai/local || {listed} 2>/dev/null | python -c "{names}"'
    left = reader.sh(line).strip()
    if left:
        reader.sh(f"pai wait -a local --timeout {_SOON} {left} || true")
        left = reader.sh(line).strip()
    return left


@contextlib.contextmanager
def reader_in(folder: Path) -> Iterator[Reader]:
    reader = Reader(folder)
    try:
        yield reader
    finally:
        reader.close()


def pages_before(page: Page) -> list[Page]:
    """Pages that this one needs to have been read."""
    return [read_page(need) for need in page.needs if need.endswith(".md")]
