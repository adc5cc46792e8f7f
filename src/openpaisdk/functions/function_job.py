"""Job whose tasks call a Python function: built like the job of ``Job.one_liner``, with a file of calls."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from openpaisdk.functions.call_pickle import CallPickler
from openpaisdk.functions.function_cluster import FunctionCluster, function_cluster
from openpaisdk.functions.gang_future import GangFuture
from openpaisdk.functions.job_future import AnyJob, JobFuture, JobFutures
from openpaisdk.functions.job_watcher import JobWatcher
from openpaisdk.functions.local_packages import local_packages
from openpaisdk.functions.shared_tasks import SharedTasks, number_of_tasks
from openpaisdk.functions.task_errors import JobNeverStarts
from openpaisdk.functions.task_python import import_paths, library, python_version
from openpaisdk.functions.usage_errors import CallUsageError, UnknownParameter, WrongParameter
from openpaisdk.jobs.call_request import ROLE, command_of, request_of
from openpaisdk.jobs.command_recipe import CommandRecipe
from openpaisdk.jobs.config_submission import submit_config
from openpaisdk.jobs.job_names import expand_name, generate_name, names_of_jobs
from openpaisdk.jobs.job_options import KEYWORDS, JobOptions
from openpaisdk.jobs.option_values import items_of, seconds
from openpaisdk.jobs.stored_values import VALUES, StoredValues
from openpaisdk.jobs.submission import name_conflict
from paiprotocol.errors import (
    UNSCHEDULABLE_JOB,
    Forbidden,
    InvalidParameters,
    NotFound,
    PaiError,
    ProtocolError,
    UsageError,
)
from paiprotocol.jobs.extras import OPENPAISDK
from pairuntime.transport.call_format import pack_calls

if TYPE_CHECKING:
    from openpaisdk.connect import ClusterConnection

    Call = tuple[Sequence[object], Mapping[str, object]]

TAG = "function"
OPTIONS = frozenset(keyword for keyword, option in KEYWORDS.items() if option.for_functions)
"""Options of ``Job.one_liner`` that functions have, too."""
SUBMIT_OPTIONS = OPTIONS | {"name", "pip"}
"""Keywords of ``submit`` that are not the function's."""

_OWN_OPTIONS = (
    "name",
    "limit",
    "nodes",
    "tasks_per_node",
    "gpus_per_node",
    "max_pickle_size_gb",
    "stderr_to_stdout",
)
_REFUSALS = (Forbidden, InvalidParameters, NotFound, ProtocolError, UsageError)
"""Errors of a submission after which there is no job. After others there may be one, or one of this name."""


class FunctionOptions:
    """Options of the job of a function."""

    def __init__(
        self,
        name: str = "",
        pip: Any = (),
        limit: int = 0,
        nodes: int = 1,
        tasks_per_node: int = 1,
        gpus_per_node: int = 0,
        max_pickle_size_gb: float = 0,
        stderr_to_stdout: bool = False,
        **options: Any,
    ):
        self.name = name
        if limit < 0:
            raise WrongParameter(f"limit is {limit}: it is how many calls run at a time, and 0 for all.")
        self.limit = limit
        self.nodes = nodes
        self.tasks_per_node = tasks_per_node
        self.gpus_per_node = gpus_per_node
        if min(nodes, tasks_per_node) < 1:
            raise WrongParameter("nodes and tasks_per_node are 1 at least.")
        self.max_pickle_size_gb = max_pickle_size_gb
        """Size that the calls of one submission may have; 0 for any."""
        self.stderr_to_stdout = stderr_to_stdout
        self.values = {key: value for key, value in options.items() if value is not None}
        if pip:
            self.values["pip_installs"] = pip
        if unknown := [key for key in self.values if key not in OPTIONS]:
            raise UnknownParameter(
                f"A job has no option {unknown[0]!r}.",
                hint=f"The options are name, pip, limit, {', '.join(sorted(OPTIONS))}.",
            )

    def with_names_of_its_own(self) -> FunctionOptions:
        """The options for many jobs: each has its own name, which begins with the given one."""
        if self.name and "$" not in self.name:
            return self.updated(name=f"{self.name}_$")
        return self

    @property
    def tasks(self) -> int:
        """Number of tasks that make one call together."""
        return int(self.values.get("instances", self.nodes * self.tasks_per_node))

    def job_values(self) -> dict[str, Any]:
        """The options of the job, for ``Job.one_liner``."""
        values = {**self.values, "instances": self.tasks}
        if self.gpus_per_node:
            values.setdefault("gpu", -(-self.gpus_per_node // self.tasks_per_node))
        return values

    def updated(self, **changes: Any) -> FunctionOptions:
        own = {name: getattr(self, name) for name in _OWN_OPTIONS}
        return FunctionOptions(**{**own, **self.values, **changes})


def new_future(cluster: FunctionCluster, options: FunctionOptions) -> JobFuture:
    """The future of a call that is not submitted yet."""
    return GangFuture(cluster) if options.tasks > 1 else JobFuture(cluster)


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
        raise CallUsageError(f"{function!r} cannot be called: give a function.")
    check_arguments(function, *calls[0])  # those of an array are alike
    if array and options.tasks > 1:
        return _submit_gangs(cluster, function, calls, options, futures)
    name = expand_name(options.name or generate_name(_name_of(function)))
    values = options.job_values()
    folder = _calls_folder(cluster, values)
    if options.name == name:
        _check_name(cluster, folder, name)
    used: set[str] = set()

    def store(content: bytes) -> str:
        path = cluster.store(f"{folder}/{VALUES}", content)
        used.add(path)
        return path

    value_bytes = 0

    def store_value(content: bytes) -> str:
        nonlocal value_bytes
        value_bytes += len(content)
        _check_size(value_bytes, options)
        return store(content)

    pickler = CallPickler(store_value)
    content = pack_calls(pickler.function(function), [pickler.arguments(*call) for call in calls])
    _check_size(value_bytes + len(content), options)
    instances = number_of_tasks(len(calls), options.limit) if array else options.tasks
    after = [*items_of(names_of_jobs(values.pop("after", ())), "after"), *_dependencies(pickler, cluster)]
    entry = cluster.connection.entry
    on_this_machine = entry.shares_machine and not _image(values)
    request = {
        "python": list(python_version()),
        "call": f"{folder}/{name}/calls",
        "results": f"{folder}/{name}",
        "role": ROLE,
        "tasks": instances,
        "array": array,
        "paths": import_paths(on_this_machine),
    }
    if options.tasks_per_node > 1:
        request["tasksPerNode"] = options.tasks_per_node
    if array and instances < len(calls):
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
    recipe = CommandRecipe(JobOptions.read(name, command_of(request), {**values, "after": after}))
    config = _with_extras(recipe.preview(), options.tasks_per_node)
    if (values_of_jobs := StoredValues(cluster.client, cluster.files, folder)).refer(name, used):
        # A job that used them was deleted, and its values with it: upload them again.
        cluster.forget_stored()
        values_of_jobs.delete_of([name])
        return submit_calls(cluster, function, calls, options, array=array, futures=futures)
    cluster.write(str(request["call"]), content)
    futures = futures or JobFutures(new_future(cluster, options) for _ in calls)
    try:
        _submit(cluster, recipe, config)
    except _REFUSALS as error:
        with contextlib.suppress(PaiError):
            cluster.forget_stored()
            values_of_jobs.delete_of([name])
        if error.code != UNSCHEDULABLE_JOB:
            raise
        _attach(futures, cluster, name, request, failed=_never_starts(name, instances, array, error))
    else:
        _attach(futures, cluster, name, request)
    return futures


def _with_extras(config: dict[str, Any], tasks_per_node: int) -> dict[str, Any]:
    """The job with the tag of functions, and with the tasks of a call that belong to one node."""
    extras = dict(config.get("extras") or {})
    tags = items_of(extras.get("tags"), "tags")
    extras["tags"] = tags if TAG in tags else [*tags, TAG]
    if tasks_per_node > 1:
        extras[OPENPAISDK] = {**(extras.get(OPENPAISDK) or {}), "tasksPerNode": tasks_per_node}
    return {**config, "extras": extras}


def _submit(cluster: FunctionCluster, recipe: CommandRecipe, config: Mapping[str, Any]) -> None:
    connection = cluster.connection
    client = connection.client  # connects, so that the entry of a cluster in no file is complete
    built, upload = recipe.build(client, connection.entry, config)
    submit_config(connection, built, upload, strict=True)


def _submit_gangs(
    cluster: FunctionCluster,
    function: Callable[..., Any],
    calls: Sequence[Call],
    options: FunctionOptions,
    futures: JobFutures | None,
) -> JobFutures:
    """One job for each call, because the tasks of a call start together and the calls do not.

    With a limit, a call starts after the one that many places before it. If one is refused, those before it
    are stopped: as with an array, there are jobs of all calls or of none.
    """
    futures = futures or JobFutures(new_future(cluster, options) for _ in calls)
    named = options.with_names_of_its_own()
    after = items_of(names_of_jobs(options.values.get("after", ())), "after")
    for index, (call, future) in enumerate(zip(calls, futures, strict=True)):
        earlier = futures[index - options.limit] if 0 < options.limit <= index else None
        # One that has ended may never have been a job: the cluster refuses those that can never start.
        waits = [f"{earlier.job}:end"] if earlier is not None and not earlier.done() else []
        chosen = named.updated(after=[*after, *waits])
        try:
            submit_calls(cluster, function, [call], chosen, futures=JobFutures([future]))
        except BaseException:
            with contextlib.suppress(PaiError):
                JobFutures(futures[:index]).cancel()
            raise
    return futures


def _check_size(size: int, options: FunctionOptions) -> None:
    """Refuse calls that are larger than ``max_pickle_size_gb``, with the large values that they share."""
    gigabytes = size / (1 << 30)
    if 0 < options.max_pickle_size_gb < gigabytes:
        raise WrongParameter(
            f"The pickled calls have {gigabytes:.2g} GB, and max_pickle_size_gb is "
            f"{options.max_pickle_size_gb:g}.",
            hint="Set a larger one, or let the function read its data from the storage.",
        )


def _never_starts(job: str, tasks: int, array: bool, refusal: PaiError) -> JobNeverStarts:
    """The error of a call whose job asks for more than the cluster has, with what to do."""
    numbers = refusal.message.partition(". ")[2] or refusal.message
    hint = "Ask for less (cpus_per_task, mem_gb, gpus_per_node), or use another cluster or virtual cluster."
    if tasks > 1 and not array:
        hint = (
            f"Its {tasks} tasks start together: use fewer (nodes, tasks_per_node), give each less "
            "(cpus_per_task, mem_gb, gpus_per_node), or use a larger cluster. Calls that need not run at the "
            "same time are an array: map_array."
        )
    return JobNeverStarts(f"The job {job} can never start on this cluster. {numbers}", job=job, hint=hint)


def check_arguments(
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
        raise CallUsageError(
            f"The function {getattr(function, '__name__', function)} cannot be called like this: {error}.",
            hint=f"Did you mean the option {near[0]} of the job?" if near else "",
        ) from None


def futures_of(cluster: ClusterConnection, name: str) -> JobFutures:
    """The futures of the calls of a job that was submitted earlier, maybe by another process."""
    functions = function_cluster(cluster)
    request = request_of(cluster.client.job_config(name))
    if request is None:
        raise CallUsageError(f"The job {name} runs commands, not a Python function: it has no future.")
    if (owner := cluster.client.job(name).user) != functions.user:
        raise Forbidden(
            f"{name} is a job of {owner}: its result is not loaded, because loading a pickle runs code."
        )
    if not request.get("array") and int(request["tasks"]) > 1:
        futures = JobFutures([GangFuture(functions)])
    else:
        futures = JobFutures(
            JobFuture(functions) for _ in range(int(request.get("calls") or request["tasks"]))
        )
    _attach(futures, functions, name.rpartition("~")[2], request)
    return futures


def clean_up(cluster: ClusterConnection | str | None = None, *, min_age_s: float = 3600) -> list[str]:
    """Delete calls, results and values of functions whose jobs the cluster no longer has.

    Returns the names of those jobs. Those of a job that you delete yourself go with it. What is younger than
    ``min_age_s`` stays: its job may be about to be submitted.
    """
    functions = function_cluster(cluster)
    stored = StoredValues(functions.client, functions.files, _calls_folder(functions, {}))
    return stored.delete_orphans(min_age_s)


def open_job(
    folder: str | os.PathLike[str],
    job_id: str,
    tasks: Sequence[int] = (),
    cluster: ClusterConnection | str | None = None,
) -> JobFuture:
    """``submitit.Job(folder, job_id)``: a job that was submitted earlier, maybe by another program.

    ``folder``: of its logs. ``tasks``: the number of one of its tasks, for that one's future.
    """
    chosen = function_cluster(cluster).connection
    try:
        future = futures_of(chosen, job_id)[0]
    except NotFound:
        name, _, index = job_id.rpartition("_")
        if not name or not index.isdigit():
            raise
        try:
            items = futures_of(chosen, name)
        except NotFound:
            items = JobFutures()
        if int(index) >= len(items):
            raise chosen.client.no_job(job_id) from None
        future = items[int(index)]
    future.keep_logs_in(os.fspath(folder))
    return future.task(tasks[0]) if len(tasks) == 1 else future


AnyJob._open = open_job


def _attach(
    futures: JobFutures,
    cluster: FunctionCluster,
    job: str,
    request: Mapping[str, Any],
    *,
    failed: BaseException | None = None,
) -> None:
    """Make the futures those of the calls of a job, and start to wait for it, unless it ``failed``."""
    folder = str(request["results"])
    shared = SharedTasks(cluster, job, folder) if request.get("calls") else None
    watched = futures
    if len(futures) == 1 and isinstance(gang := futures[0], GangFuture):
        watched = gang.attach_tasks(job, folder, int(request["tasks"]))
    else:
        for index, future in enumerate(futures):
            future.attach(job, folder, index, len(futures), shared)
            future.array = futures if request.get("array") else None
    if failed is None:
        JobWatcher(cluster, watched).start()
    for future in watched if failed else ():
        future.set_running()
        future.set_exception(failed)


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
    workspace = workspace or cluster.connection.entry.text("workspace")
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
            raise CallUsageError(
                f"The result of {future.job_id} is on the cluster {future.cluster.alias}: a call on "
                f"{cluster.alias} cannot wait for it.",
                hint="Pass future.result() instead, or submit both to the same cluster.",
            )
        # One failed call of an array does not make the results of the others useless.
        names.append(f"{future.job}:end" if future.array and future.tasks > 1 else future.job)
    return list(dict.fromkeys(names))


def _name_of(function: object) -> str:
    name = getattr(function, "__name__", None) or type(function).__name__
    return "".join(c if c.isalnum() else "-" for c in str(name)).strip("-") or "function"
