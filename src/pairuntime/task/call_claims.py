"""Claims of calls: one file for each call of an array, created once, by the task that runs it.

A client that creates it first has cancelled the call.
"""

from pairuntime.task.webhdfs import WebHdfsError
from pairuntime.transport import call_format

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from pairuntime.task.function_call import Request
    from pairuntime.task.webhdfs import Storage


class CallClaims:
    """The claims of one job, as one of its tasks sees them."""

    def __init__(self, request: "Request", files: "Storage") -> "None":
        self._job_folder = request.job_folder
        self._own_name = b"%d" % request.task_index
        self._files = files

    def claim(self, index: "int") -> "bool":
        """Claim a call; False if another task has claimed it, or if it was cancelled."""
        try:
            self._files.put_bytes(self._own_name, self._path(index), overwrite=False)
        except WebHdfsError as error:
            if error.kind != "FileAlreadyExistsException":
                raise
            # An earlier attempt of this task may have claimed it, or the response to this request was lost.
            return self.is_own(index)
        return True

    def is_own(self, index: "int") -> "bool":
        return self._files.read_if_exists(self._path(index)) == self._own_name

    def indexes(self) -> "set[int]":
        """The calls that are claimed or cancelled."""
        return indexes_in(self._files, call_format.claims_folder(self._job_folder))

    def _path(self, index: "int") -> "str":
        return call_format.claim_path(self._job_folder, index)


def indexes_in(files: "Storage", folder: "str") -> "set[int]":
    """The calls that have a file in a folder."""
    try:
        entries = files.entries(folder)
    except WebHdfsError as error:
        if error.status == 404:
            return set()
        raise
    names = (str(entry["pathSuffix"]).partition(".")[0] for entry in entries)
    return {int(name) for name in names if name.isdigit()}
