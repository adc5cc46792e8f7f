"""`pai forward`: how fast bytes pass through it, against `ssh -L` through an sshd of this machine."""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.cli import Machine
from bench.exec import running_job
from bench.server import free_port
from bench.table import Row, alternate, ratio_row, sized, skipped_row

SIZE = sized(1 << 30, 1 << 20)
RUNS = 3
CHUNK_BYTES = 1 << 20
START_TIMEOUT_S = 30.0
HOW = (
    "forward: one connection carries the bytes. Jobs of the process engine share loopback, so both ways end "
    "at the same program. ssh has its default cipher."
)


def rows() -> list[Row]:
    sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if sshd is None or not shutil.which("ssh") or not shutil.which("ssh-keygen"):
        return [skipped_row("1 GiB through pai forward", "sshd or ssh is missing")]
    if os.geteuid() == 0 and not _has_account("sshd"):
        return [skipped_row("1 GiB through pai forward", "the account sshd is missing")]
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder, contextlib.ExitStack() as stack:
        machine = Machine(Path(folder))
        stack.callback(machine.close)
        stack.enter_context(running_job(machine, "forwarded"))
        service = _Service()
        stack.callback(service.close)
        ours = stack.enter_context(_pai_forward(machine, service.port))
        reference = stack.enter_context(_ssh_forward(sshd, Path(folder), service.port))
        return [
            _row("from the task", ours, reference, _download),
            _row("to the task", ours, reference, _upload),
        ]


def _row(which: str, ours: int, reference: int, transfer: Callable[[int], float]) -> Row:
    measured = alternate(lambda: transfer(ours), lambda: transfer(reference), RUNS)
    return ratio_row(f"1 GiB through pai forward / ssh -L, {which}", *measured, at_least=0.7, show=_speed)


def _speed(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e6:.0f} MB/s"


class _Service:
    """Sends or receives SIZE bytes on each connection, as its first byte says, then ends it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            which = connection.recv(1)
            if which == b"D":
                _send(connection)
            elif which == b"U":
                _receive(connection)
                connection.sendall(b".")

    def close(self) -> None:
        self._listener.close()


def _send(connection: socket.socket) -> None:
    data = bytes(CHUNK_BYTES)
    for _ in range(SIZE // CHUNK_BYTES):
        connection.sendall(data)


def _receive(connection: socket.socket) -> None:
    buffer = bytearray(CHUNK_BYTES)
    left = SIZE
    while left:
        count = connection.recv_into(buffer)
        if not count:
            raise RuntimeError(f"{left} bytes are missing")
        left -= count


def _download(port: int) -> float:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        began = time.perf_counter()
        connection.sendall(b"D")
        _receive(connection)
        return SIZE / (time.perf_counter() - began)


def _upload(port: int) -> float:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        began = time.perf_counter()
        connection.sendall(b"U")
        _send(connection)
        if connection.recv(1) != b".":
            raise RuntimeError("the bytes did not arrive")
        return SIZE / (time.perf_counter() - began)


@contextmanager
def _pai_forward(machine: Machine, port: int) -> Iterator[int]:
    """The local port of a running `pai forward`."""
    words = ["pai", "forward", "forwarded", f"0:{port}"]
    with subprocess.Popen(
        words,
        executable=machine.bin / "pai",
        env=machine.env(machine.home),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().split()[1].rpartition(":")[2])
        finally:
            process.terminate()


@contextmanager
def _ssh_forward(sshd: str, folder: Path, port: int) -> Iterator[int]:
    """The local port of a running `ssh -L`."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # its start demands it
    server_port, local = free_port(), free_port()
    options = {"AuthorizedKeysFile": folder / "user.pub", "StrictModes": "no", "PidFile": "none"}
    options |= {"UsePAM": "no", "ListenAddress": "127.0.0.1", "PermitRootLogin": "yes"}
    flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    server = [sshd, "-D", "-e", "-f", os.devnull, "-p", str(server_port), "-h", str(folder / "host"), *flags]
    client = ["ssh", "-F", "none", "-N", "-i", str(folder / "user"), "-p", str(server_port)]
    client += [
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        f"UserKnownHostsFile={os.devnull}",
        "-o",
        "LogLevel=ERROR",
    ]
    client += ["-L", f"127.0.0.1:{local}:127.0.0.1:{port}", f"{getpass.getuser()}@127.0.0.1"]
    with subprocess.Popen(server, stderr=subprocess.DEVNULL) as running_server:
        try:
            _wait_for_port(server_port)
            with subprocess.Popen(client) as running_client:
                try:
                    _wait_for_port(local)
                    yield local
                finally:
                    running_client.terminate()
        finally:
            running_server.terminate()


def _has_account(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
