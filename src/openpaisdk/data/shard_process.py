"""Processes that write shards for ``pai pack``.

The threads of one interpreter take turns, and for each small file the interpreter has as much to do as the
kernel. A process gets the files of one shard after the other as pickled messages, reports what it has packed,
and ends when its pipes are closed: then it leaves nothing of the shard it was writing.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from struct import Struct

from openpaisdk.data.shard_packer import ShardPacker
from openpaisdk.storage.backends.local import LocalBackend
from paiprotocol.errors import PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

    from openpaisdk.data.manifest import ShardEntry
    from openpaisdk.data.shard_packer import Advance, ShardInput

MAX_PROCESSES = 4
"""Each takes some 35 MB."""
_REPORT_INTERVAL_S = 0.05
_END_TIMEOUT_S = 30.0
_LENGTH = Struct("<Q")
_PROGRAM = f"from {__name__} import main; main()"
"""With ``python -m`` it would start later, after some modules that are not needed."""


def _can_pack(packer: ShardPacker) -> bool:
    """Whether other processes can pack: connections to remote storages, and credentials, stay in this one."""
    backends = {type(packer.source), type(packer.target)}
    return backends == {LocalBackend} and bool(sys.executable) and sys.platform != "win32"


def start_processes(packer: ShardPacker, count: int) -> list[ShardProcess]:
    """Up to that many processes; none for storages elsewhere, fewer on a machine without room for them."""
    if not _can_pack(packer):
        return []
    processes: list[ShardProcess] = []
    try:
        while len(processes) < min(count, MAX_PROCESSES):
            processes.append(ShardProcess(packer))
    except OSError:
        pass
    return processes


class ShardProcess:
    """One process that writes shards. Used by one thread."""

    def __init__(self, packer: ShardPacker):
        import subprocess  # not by the process that is started

        # In a session of its own: Ctrl-C is for the process that started it, which ends it. With the same
        # path: a program may have added the folder where it finds this package.
        path = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self.pid = self._process.pid
        self._requests, self._reports = self._process.stdin, self._process.stdout
        self._packer: ShardPacker | None = packer

    def write(self, shard: ShardInput, advance: Advance) -> ShardEntry:
        """Write a shard as ``ShardPacker.write`` does."""
        try:
            if self._packer is not None:
                _send(self._requests, self._packer)
                self._packer = None
            _send(self._requests, shard)
        except BrokenPipeError:
            raise self._ended() from None
        while (report := _receive(self._reports)) is not None:
            files, size, result = report
            advance(files, size)
            if isinstance(result, BaseException):
                raise result
            if result is not None:
                entry: ShardEntry = result
                return entry
        raise self._ended()

    def close(self) -> None:
        """End the process, and wait until it has abandoned what it was writing."""
        if self._packer is not None:  # it has written nothing, and may not even have started
            self._process.kill()
        self._reports.close()
        try:
            self._requests.close()
        except BrokenPipeError:
            pass
        from subprocess import TimeoutExpired

        try:
            self._process.wait(_END_TIMEOUT_S)
        except TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ended(self) -> PaiError:
        status = self._process.wait()
        if status < 0:
            return PaiError(
                f"A process that packs files was killed by signal {-status}.",
                hint="Complete shards are kept: run the same command again to resume.",
            )
        return PaiError(
            f"A process that packs files ended with status {status}.",
            hint="Its error is above. With one job (pai pack --jobs 1) no other process is needed.",
        )


def _send(pipe: IO[bytes], value: object) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Any:
    """The next message; None when the other side has closed the pipe."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = pipe.read(length)
    return pickle.loads(data) if len(data) == length else None


class _Reports:
    """Reports to the process that started this one, at most one in ``_REPORT_INTERVAL_S``."""

    def __init__(self, pipe: IO[bytes]):
        self._pipe = pipe
        self._files = self._size = 0
        self._due = 0.0

    def advance(self, files: int, size: int) -> None:
        self._files += files
        self._size += size
        if time.monotonic() >= self._due:
            self.send(None)

    def send(self, result: ShardEntry | BaseException | None) -> None:
        _send(self._pipe, (self._files, self._size, result))
        self._files = self._size = 0
        self._due = time.monotonic() + _REPORT_INTERVAL_S


def main() -> None:
    """Write the shards that are sent to this process, until its pipe is closed."""
    # What is printed by mistake must not get between the reports.
    requests, pipe = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    try:
        _write_shards(requests, _Reports(pipe))
    except BrokenPipeError:
        pass  # the packing process has ended, or wants this one to end
    # Without the interpreter's own end: the packing process waits for this one.
    sys.stdout.flush()
    os._exit(0)


def _write_shards(requests: IO[bytes], reports: _Reports) -> None:
    packer: ShardPacker | None = _receive(requests)
    if packer is None:
        return
    while (shard := _receive(requests)) is not None:
        try:
            entry = packer.write(shard, reports.advance)
        except BrokenPipeError:
            raise
        except Exception as e:
            reports.send(e)
        else:
            reports.send(entry)
