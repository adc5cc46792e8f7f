"""Job as an object: create, validate, submit, wait for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from openpaisdk.binding.async_wrappers import AsyncWrapper, async_generator, async_method
from openpaisdk.binding.cluster import Cluster, SubmittedJob
from openpaisdk.config.clusters import ClusterRegistry
from openpaisdk.errors import UsageError
from openpaisdk.jobs.job_names import expand_name, generate_name

if TYPE_CHECKING:
    from openpaisdk.jobs.sources import SourceArchive


class Job(SubmittedJob):
    """A job of OpenPAI's protocol, version 2.

    ``Job("train_$").one_liner("python train.py", gpu=1).submit("team").wait()``

    ``$`` in a name becomes a unique suffix. ``job.aio`` has the same methods for ``await``.
    """

    def __init__(self, name: str = "", protocol: Mapping[str, Any] | None = None):
        super().__init__(protocol or {"protocolVersion": 2, "type": "job"})
        if name:
            self.name = name
        self._sources: SourceArchive | None = None

    @classmethod
    def of(cls, job: Mapping[str, Any] | str) -> Self:
        """A job from a mapping, or from the text or the path of a job file."""
        from openpaisdk.jobs.job_file import job_data

        return cls(protocol=job_data(job))

    # --- configuration ---

    @property
    def name(self) -> str:
        return str(self.protocol.get("name") or self.protocol.get("jobName") or "")

    @name.setter
    def name(self, name: str) -> None:
        self.protocol["jobName" if "jobName" in self.protocol else "name"] = expand_name(name)

    def new(self, name: str) -> Self:
        """Reset to an empty job with this name."""
        self.protocol = {"protocolVersion": 2, "type": "job"}
        self.name = name
        return self

    def validate(self) -> Self:
        """Raise ``ProtocolError``, with all problems, unless the job is valid."""
        from openpaisdk.protocol import read_any_job

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
        return list(self.extra("tags", []))

    def add_tag(self, tag: str) -> Self:
        return self if self.has_tag(tag) else self.set_extra("tags", [*self.tags(), tag])

    def has_tag(self, tag: str) -> bool:
        return tag in self.tags()

    # --- files and clusters ---

    def load(self, fname: str = "", job_name: str = "", cluster_alias: str = "") -> Self:
        """Read a job file; or, with ``job_name``, the configuration of a job on a cluster."""
        if job_name:
            self.cluster = Cluster(cluster_alias)
            from openpaisdk.jobs.job_file import parse_job_text

            self.protocol = parse_job_text(self.cluster.client.job_config(job_name))
            return self
        from openpaisdk.jobs.job_file import read_job_file

        self.protocol = read_job_file(fname, [])
        return self

    def save(self, fname: str) -> Self:
        """Write a job file: YAML, or JSON if the name ends in ``.json``. Includes the secrets."""
        from openpaisdk.io_utils import to_file

        to_file(self.protocol, fname)
        return self

    # --- shortcuts ---

    def one_liner(
        self,
        commands: str | Sequence[str],
        image: str = "",
        *,
        cluster_alias: str = "",
        cpu: int | None = None,
        gpu: int | None = None,
        memoryMB: int | None = None,  # noqa: N803 (its name in job files and on the command line)
        mem: str = "",
        ports: Mapping[str, int] | None = None,
        virtual_cluster: str = "",
        sources: Sequence[str] = (),
        pip_installs: Sequence[str] = (),
        pip_path: str = "",
        python: str = "",
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        instances: int = 1,
        retries: int = 0,
        priority: str = "",
        timeout: int = 0,
        after: Sequence[str] = (),
        outputs: Sequence[str] = (),
        workspace: str = "",
    ) -> Self:
        """Make this a job that runs commands, like ``pai sub``; other values come from your defaults.

        Several commands run one after the other; each is a shell line. ``sources`` are paths in the current
        folder; they are uploaded when the job is submitted.
        """
        from openpaisdk.jobs.command_job import JobOptions, command_job
        from openpaisdk.jobs.option_values import dependency

        lines = [commands] if isinstance(commands, str) else list(commands)
        if not lines or not all(line.strip() for line in lines):
            raise UsageError("There is no command to run.")
        registry = ClusterRegistry.load()
        if paths := [*sources, *registry.defaults.values("sources")]:
            from openpaisdk.jobs.sources import collect

            self._sources = collect(str(Path.cwd()), paths)
        archive = self._sources
        options = JobOptions(
            self.name or generate_name(lines[0]),
            lines,
            image=image,
            cpu=cpu,
            gpu=gpu,
            memory_mb=memoryMB,
            mem=mem,
            ports=ports,
            virtual_cluster=virtual_cluster,
            sources={"sha256": archive.sha256, "size": archive.size} if archive else None,
            pip_installs=pip_installs,
            pip_path=pip_path,
            python=python,
            env=env,
            secrets=secrets,
            instances=instances,
            retries=retries,
            priority=priority,
            time_limit_s=timeout,
            after=[dependency(text) for text in after],
            outputs=outputs,
            workspace=workspace,
        )
        self.protocol = command_job(options, registry.resolve(cluster_alias), registry.defaults)
        return self

    # --- submission ---

    def submit(self, cluster: Cluster | str | None = None) -> Self:
        """Submit the job to a cluster, given as object or alias; by default to the one that commands use."""
        if cluster is not None or self.cluster is None:
            self.cluster = cluster if isinstance(cluster, Cluster) else Cluster(cluster or "")
        name = self.cluster.submit_config(self.protocol, self._sources)
        self.protocol["jobName" if "jobName" in self.protocol else "name"] = name
        return self

    @property
    def aio(self) -> AsyncJob:
        """The same methods, for ``await``."""
        return AsyncJob(self)

    def _mapping(self, key: str, create: bool = False) -> dict[str, Any]:
        found = self.protocol.get(key)
        if not isinstance(found, dict):
            found = {}
            if create:
                self.protocol[key] = found
        return found


class AsyncJob(AsyncWrapper):
    """``Job`` with awaitable methods."""

    sync: Job

    submit = async_method(Job.submit)
    get_status = async_method(Job.get_status)
    wait = async_method(Job.wait)
    logs = async_method(Job.logs)
    follow = async_generator(Job.follow)
    stop = async_method(Job.stop)
