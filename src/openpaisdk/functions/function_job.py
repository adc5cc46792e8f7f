"""Job whose tasks call a Python function: built like the job of ``Job.one_liner``, with a file of calls."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from openpaisdk.binding.cluster import names_of_jobs
from openpaisdk.binding.job import Job
from openpaisdk.errors import (
    Forbidden,
    InvalidParameters,
    NotFound,
    PaiError,
    ProtocolError,
    UsageError,
)
from openpaisdk.functions.call_pickle import CallPickler
from openpaisdk.functions.call_request import ROLE, command_of, request_of
from openpaisdk.functions.completion import JobWatcher
from openpaisdk.functions.function_cluster import FunctionCluster, function_cluster
from openpaisdk.functions.job_future import JobFuture, JobFutures
from openpaisdk.functions.local_packages import local_packages
from openpaisdk.functions.shared_tasks import SharedTasks, number_of_tasks
from openpaisdk.functions.stored_values import VALUES, StoredValues
from openpaisdk.functions.task_python import import_paths, library, python_version
from openpaisdk.jobs.job_names import generate_name
from openpaisdk.jobs.option_values import items_of, seconds
from openpaisdk.jobs.submission import name_conflict
from pairuntime.task.call_format import pack_calls

if TYPE_CHECKING:
    from openpaisdk.binding.cluster import Cluster

    Call = tuple[Sequence[object], Mapping[str, object]]

TAG = "function"
OPTIONS = frozenset(inspect.signature(Job.one_liner).parameters) - {
    "self",
    "commands",
    "cluster_alias",
    "pip_path",
    "array",
}
"""Options of ``Job.one_liner`` that functions have, too."""
SUBMIT_OPTIONS = OPTIONS | {"name", "pip"}
"""Keywords of ``submit`` that are not the function's."""

_REFUSALS = (Forbidden, InvalidParameters, NotFound, ProtocolError, UsageError)
"""Errors of a submission after which there is no job. After others there may be one, or one of this name."""


class FunctionOptions:
    """Options of the job of a function."""

    def __init__(self, name: str = "", pip: Any = (), limit: int = 0, **options: Any):
        self.name = name
        if limit < 0:
            raise UsageError(f"limit is {limit}: it is how many calls run at a time, and 0 for all.")
        self.limit = limit
        self.values = dict(options)
        if pip:
            self.values["pip_installs"] = pip
        if unknown := [key for key in self.values if key not in OPTIONS]:
            raise UsageError(
                f"A job has no option {unknown[0]!r}.",
                hint=f"The options are name, pip, limit, {', '.join(sorted(OPTIONS))}.",
            )

    def with_names_of_its_own(self) -> FunctionOptions:
        """The same for many jobs, each with a name of its own that begins with the one given."""
        if self.name and "$" not in self.name:
            return self.updated(name=f"{self.name}_$")
        return self

    def updated(self, **changes: Any) -> FunctionOptions:
        return FunctionOptions(**{"name": self.name, "limit": self.limit, **self.values, **changes})


def submit_calls(
    cluster: FunctionCluster,
    function: Callable[..., Any],
    calls: Sequence[Call],
    options: FunctionOptions,
    *,
    array: bool = False,
    futures: JobFutures | None = None,
) -> JobFutures:
    """Submit one job that calls a function once in each task; ``array``: with many calls, one in each.

    ``futures``: those to attach to the calls, if they exist already.
    """
    if not callable(function):
        raise UsageError(f"{function!r} cannot be called: give a function.")
    _check_arguments(function, *calls[0])  # those of an array are alike
    job = Job(options.name or generate_name(_name_of(function)))
    values = dict(options.values)
    folder = _calls_folder(cluster, values)
    if options.name == job.name:
        _check_name(cluster, folder, job.name)
    used: set[str] = set()

    def store(content: bytes) -> str:
        path = cluster.store(f"{folder}/{VALUES}", content)
        used.add(path)
        return path

    pickler = CallPickler(store)
    content = pack_calls(pickler.function(function), [pickler.arguments(*call) for call in calls])
    instances = number_of_tasks(len(calls), options.limit) if array else int(values.get("instances", 1))
    after = [*items_of(names_of_jobs(values.pop("after", ())), "after"), *_dependencies(pickler, cluster)]
    entry = cluster.cluster.entry
    on_this_machine = entry.shares_machine and not _image(values)
    request = {
        "python": list(python_version()),
        "call": f"{folder}/{job.name}/calls",
        "results": f"{folder}/{job.name}",
        "role": ROLE,
        "tasks": instances,
        "array": array,
        "paths": import_paths(on_this_machine),
    }
    if is_shared := array and instances < len(calls):
        request["calls"] = len(calls)
        # Of each call, not of the task that runs many of them.
        request["timeLimit"] = seconds(limit) if (limit := values.pop("timeout", 0)) else 0
        request["retries"] = int(values.pop("retries", 0))
    if not on_this_machine:
        request["library"] = store(library())
        if packages := local_packages(pickler.modules):
            request["packages"] = store(packages)
    if on_this_machine and not values.get("python"):
        values["python"] = sys.executable
    if array and instances > 1:
        values["array"] = f"{instances}%{options.limit}" if options.limit else str(instances)
    job.one_liner(command_of(request), after=after, **values)
    job.add_tag(TAG)
    if (values_of_jobs := StoredValues(cluster.client, cluster.files, folder)).refer(job.name, used):
        # A job that used them was deleted, and its values with it: upload them again.
        cluster.forget_stored()
        values_of_jobs.delete_of([job.name])
        return submit_calls(cluster, function, calls, options, array=array, futures=futures)
    cluster.write(str(request["call"]), content)
    try:
        job.submit(cluster.cluster)
    except _REFUSALS:
        with contextlib.suppress(PaiError):
            cluster.forget_stored()
            values_of_jobs.delete_of([job.name])
        raise
    futures = futures or JobFutures(JobFuture(cluster) for _ in range(len(calls) if is_shared else instances))
    _attach(futures, cluster, job.name, request)
    return futures


def _check_arguments(
    function: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    """Find a wrong call here: in a job it would fail, too, but later."""
    try:
        # What a wrapper takes is its own affair.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        unknown = next((key for key in kwargs if key not in signature.parameters), "")
        near = difflib.get_close_matches(unknown, sorted(SUBMIT_OPTIONS), 1)
        raise UsageError(
            f"The function {getattr(function, '__name__', function)} cannot be called like this: {error}.",
            hint=f"Did you mean the option {near[0]} of the job?" if near else "",
        ) from None


def futures_of(cluster: Cluster, name: str) -> JobFutures:
    """The futures of the calls of a job that was submitted earlier, maybe by another process."""
    functions = function_cluster(cluster)
    request = request_of(cluster.client.job_config(name))
    if request is None:
        raise UsageError(f"The job {name} runs commands, not a Python function: it has no future.")
    if (owner := cluster.status(name).user) != functions.user:
        raise Forbidden(
            f"{name} is a job of {owner}: its result is not loaded, because loading a pickle runs code."
        )
    count = int(request.get("calls") or request["tasks"])
    futures = JobFutures(JobFuture(functions) for _ in range(count))
    _attach(futures, functions, name.rpartition("~")[2], request)
    return futures


def clean_up(cluster: Cluster | str | None = None, *, min_age_s: float = 3600) -> list[str]:
    """Delete calls, results and values of functions whose jobs the cluster no longer has.

    Returns the names of those jobs. Those of a job that you delete yourself go with it. What is younger than
    ``min_age_s`` stays: its job may be about to be submitted.
    """
    functions = function_cluster(cluster)
    stored = StoredValues(functions.client, functions.files, _calls_folder(functions, {}))
    return stored.delete_orphans(min_age_s)


def _attach(futures: JobFutures, cluster: FunctionCluster, job: str, request: Mapping[str, Any]) -> None:
    """Make the futures those of the calls of a job, and start to wait for it."""
    folder = str(request["results"])
    shared = SharedTasks(cluster, job, folder) if request.get("calls") else None
    for index, future in enumerate(futures):
        future.attach(job, folder, index, len(futures), shared)
        future.gang, future.array = (None, futures) if request.get("array") else (futures, None)
    JobWatcher(cluster, futures).start()


def _check_name(cluster: FunctionCluster, folder: str, name: str) -> None:
    """Check that a name is free before anything is written: the calls of a job are in a folder of that name.

    What a job with this name left that the cluster no longer has is deleted: its results would be taken for
    those of the new one.
    """
    try:
        cluster.client.job(name)
    except NotFound:
        StoredValues(cluster.client, cluster.files, folder).delete_of([name])
        cluster.forget_stored()
    else:
        raise name_conflict(cluster.client, name)


def _image(options: Mapping[str, Any]) -> str:
    """The image of the job, given or set as default; empty for none."""
    from openpaisdk.config.defaults import Defaults
    from openpaisdk.jobs.command_job import HOST_IMAGE

    image = str(options.get("image") or "") or Defaults.load().text("image")
    return "" if image == HOST_IMAGE else image


def _calls_folder(cluster: FunctionCluster, options: Mapping[str, Any]) -> str:
    """Folder of calls and results on the storage: in the workspace, if that is in the user's home.

    Loading a pickle runs code: in a folder of several users, another one could replace it.
    """
    from openpaisdk.config.defaults import Defaults
    from openpaisdk.jobs.command_job import absolute_workspace

    workspace = str(options.get("workspace") or "") or Defaults.load().text("workspace")
    workspace = workspace or cluster.cluster.entry.text("workspace")
    home = f"/user/{cluster.user}"
    base = absolute_workspace(workspace, cluster.user).rstrip("/") if workspace else home
    return f"{base if base.startswith(home + '/') else home}/functions"


def _dependencies(pickler: CallPickler, cluster: FunctionCluster) -> list[str]:
    """The jobs whose results the calls need."""
    names = []
    for future in pickler.dependencies:
        if not isinstance(future, JobFuture):
            continue
        if future.cluster.alias != cluster.alias:
            raise UsageError(
                f"The result of {future.job_id} is on the cluster {future.cluster.alias}: a call on "
                f"{cluster.alias} cannot wait for it.",
                hint="Pass future.result() instead, or submit both to the same cluster.",
            )
        # One failed call of an array does not make the results of the others useless.
        names.append(f"{future.job}:end" if future.tasks > 1 else future.job)
    return list(dict.fromkeys(names))


def _name_of(function: object) -> str:
    name = getattr(function, "__name__", None) or type(function).__name__
    return "".join(c if c.isalnum() else "-" for c in str(name)).strip("-") or "function"
