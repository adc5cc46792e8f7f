"""API for user programs in a task: location, stages, logging, metrics.

In a task it is imported as ``openpaisdk.runtime``, also where the SDK is not installed; Python 3.6 is enough.
Outside a cluster everything works too: ``where()`` is local, and metrics are discarded.
"""

import json
import logging
import os
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any, Callable, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

LOCAL = "local"
INTERACTIVE = "interactive"
BATCH = "batch"

STAGES = ("start", "main", "end", "failure")

# Format of a log line; `pai logs --level` parses its beginning.
LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Where:
    """Where a program runs: ``kind`` is local, interactive or batch; role and index say which task it is."""

    def __init__(self, kind: "str", job: "str" = "", user: "str" = "", role: "str" = "", index: "int" = 0):
        self.kind = kind
        self.job = job
        self.user = user
        self.role = role
        self.index = index

    @property
    def in_job(self) -> "bool":
        return self.kind != LOCAL

    def __str__(self) -> "str":
        return self.kind

    def __eq__(self, other: "object") -> "bool":
        return other == self.kind if isinstance(other, str) else self is other

    def __hash__(self) -> "int":
        return hash(self.kind)

    def __repr__(self) -> "str":
        if not self.in_job:
            return "Where('local')"
        return "Where(%r, job=%r, role=%r, index=%d)" % (self.kind, self.job, self.role, self.index)


def where() -> "Where":
    """Where this program runs: local, in an interactive container (notebook, shell), or in a batch job."""
    env = os.environ
    if "PAI_CONTAINER_ID" not in env and "PAI_JOB_NAME" not in env:
        return Where(LOCAL)
    user, _, job = env.get("PAI_JOB_NAME", "").rpartition("~")
    # A notebook runs in a batch job, too: there the variable is 0.
    mode = env.get("PAI_INTERACTIVE") or ("1" if "ipykernel" in sys.modules else "0")
    kind = BATCH if mode == "0" else INTERACTIVE
    index = env.get("PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX") or env.get("PAI_TASK_INDEX") or "0"
    return Where(
        kind,
        job,
        env.get("PAI_USER_NAME", user),
        env.get("PAI_CURRENT_TASK_ROLE_NAME", ""),
        int(index) if index.isdigit() else 0,
    )


class Runtime:
    """A program in stages: functions for the start, the main part, the end, and failures.

    ::

        app = Runtime()

        @app.on("main")
        def train():
            ...

        app.run()

    ``start`` runs first, then ``main``, then ``end`` in any case. When one fails, ``failure`` is called
    with the exception before ``end``, and the exception is raised again: the task fails.
    """

    def __init__(self) -> "None":
        self.where = where()
        self._parts = {stage: [] for stage in STAGES}  # type: dict[str, list[Callable[..., Any]]]

    def on(self, stage: "str") -> "Callable[[F], F]":
        """Register a function for a stage: start, main, end or failure.

        Several run in the order of registration.
        """
        if stage not in self._parts:
            raise ValueError("Unknown stage %r: expected one of %s." % (stage, ", ".join(STAGES)))

        def register(function: "F") -> "F":
            self._parts[stage].append(function)
            return function

        return register

    def run(self) -> "Any":
        """Run all stages; returns the result of the last main function."""
        result = None
        try:
            for function in self._parts["start"]:
                function()
            for function in self._parts["main"]:
                result = function()
        except BaseException as error:
            for function in self._parts["failure"]:
                function(error)
            raise
        finally:
            for function in self._parts["end"]:
                function()
        return result

    def log_metrics(self, step: "int", **values: "float") -> "None":
        log_metrics(step, **values)

    def __repr__(self) -> "str":
        return "Runtime(%r)" % (self.where,)


# -- logging -----------------------------------------------------------------------------------------


class _Formatter(logging.Formatter):
    """Time in UTC with milliseconds, so that lines of many machines can be sorted."""

    def formatTime(self, record: "logging.LogRecord", datefmt: "str | None" = None) -> "str":  # noqa: N802
        return "%s.%03dZ" % (time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)), record.msecs)


_handler = None  # type: logging.Handler | None


def capture_logging(level: "int | str" = logging.INFO) -> "logging.Handler":
    """Write Python's ``logging`` to the job's log with level and time. Another call sets the level."""
    global _handler  # noqa: PLW0603
    root = logging.getLogger()
    if _handler is None:
        _handler = logging.StreamHandler(sys.stderr)
        _handler.setFormatter(_Formatter(LINE))
        root.addHandler(_handler)
        logging.captureWarnings(True)
    root.setLevel(level)
    return _handler


# -- metrics -----------------------------------------------------------------------------------------

_lock = threading.Lock()
_file = None  # type: Any


def log_metrics(step: "int", **values: "float") -> "None":
    """Record metrics of a step: ``log_metrics(10, loss=0.3)``.

    ``pai job-metrics`` plots them during the run.
    """
    global _file  # noqa: PLW0603
    numbers = {name: float(value) for name, value in values.items()}
    path = os.environ.get("PAI_METRICS_FILE")
    if not path:
        return
    line = json.dumps({"step": int(step), "time": round(time.time(), 3), "values": numbers})
    with _lock:
        if _file is None or _file.name != path:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            # One appending write for each line: several processes of a task may write.
            _file = open(path, "a", buffering=1)
        _file.write(line + "\n")
