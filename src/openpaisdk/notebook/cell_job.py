"""Job of a cell: submitted as a function call, followed in the cell, stopped with it.

The cell travels as an argument of `pairuntime.task.cell_call.run_cell`, which the runtime of every task has.
"""

from __future__ import annotations

import ast
import codecs
import sys
from typing import TYPE_CHECKING, Any

from openpaisdk.client.follow import follow
from openpaisdk.client.follow_stream import FollowRequest
from openpaisdk.client.models import FINAL_STATES
from openpaisdk.functions.function_cluster import FunctionCluster, function_cluster
from openpaisdk.functions.function_job import FunctionOptions, submit_calls
from openpaisdk.functions.task_errors import TaskError
from openpaisdk.jobs.job_names import expand_name, generate_name
from openpaisdk.jobs.job_notices import STATE, job_notices
from openpaisdk.notebook.cell_error import CellError, CellInterrupt
from openpaisdk.output.html import html_fields
from openpaisdk.output.live_html import LiveOutput, is_notebook
from openpaisdk.output.untrusted_text import log_output, visible
from paiprotocol.errors import NotFound, PaiError, UsageError
from pairuntime.task.cell_call import run_cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from openpaisdk.client.follow_stream import Frame
    from openpaisdk.functions.job_future import JobFuture
    from openpaisdk.notebook.cell_options import CellOptions


def run_cell_as_job(source: str, options: CellOptions, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Run a cell as a job and show its output; returns the variables that ``--out`` names."""
    check_source(source)
    if missing := [name for name in options.inputs if name not in variables]:
        raise UsageError(f"--in {missing[0]}: the notebook has no such variable.")
    inputs = {name: variables[name] for name in options.inputs}
    cluster = function_cluster(options.cluster_alias or None)
    name = expand_name(options.name) if options.name else generate_name("cell")
    job = CellJob(cluster, name)
    try:
        future = submit_calls(
            cluster,
            run_cell,
            [((source, inputs, options.outputs), {})],
            FunctionOptions(name=name, **options.job),
        )[0]
        return job.follow(future)
    except KeyboardInterrupt:
        raise CellInterrupt(job.stop()) from None


def check_source(source: str) -> None:
    """Reject a cell that is not Python before a job is submitted for it."""
    try:
        ast.parse(source)
    except SyntaxError as error:
        is_shell = (error.text or "").lstrip()[:1] in ("!", "%", "?")
        reason = "! and % are IPython's, and a job has Python only" if is_shell else error.msg
        raise UsageError(f"Line {error.lineno} of the cell is not Python: {reason}.") from None
    if not source.strip():
        raise UsageError("The cell is empty.", hint="%pai runs a command; %%pai runs the lines below it.")


class CellLog:
    """Output stream for the log of a job in a notebook, which takes text and has no terminal to protect."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def write(self, data: bytes) -> int:
        sys.stdout.write(self._decode(data))
        return len(data)

    def flush(self) -> None:
        sys.stdout.flush()


class CellJob:
    """The job of one cell, shown as its state and its log."""

    def __init__(self, cluster: FunctionCluster, name: str):
        self._cluster = cluster
        self._name = name
        self._state = ""
        self._output: LiveOutput | None = None

    def follow(self, future: JobFuture) -> dict[str, Any]:
        """Show the job until it ends; returns the result of the call."""
        # A connection of its own: the stream occupies it.
        client = self._cluster.connection.open_client()
        frames = self._with_log_written(follow(client, FollowRequest(self._name)))
        for notice in job_notices(frames):
            if notice.kind == STATE:
                self._show_state(notice.text)
            else:
                print(visible(f"{self._name}: {notice.text}"), flush=True)
        try:
            result: dict[str, Any] = future.result()
        except TaskError as error:
            raise CellError(error.message, hint=error.hint) from error
        except PaiError as error:
            raise CellError.of(error) from error
        except Exception as error:
            # The log, which is the output of the cell, has the traceback already.
            kind = type(error).__name__
            raise CellError(f"The cell failed in the job {self._name}: {kind}: {error}") from error
        return result

    def stop(self) -> str:
        """Stop the job of an interrupted cell; returns what became of it, in a sentence."""
        try:
            if self._state not in FINAL_STATES:
                self._cluster.client.stop(self._name)
        except NotFound:
            return "The cell was interrupted before its job was submitted."
        except PaiError as error:
            return f"The cell was interrupted, but its job {self._name} could not be stopped: {error.message}"
        self._show_state("STOPPED")
        return f"The cell was interrupted, and its job {self._name} was stopped."

    def _with_log_written(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        log = CellLog() if is_notebook() else log_output(sys.stdout)
        for frame in frames:
            if frame.kind == "log":
                log.write(frame.data)
                log.flush()
            else:
                yield frame

    def _show_state(self, state: str) -> None:
        self._state = state
        alias = self._cluster.alias
        if not is_notebook():
            print(f"{self._name} on {alias}: {state}", flush=True)
            return
        html = html_fields({"job": self._name, "cluster": alias, "state": state})
        if self._output is None:
            self._output = LiveOutput(html, f"{self._name} on {alias}")
        else:
            self._output.show(html)
