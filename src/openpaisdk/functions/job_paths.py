"""Files of a call: its log in a folder of the caller, and its result on the cluster's storage."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path, PurePath, PurePosixPath
from typing import Protocol

from openpaisdk.functions.usage_errors import CallUsageError
from paiprotocol.errors import NotFound


class HasLog(Protocol):
    """A call whose output can be read."""

    @property
    def job_id(self) -> str: ...

    @property
    def job(self) -> str: ...

    @property
    def task_id(self) -> int: ...

    def stdout(self) -> str: ...

    def stderr(self) -> str | None: ...


class JobPaths:
    """Files of a call: its log, in the folder of its executor, and its result on the cluster's storage."""

    def __init__(self, call: HasLog, log_folder: str, result: PurePosixPath | None = None):
        """``result``: on the cluster's storage; without one it would be beside the log."""
        self._call = call
        self._log_folder = log_folder and _with_numbers(log_folder, call)
        self._prefix = f"{call.job_id}_{call.task_id}"
        self.result_pickle: PurePath = result or Path(self._log_folder, f"{self._prefix}_result.pkl")
        self.folder = self.result_pickle.parent

    @property
    def stdout(self) -> Path:
        """The standard output until now: a file, which is written each time this is asked for."""
        return self._write_log("out", self._call.stdout)

    @property
    def stderr(self) -> Path:
        """As `stdout`, of the standard error."""
        return self._write_log("err", self._call.stderr)

    def _write_log(self, ending: str, read: Callable[[], str | None]) -> Path:
        if not self._log_folder:
            raise CallUsageError(
                "This call has no folder for its log.",
                hint="Give the executor one, as AutoExecutor(folder=...), or use job.stdout().",
            )
        file = Path(self._log_folder, f"{self._prefix}_log.{ending}")
        try:
            text = read() or ""
        except NotFound:
            if file.exists():
                return file  # the cluster has deleted the log, which was read before
            raise
        file.parent.mkdir(parents=True, exist_ok=True)
        # A program may read the file, and the disk may be full.
        partial = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            partial.write_text(text, "utf-8")
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)
        return file


def _with_numbers(folder: str, call: HasLog) -> str:
    """A folder with what submitit writes for the job (``%j``), the array, the item in it, and the task."""
    item = call.job_id.removeprefix(call.job).removeprefix("_")
    numbers = {"%j": call.job_id, "%A": call.job, "%a": item, "%t": str(call.task_id)}
    for sign, value in numbers.items():
        folder = folder.replace(sign, value)
    return folder
