"""The call of a job as it was submitted, read from the storage."""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any

from openpaisdk.functions.usage_errors import CallUsageError
from openpaisdk.jobs.call_request import request_of
from paiprotocol.errors import NotFound
from pairuntime.task.delayed_call import DelayedSubmission, call
from pairuntime.transport import call_format

if TYPE_CHECKING:
    from openpaisdk.functions.function_cluster import FunctionCluster


def load_call(cluster: FunctionCluster, job: str, index: int) -> DelayedSubmission:
    """One of the calls of a job of this user. Results of other calls among its arguments must be there."""
    request = request_of(cluster.client.job_config(job))
    if request is None:
        raise CallUsageError(f"The job {job} runs commands, not a Python function.")
    data = cluster.read(str(request["call"]))
    if data is None:
        raise NotFound(f"The calls of {job} are no longer on the storage.")

    def read(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    function, arguments = (_Unpickler(cluster, part).load() for part in call_format.read_call(read, index))
    args, kwargs = arguments
    if function is call:  # of a batch, whose calls may have different functions
        function, *args = args
    return DelayedSubmission(function, *args, **kwargs)


class _Unpickler(pickle.Unpickler):
    def __init__(self, cluster: FunctionCluster, data: bytes):
        super().__init__(io.BytesIO(data))
        self._cluster = cluster

    def persistent_load(self, pid: Any) -> Any:
        kind, path = pid
        data = self._cluster.read(path)
        if data is None:
            raise NotFound(f"A value that the call needs is not on the storage: {path}.")
        if kind == call_format.RESULT_OF_CALL:
            data = bytes(call_format.read_result(data)[1])
        return _Unpickler(self._cluster, data).load()
