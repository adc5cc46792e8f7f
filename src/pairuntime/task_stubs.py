"""Files installed with the runtime for tasks, as text: a stand-in for ``openpaisdk``, and two commands."""

# In a task without the SDK, ``openpaisdk.runtime`` comes from here. An SDK that is installed later in the
# path takes precedence: the stand-in then loads it in its own place.
PACKAGE = '''\
"""Stands in for the SDK where it is not installed."""

import sys


def _load_installed_sdk():
    import importlib.machinery
    import importlib.util
    import os

    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    rest = [p for p in sys.path if os.path.abspath(p or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec(__name__, rest)
    if spec is None or spec.loader is None or not spec.origin:
        return
    module = sys.modules[__name__]
    module.__spec__ = spec
    module.__file__ = spec.origin
    module.__path__ = list(spec.submodule_search_locations or ())
    module.__loader__ = spec.loader
    spec.loader.exec_module(module)


_load_installed_sdk()
if "__getattr__" not in globals():

    def __getattr__(name):
        """Names for functions as jobs: a module of the user may have them in decorators and annotations."""
        import openpaisdk.functions as functions

        names = {"map": "map_items", "task_errors": "task_errors"}
        if name.startswith("__") or not hasattr(functions, names.get(name, name)):
            raise AttributeError("openpaisdk.%s needs the SDK in the task: pip=['openpaisdk']" % name)
        return getattr(functions, names.get(name, name))
'''

# Follows the text of ``user_api`` in the stand-in's ``runtime``: names whose modules are in the archive.
FROM_ARCHIVE = """

# The archive lies beside the folder of this package; a function that runs as a job was started from it.
if "pairuntime" not in sys.modules:
    _here = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(os.path.join(os.path.dirname(os.path.dirname(_here)), "pairuntime.pyz"))
from pairuntime.task.delayed_call import Checkpointable, DelayedSubmission  # noqa: E402
from pairuntime.task.saved_state import save_before_stop, saved_state  # noqa: E402

# What the archive imports from there counts the steps of metrics here.
sys.modules.setdefault("pairuntime.user_api", sys.modules[__name__])


def __getattr__(name):
    if name.startswith("__"):  # each import of this module asks for some
        raise AttributeError("module 'openpaisdk.runtime' has no attribute %r" % name)
    from pairuntime import callbacks

    return callbacks.find_class(name)
"""

# For functions of scripts that were written for submitit. Modules beside them may annotate and decorate with
# every public name; what needs the SDK says so when it is used.
FUNCTIONS = '''\
"""What functions use in a task of ``openpaisdk.functions``."""

import openpaisdk.runtime
from openpaisdk.functions import helpers, task_errors
from openpaisdk.functions.task_errors import TaskError
from pairuntime.task.job_environment import JobEnvironment
from pairuntime.task.sdk_stand_ins import needs_sdk, remote, stand_in

AutoExecutor = LocalExecutor = SlurmExecutor = stand_in("AutoExecutor")
DebugExecutor = stand_in("DebugExecutor")
DebugJob = stand_in("DebugJob")
Executor = stand_in("Executor")
Job = LocalJob = SlurmJob = stand_in("Job")
JobFuture = stand_in("JobFuture")
JobFutures = stand_in("JobFutures")
clean_up = needs_sdk("clean_up")
futures_of = needs_sdk("futures_of")
map_items = needs_sdk("map_items")
submit = needs_sdk("submit")
'''
FUNCTION_HELPERS = '''\
"""What functions use in a task of ``openpaisdk.functions.helpers``."""

import openpaisdk.runtime
from pairuntime.task.command_function import CommandFailed, CommandFunction
from pairuntime.task.delayed_call import Checkpointable, DelayedSubmission, FunctionSequence
from pairuntime.task.job_environment import TorchDistributedEnvironment, clean_env, environment_variables
from pairuntime.task.sdk_stand_ins import needs_sdk

as_completed = needs_sdk("helpers.as_completed")
monitor_jobs = needs_sdk("helpers.monitor_jobs")
'''
FUNCTION_ERRORS = '''\
"""Errors of calls, for functions that name them in a task."""

import openpaisdk.runtime
from pairuntime.task.sdk_stand_ins import error_stand_in

TaskError = error_stand_in("TaskError", RuntimeError)
DependencyFailed = error_stand_in("DependencyFailed", TaskError)
JobNeverStarts = error_stand_in("JobNeverStarts", TaskError)
JobStopped = error_stand_in("JobStopped", TaskError)
OtherPython = error_stand_in("OtherPython", TaskError)
RemoteError = error_stand_in("RemoteError", TaskError)
TaskKilled = error_stand_in("TaskKilled", TaskError)
TaskLost = error_stand_in("TaskLost", TaskError)
TaskOutOfMemory = error_stand_in("TaskOutOfMemory", TaskError)
TaskTimeout = error_stand_in("TaskTimeout", TaskError)
'''

# With PAI_CAPTURE_LOGGING, every Python of the task logs with level and time. Another sitecustomize in the
# path is loaded too.
SITE = """\
import os
import sys


def _load_next_sitecustomize():
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    rest = [p for p in sys.path if os.path.abspath(p or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_load_next_sitecustomize()
if os.environ.get("PAI_CAPTURE_LOGGING"):
    from openpaisdk.runtime import capture_logging

    capture_logging(os.environ.get("PAI_LOG_LEVEL", "INFO"))
"""

_COMMAND = """\
#!/bin/sh
# The task's own Python, python3 or python.
here=$(dirname -- "$0")/..
for python in python3 python; do
  if command -v "$python" >/dev/null 2>&1; then
    exec "$python" "$here/pairuntime.pyz" %s "$@"
  fi
done
echo "%s needs Python in the task; there is none." >&2
exit 127
"""

HDFS = _COMMAND % ("hdfs", "hdfs")
HDFS_MOUNT = _COMMAND % ("hdfs-mount", "hdfs-mount")
RUNTIME = _COMMAND % ("", "pai-runtime")
