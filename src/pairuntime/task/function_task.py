"""Task that runs functions: one call, or one after the other of the calls that share the task."""

import json
import os
import sys

from pairuntime.task.call_claims import CallClaims
from pairuntime.task.function_call import FAILED, Call, Request, open_storage
from pairuntime.task.job_environment import TASKS_PER_NODE
from pairuntime.task.webhdfs import WebHdfsError
from pairuntime.transport.call_format import FormatError


def main(argv: "list[str]") -> "int":
    request = Request(json.loads(argv[0]))
    os.environ[TASKS_PER_NODE] = str(request.tasks_per_node)
    try:
        if request.calls:
            from pairuntime.task import shared_calls  # imports more than a single call needs

            return shared_calls.run(request)
        files = open_storage(request)
        if request.has_claims and not CallClaims(request, files).claim(request.task_index):
            sys.stderr.write("The call was cancelled before it began.\n")
            return 0
        if request.has_claims:
            os.environ["PAI_CALL_INDEX"] = str(request.task_index)
        return Call(request, files, continues=request.is_later_attempt).run()
    except (WebHdfsError, FormatError, OSError) as e:
        sys.stderr.write("The function could not be called: %s\n" % e)
        return FAILED
