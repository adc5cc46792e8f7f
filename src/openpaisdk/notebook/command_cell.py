"""``%pai``: a command of ``pai``, as a process whose output appears in the cell while it runs."""

from __future__ import annotations

import codecs
import os
import signal
import subprocess
import sys
import threading
from typing import IO, TextIO

from openpaisdk.cli.main import INTERRUPTED
from openpaisdk.notebook.cell_error import CellError, CellInterrupt
from openpaisdk.output.live_html import is_notebook

COLUMNS = "120"
"""Width of tables: a cell is wider than the 80 columns that are assumed where there is no terminal."""
_CHUNK_BYTES = 1 << 16
_INTERRUPT_TIMEOUT_S = 5.0
"""Time for a command to end by itself after an interrupt; then it is killed."""


def run_command(words: list[str]) -> None:
    """Run ``pai`` with these words. ``CellError`` if it fails; an interrupt of the cell interrupts it."""
    command = [sys.executable, "-m", "openpaisdk", *words]
    status = _run_in_cell(command) if is_notebook() else subprocess.run(command).returncode
    if status == -signal.SIGINT or status == INTERRUPTED:
        raise CellInterrupt(f"pai {' '.join(words[:1])} was interrupted.")
    if status:
        raise CellError(f"pai {' '.join(words[:1])} ended with status {status}.")


def _run_in_cell(command: list[str]) -> int:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"COLUMNS": COLUMNS, **os.environ, "PYTHONUNBUFFERED": "1"},
        # A group of its own: the interrupt of a kernel reaches this process alone, and is passed on once.
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    copiers = [
        threading.Thread(target=_copy, args=pair, daemon=True)
        for pair in ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
    ]
    for copier in copiers:
        copier.start()
    try:
        return process.wait()
    except KeyboardInterrupt:
        _interrupt(process)
        return INTERRUPTED
    finally:
        for copier in copiers:
            copier.join(_INTERRUPT_TIMEOUT_S)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """End the command as Ctrl-C at a terminal does; it must not outlive its cell."""
    if os.name == "nt":
        process.terminate()
    else:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_INTERRUPT_TIMEOUT_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()


def _copy(source: IO[bytes], target: TextIO) -> None:
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    descriptor = source.fileno()
    while data := os.read(descriptor, _CHUNK_BYTES):
        target.write(decode(data))
        target.flush()
    target.write(decode(b"", True))
    source.close()
