"""Job as an object: create, validate, submit, wait for it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from openpaisdk.binding.async_wrappers import AsyncWrapper, async_generator, async_method
from openpaisdk.binding.cluster import Cluster, SubmittedJob
from openpaisdk.jobs.job_names import expand_name
from openpaisdk.jobs.job_options import KEYWORDS, JobKeywords, JobOptions
from openpaisdk.jobs.option_values import items_of
from paiprotocol.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from openpaisdk.jobs.command_recipe import CommandRecipe
    from openpaisdk.jobs.short_job_file import ShortJob
    from openpaisdk.jobs.task_array import ArrayOption

    Method = TypeVar("Method", bound=Callable[..., Any])


def shows_options(method: Method) -> Method:
    """A method whose ``**options`` are job options: help and editors show them one by one."""
    own = inspect.signature(method)
    parameters = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    for keyword, option in KEYWORDS.items():
        if keyword not in own.parameters:
            default = () if option.default in ([], {}) else option.default
            kind, annotation = inspect.Parameter.KEYWORD_ONLY, JobKeywords.__annotations__[keyword]
            parameters.append(inspect.Parameter(keyword, kind, default=default, annotation=annotation))
    method.__dict__["__signature__"] = own.replace(parameters=parameters)
    return method


class Job(SubmittedJob):
    """A job of OpenPAI's protocol, version 2.

    ``Job("train_$").one_liner("python train.py", gpu=1).submit("team").wait()``

    ``$`` in a name becomes a unique suffix. ``job.aio`` has the same methods for ``await``.
    """

    def __init__(self, name: str = "", protocol: Mapping[str, Any] | None = None):
        super().__init__(protocol or {"protocolVersion": 2, "type": "job"})
        if name:
            self.name = name
        self._recipe: CommandRecipe | None = None

    @classmethod
    def of(cls, job: Mapping[str, Any] | str) -> Self:
        """A job from a mapping, or from the text or the path of a job file."""
        from openpaisdk.jobs.job_file import job_data
        from openpaisdk.jobs.short_job_file import find_short_job

        if short := find_short_job(job):
            return cls()._use(short)
        return cls(protocol=job_data(job))

    def _use(self, short: ShortJob) -> Self:
        from openpaisdk.jobs.command_recipe import CommandRecipe

        self._recipe = CommandRecipe(short.options, folder=short.folder)
        self.protocol = self._recipe.preview()
        return self

    # --- configuration ---

    @property
    def name(self) -> str:
        return str(self.protocol.get("name") or self.protocol.get("jobName") or "")

    @name.setter
    def name(self, name: str) -> None:
        self.protocol["jobName" if "jobName" in self.protocol else "name"] = expand_name(name)

    def new(self, name: str) -> Self:
        """Reset to an empty job with this name."""
        self._recipe = None
        self.protocol = {"protocolVersion": 2, "type": "job"}
        self.name = name
        return self

    def validate(self) -> Self:
        """Raise ``ProtocolError``, with all problems, unless the job is valid."""
        from paiprotocol.jobs import read_any_job

        read_any_job(self.protocol)
        return self

    # --- values ---

    def param(self, key: str, default: Any = None) -> Any:
        return self._mapping("parameters").get(key, default)

    def set_param(self, key: str, value: Any) -> Self:
        self._mapping("parameters", create=True)[key] = value
        return self

    def secret(self, key: str, default: Any = None) -> Any:
        return self._mapping("secrets").get(key, default)

    def set_secret(self, key: str, value: Any) -> Self:
        self._mapping("secrets", create=True)[key] = value
        return self

    def extra(self, key: str, default: Any = None) -> Any:
        return self._mapping("extras").get(key, default)

    def set_extra(self, key: str, value: Any) -> Self:
        self._mapping("extras", create=True)[key] = value
        return self

    def tags(self) -> list[str]:
        return items_of(self.extra("tags"), "tags")

    def add_tag(self, tag: str) -> Self:
        return self if self.has_tag(tag) else self.set_extra("tags", [*self.tags(), tag])

    def has_tag(self, tag: str) -> bool:
        return tag in self.tags()

    # --- files and clusters ---

    def load(self, fname: str = "", job_name: str = "", cluster_alias: str = "") -> Self:
        """Read a job file; or, with ``job_name``, the configuration of a job on a cluster."""
        self._recipe = None
        if job_name:
            self.cluster = Cluster(cluster_alias)
            from openpaisdk.jobs.job_file import parse_job_text

            self.protocol = parse_job_text(self.cluster.client.job_config(job_name))
            return self
        from openpaisdk.jobs.job_file import is_job_path, read_job_file
        from openpaisdk.jobs.short_job_file import find_short_job

        if is_job_path(fname) and (short := find_short_job(fname)):
            return self._use(short)
        self.protocol = read_job_file(fname, [])
        return self

    def save(self, fname: str) -> Self:
        """Write a job file: YAML, or JSON if the name ends in ``.json``. Includes the secrets."""
        from openpaisdk.io_utils import to_file

        to_file(self.protocol, fname)
        return self

    # --- shortcuts ---

    @shows_options
    def one_liner(
        self,
        commands: str | Sequence[str],
        image: str = "",
        *,
        cluster_alias: str = "",
        **options: Unpack[JobKeywords],
    ) -> Self:
        """Make this a job that runs commands, like ``pai sub``; other values come from your defaults.

        Several commands run one after the other; each is a shell line. Where a list is expected, text is one
        item. ``mem`` and ``timeout`` take forms like ``4g`` and ``2h``. ``sources`` are the files to upload:
        by default the current folder, with an empty list nothing. Files and the values that depend on the
        cluster (defaults, workspace, sizes) are those of the moment and the cluster of ``submit``.
        """
        if callable(commands):
            raise UsageError(
                "one_liner takes commands, not a Python function.",
                hint="Call the function as a job: openpaisdk.submit(function, ...).",
            )
        if unknown := [keyword for keyword in options if keyword not in KEYWORDS]:
            raise TypeError(f"Job.one_liner() got an unexpected keyword argument {unknown[0]!r}")
        from openpaisdk.jobs.command_recipe import CommandRecipe

        given = {"image": image, **options}
        self._recipe = CommandRecipe(JobOptions.read(self.name, commands, given), cluster_alias)
        self.protocol = self._recipe.preview()
        return self

    def sweep(
        self,
        commands: str | Sequence[str],
        values: ArrayOption | str | os.PathLike[str],
        image: str = "",
        *,
        limit: int = 0,
        **options: Any,
    ) -> Self:
        """Make this a job with one independent task for each combination of values, or for each row.

        ``values``: lists by name (``{"lr": [0.1, 0.01]}``), of which all combinations run; a list of rows
        (``[{"lr": 0.1, "seed": 1}, ...]``); or the path of a file with rows. With ``sample=20`` they are a
        space to draw from (``{"lr": "log(1e-5,1e-1)"}``). ``limit`` tasks run at a time, 0 for all. The value
        is ``{lr}`` in the commands and ``$lr`` in the task. ``options`` are those of ``one_liner``.
        """
        from openpaisdk.jobs.sweep import sweep_options

        return self.one_liner(commands, image, **sweep_options(values, limit, options))

    def from_notebook(
        self,
        notebook: str | os.PathLike[str] = "",
        image: str = "",
        *,
        parameters: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Make this a job that runs a notebook, by default the one whose cell calls this.

        ``parameters`` are variables that the notebook starts with. ``options`` are those of ``one_liner``.
        """
        from openpaisdk.jobs.notebook_job import open_notebook

        if not notebook:
            from openpaisdk.jobs.current_notebook import current_notebook

            notebook = current_notebook()
        opened = open_notebook(notebook)
        if not self.name:
            self.name = opened.generate_job_name()
        self.one_liner(opened.command(dict(parameters or {})), image, **options)
        if self._recipe is not None:
            opened.add_to(self._recipe.options)
            self._recipe.folder = opened.folder
        return self

    # --- submission ---

    def submit(self, cluster: Cluster | str | None = None, *, strict: bool = False) -> Self:
        """Submit the job to a cluster, given as object or alias; by default to the one that commands use.

        ``strict``: raise an error if the job asks for more than its virtual cluster has.
        """
        if cluster is not None or self.cluster is None:
            alias = self._recipe.cluster_alias if self._recipe else ""
            self.cluster = cluster if isinstance(cluster, Cluster) else Cluster(cluster or alias)
        upload = None
        if self._recipe is not None:
            client = self.cluster.client  # connects, so that the entry of a cluster in no file is complete
            self.protocol, upload = self._recipe.build(client, self.cluster.entry, self.protocol)
        name = self.cluster.submit_config(self.protocol, upload, strict=strict)
        self.protocol["jobName" if "jobName" in self.protocol else "name"] = name
        return self

    @property
    def aio(self) -> AsyncJob:
        """The same methods, for ``await``."""
        return AsyncJob(self)

    def _mapping(self, key: str, create: bool = False) -> dict[str, Any]:
        mapping = self.protocol.get(key)
        if not isinstance(mapping, dict):
            mapping = {}
            if create:
                self.protocol[key] = mapping
        return mapping


class AsyncJob(AsyncWrapper):
    """``Job`` with awaitable methods."""

    sync: Job

    submit = async_method(Job.submit)
    get_status = async_method(Job.get_status)
    wait = async_method(Job.wait)
    logs = async_method(Job.logs)
    follow = async_generator(Job.follow)
    stop = async_method(Job.stop)
