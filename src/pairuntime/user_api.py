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

    def log_metrics(self, step: "Any" = None, metrics: "Any" = None, **values: "Any") -> "None":
        log_metrics(step, metrics, **values)

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

# JSON has no such numbers: each is written as a text, which float() reads.
_NOT_FINITE = {float("inf"): "Infinity", float("-inf"): "-Infinity"}
_FIRST_ATTEMPT = "0.0"


class _MetricsFile:
    """File of a task's metrics, one line of JSON each.

    A line is one appending write of the calling thread: it is in the kernel when the call returns, so that a
    task that is killed loses nothing, a process that forks neither repeats nor loses lines, and several
    processes of a task may write. An error of the disk is reported once and never stops the program.
    """

    def __init__(self, path: "str"):
        self.path = path
        # For the step of those who give none.
        self.next_step = 0
        attempt = "%s.%s" % (
            os.environ.get("FC_FRAMEWORK_ATTEMPT_ID", "0"),
            os.environ.get("FC_TASK_ATTEMPT_ID", "0"),
        )
        # Marks the values of a task that was started again.
        self._mark = {} if attempt == _FIRST_ATTEMPT else {"attempt": attempt}
        self._fd = -1
        self._is_torn = False
        self._has_failed = False

    def append(self, step: "int", numbers: "dict[str, Any]") -> "None":
        fields = {"step": step, "time": round(time.time(), 3), "values": numbers}
        fields.update(self._mark)
        line = json.dumps(fields).encode() + b"\n"
        try:
            if self._fd < 0:
                self._open()
            # What the disk took of a line must not be the beginning of the next one.
            line = b"\n" + line if self._is_torn else line
            self._is_torn = os.write(self._fd, line) < len(line)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                message = "metrics are lost, %s cannot be written: %s" % (self.path, error)
                logging.getLogger(__name__).warning("log_metrics: %s", message)

    def _open(self) -> "None":
        os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def close(self) -> "None":
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_lock = threading.Lock()
_file = _MetricsFile("")


def log_metrics(step: "Any" = None, metrics: "Any" = None, **values: "Any") -> "None":
    """Record metrics of a step: ``log_metrics(10, loss=0.3)``, ``log_metrics(10, {"train/loss": 0.3})``.

    Without a step, steps are counted from 0, or from the last one on. A value is a number, or a scalar of
    numpy, torch or the like; NaN and infinity are kept. A slash in a name puts it into a group.
    ``pai job-metrics`` plots them during the run.
    """
    if step is not None and hasattr(step, "items"):
        if metrics is not None:
            raise TypeError("log_metrics: the step comes first: log_metrics(10, {'loss': 0.3}).")
        step, metrics = None, step
    if metrics is not None:
        # A metric may have the name of the parameter.
        values = dict(metrics, **values) if hasattr(metrics, "items") else dict(values, metrics=metrics)
    numbers = {}
    for name, value in values.items():
        if type(value) is not float:
            value = _number(name, value)
        if value - value != 0:
            value = _NOT_FINITE.get(value, "NaN")
        numbers[name if type(name) is str else str(name)] = value
    file = _metrics_file()
    number = file.next_step if step is None else _whole(step)
    file.next_step = number + 1
    if file.path:
        file.append(number, numbers)


def _metrics_file() -> "_MetricsFile":
    global _file  # noqa: PLW0603
    path = os.environ.get("PAI_METRICS_FILE") or ""
    if _file.path != path:
        with _lock:
            if _file.path != path:
                _file.close()
                _file = _MetricsFile(path)
    return _file


def number_of(value: "Any") -> "float | None":
    """The value as a number, if it is one; an array or tensor of one item is one."""
    plain = value
    try:
        if hasattr(plain, "item"):
            plain = plain.item()
        if not isinstance(plain, (str, bytes, bytearray)):
            return float(plain)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    return None


def _number(name: "Any", value: "Any") -> "float":
    number = number_of(value)
    if number is None:
        raise TypeError(
            "log_metrics: %s is no number (%s): log a number, or a tensor or array with one item."
            % (name, type(value).__name__)
        )
    return number


def _whole(step: "Any") -> "int":
    try:
        return int(step)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise TypeError("log_metrics: the step is no whole number but %.100r." % (step,)) from None
