"""`paddlecloud`: the start of a command, and `pfs cp` of a large file against what it cannot avoid.

`PAI_BENCH_MB` sets the size of the file.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from bench.cli import Machine, row
from bench.storage import LARGE, SIZE, BareServer
from bench.table import Row, alternate, limit_row, ratio_row, sized
from openpaisdk.paddlecloud.chunk_transfer import DEFAULT_CHUNK_BYTES

RUNS = sized(5, 1)
CHANGED_BYTES = min(1 << 20, SIZE // 4)
HOW = """\
paddlecloud: the reference of an upload is the time of two MD5 passes over the file (one for each end) and of
one HTTP PUT to a bare Starlette route, measured one after the other. Speeds are those of whole commands."""


def rows() -> list[Row]:
    folder = Path(tempfile.mkdtemp(prefix="pai-bench-paddlecloud-"))
    machine = Machine(folder)
    try:
        machine.timed("pai", "start-cluster")
        with BareServer(folder) as bare:
            copy = CopySetup(machine, bare)
            return [
                row(machine, "paddlecloud get jobs", lambda: machine.timed("paddlecloud", "get", "jobs"), 8),
                copy.upload_row(),
                *copy.change_rows(),
            ]
    finally:
        machine.close()
        shutil.rmtree(folder, ignore_errors=True)


class CopySetup:
    """A large file, and its copies to the embedded cluster and to a bare server."""

    def __init__(self, machine: Machine, bare: BareServer):
        self._machine = machine
        self._bare = bare
        self._file = machine.work / "large"
        with self._file.open("wb") as f:
            for _ in range(SIZE >> 20):
                f.write(os.urandom(1 << 20))
        self._uploads = 0
        self._cloud = f"/pfs/local/home/{self._user()}"

    def _user(self) -> str:
        (handshake,) = self._machine.home.glob(".openpai/local/*/server.json")
        return str(json.loads(handshake.read_text())["user"])

    def upload_row(self) -> Row:
        ours, reference = alternate(self._upload_new, self._reference, RUNS)
        return ratio_row(
            f"pfs cp of {LARGE} / two md5 passes and an HTTP stream, speed",
            [SIZE / seconds for seconds in ours],
            [SIZE / seconds for seconds in reference],
            at_least=0.7,
            show=lambda speed: f"{speed / (1 << 20):.0f} MiB/s",
        )

    def change_rows(self) -> list[Row]:
        """One changed megabyte, which may lie in two chunks."""
        target = f"{self._cloud}/changed"
        self._paddlecloud("pfs", "cp", "large", target)
        sent: list[float] = []

        def upload_changed() -> float:
            at = DEFAULT_CHUNK_BYTES * (len(sent) % max(1, SIZE // DEFAULT_CHUNK_BYTES - 1) + 1)
            with self._file.open("r+b") as f:
                f.seek(max(0, min(at, SIZE) - CHANGED_BYTES // 2))
                f.write(os.urandom(min(CHANGED_BYTES, SIZE - f.tell())))
            began = time.perf_counter()
            done = self._paddlecloud("pfs", "cp", "-v", "large", target)
            took = time.perf_counter() - began
            sent.append(float(done.stdout.split("files, ")[1].split()[0]))
            return took

        ours, reference = alternate(upload_changed, self._md5_passes, RUNS)
        return [
            limit_row(
                f"pfs cp of {LARGE} with one changed megabyte: chunks sent",
                [max(sent)],
                at_most=2,
                show=lambda count: f"{count:.0f}",
            ),
            ratio_row(
                f"pfs cp of {LARGE} with one changed megabyte / two md5 passes",
                ours,
                reference,
                at_most=1.3,
                show=lambda seconds: f"{seconds:.2f} s",
            ),
        ]

    def _upload_new(self) -> float:
        self._uploads += 1
        target = f"{self._cloud}/upload{self._uploads}"
        began = time.perf_counter()
        self._paddlecloud("pfs", "cp", "large", target)
        took = time.perf_counter() - began
        self._paddlecloud("pfs", "rm", target)
        return took

    def _reference(self) -> float:
        return self._md5_passes() + self._stream()

    def _md5_passes(self) -> float:
        began = time.perf_counter()
        buffer = memoryview(bytearray(DEFAULT_CHUNK_BYTES))
        for _ in range(2):
            with self._file.open("rb", buffering=0) as f:
                while got := f.readinto(buffer):
                    hashlib.md5(buffer[:got]).hexdigest()
        return time.perf_counter() - began

    def _stream(self) -> float:
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self._bare.port)
        with self._file.open("rb") as f:
            connection.request("PUT", "/up", f, {"Content-Length": str(SIZE)})
            connection.getresponse().read()
        connection.close()
        return time.perf_counter() - began

    def _paddlecloud(self, *words: str) -> subprocess.CompletedProcess[str]:
        machine = self._machine
        done = subprocess.run(
            [str(machine.bin / "paddlecloud"), *words],
            env=machine.env(machine.home),
            cwd=machine.work,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"paddlecloud {' '.join(words)} failed: {done.stderr}")
        return done
