"""``submit``, ``map`` and the decorator ``remote``: a Python function as a job."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from openpaisdk.functions.function_cluster import function_cluster
from openpaisdk.functions.function_job import SUBMIT_OPTIONS, FunctionOptions, submit_calls
from openpaisdk.functions.usage_errors import CallUsageError

if TYPE_CHECKING:
    from openpaisdk.connect import ClusterConnection
    from openpaisdk.functions.function_job import Call
    from openpaisdk.functions.job_future import JobFuture, JobFutures
    from openpaisdk.functions.named_arguments import Arguments


def submit(
    function: Callable[..., Any], /, *args: Any, cluster: ClusterConnection | str | None = None, **kwargs: Any
) -> JobFuture:
    """Call a function as a job: ``submit(train, 0.1, gpu=1).result()``.

    Options of the job are keywords (``cluster``, ``name``, ``gpu``, ``image``, ``env``, ``pip`` and the
    others of ``Job.one_liner``); all other keywords are the function's.
    """
    options = {key: kwargs.pop(key) for key in list(kwargs) if key in SUBMIT_OPTIONS}
    _check_clash(function, {**options, **({"cluster": cluster} if cluster is not None else {})})
    return submit_calls(function_cluster(cluster), function, [(args, kwargs)], FunctionOptions(**options))[0]


def map_items(
    function: Callable[..., Any],
    items: Iterable[Any] | None = None,
    *,
    arguments: Arguments | None = None,
    sample: int = 0,
    sample_seed: int = 0,
    limit: int = 8,
    cluster: ClusterConnection | str | None = None,
    **options: Any,
) -> JobFutures:
    """Call a function for each item, as one array job: ``limit`` calls run at a time, 0 for all.

    ``arguments`` instead of ``items``: named ones, as values by name, of which all combinations are called,
    or as a list of rows. With ``sample=20`` the values are a space to draw from, like ``"log(1e-5,1e-1)"``.
    """
    from openpaisdk.functions.job_future import JobFutures

    calls = _calls_of(function, items, arguments, sample, sample_seed)
    if not calls:
        return JobFutures()
    return submit_calls(
        function_cluster(cluster), function, calls, FunctionOptions(limit=limit, **options), array=True
    )


def _calls_of(
    function: Callable[..., Any],
    items: Iterable[Any] | None,
    arguments: Arguments | None,
    sample: int,
    seed: int,
) -> list[Call]:
    if (items is None) == (arguments is None):
        raise CallUsageError("A map needs either items or arguments.")
    if arguments is not None:
        from openpaisdk.functions.named_arguments import calls_with

        return calls_with(function, arguments, sample, seed)
    if sample or seed:
        raise CallUsageError("sample draws named arguments: give arguments instead of items.")
    return [((item,), {}) for item in items or ()]


def remote(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Decorator: a call of the function submits a job and returns its future.

    ``@remote(gpu=1)`` takes the options of ``submit``; ``f.local(...)`` calls the function here.
    """
    if function is None:
        return lambda function: RemoteFunction(function, options)
    return RemoteFunction(function, options)


class RemoteFunction:
    """A function whose calls are jobs."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]):
        functools.update_wrapper(self, function)
        self._cluster = options.pop("cluster", None) if "cluster" in options else None
        self._options = FunctionOptions(**options).with_names_of_its_own()
        self.local = function

    def __call__(self, *args: Any, **kwargs: Any) -> JobFuture:
        return submit_calls(function_cluster(self._cluster), self.local, [(args, kwargs)], self._options)[0]

    def map(
        self,
        items: Iterable[Any] | None = None,
        *,
        arguments: Arguments | None = None,
        sample: int = 0,
        sample_seed: int = 0,
        limit: int = 8,
    ) -> JobFutures:
        """One call for each item, or for each row of named arguments, as one array job."""
        return map_items(
            self.local,
            items,
            arguments=arguments,
            sample=sample,
            sample_seed=sample_seed,
            limit=limit,
            cluster=self._cluster,
            name=self._options.name,
            **self._options.values,
        )

    def options(self, **changes: Any) -> RemoteFunction:
        """The same function with other options."""
        merged = {"name": self._options.name, **self._options.values, **changes}
        merged.setdefault("cluster", self._cluster)
        return RemoteFunction(self.local, merged)

    def __repr__(self) -> str:
        return f"<remote function {getattr(self.local, '__qualname__', self.local)}>"


def _check_clash(function: Callable[..., Any], options: dict[str, Any]) -> None:
    """An option of the job must not be a parameter of the function as well."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    if clash := next((key for key in options if key in parameters), None):
        raise CallUsageError(
            f"{clash} is an option of the job and a parameter of the function.",
            hint=f"Separate them: openpaisdk.remote({clash}=...)(function)({clash}=...)",
        )
