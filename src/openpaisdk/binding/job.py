"""A job as an object: made, looked at, handed in, waited for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from openpaisdk.binding.async_wrappers import AsyncWrapper, async_generator, async_method
from openpaisdk.config.clusters import ClusterRegistry
from openpaisdk.errors import PaiError, UsageError
from openpaisdk.jobs.job_names import expand_name, generate_name

if TYPE_CHECKING:
    from openpaisdk.binding.cluster import Cluster
    from openpaisdk.client.models import JobStatus as JobStatus
    from openpaisdk.jobs.sources import SourceArchive


class Job:
    """A job of OpenPAI's protocol, version 2.

    ``Job("train_$").one_liner("python train.py", gpu=1).submit("team").wait()``

    ``$`` in a name becomes letters that make it unique. ``job.aio`` has the same methods for ``await``.
    """

    def __init__(self, name: str = "", protocol: Mapping[str, Any] | None = None):
        self.protocol: dict[str, Any] = dict(protocol or {"protocolVersion": 2, "type": "job"})
        if name:
            self.name = name
        self.cluster: Cluster | None = None
        self._sources: SourceArchive | None = None

    @classmethod
    def of(cls, job: Mapping[str, Any] | str) -> Self:
        """A job from a mapping, or from the text or the path of a job file."""
        if not isinstance(job, str):
            return cls(protocol=job)
        made = cls()
        return made.load(job) if "\n" not in job and Path(job).exists() else made._read(job)

    # --- what it is ---

    @property
    def name(self) -> str:
        return str(self.protocol.get("name") or self.protocol.get("jobName") or "")

    @name.setter
    def name(self, name: str) -> None:
        self.protocol["jobName" if "jobName" in self.protocol else "name"] = expand_name(name)

    def new(self, name: str) -> Self:
        """Begin anew, with nothing but a name."""
        self.protocol = {"protocolVersion": 2, "type": "job"}
        self.name = name
        return self

    def get_config(self) -> dict[str, Any]:
        """The job as it would be sent."""
        return dict(self.protocol)

    def validate(self) -> Self:
        """Raise ``ProtocolError``, with all that is wrong, unless this is a good job."""
        from openpaisdk.protocol import read_any_job

        read_any_job(self.protocol)
        return self

    def __repr__(self) -> str:
        where = f" on {self.cluster.alias}" if self.cluster else ""
        return f"<Job {self.name or 'without a name'}{where}>"

    def __str__(self) -> str:
        from openpaisdk.jobs.submission import mask_secrets
        from openpaisdk.protocol import dump_yaml

        return dump_yaml(mask_secrets(self.protocol))

    # --- its values ---

    def param(self, key: str, default: Any = None) -> Any:
        return self._mapping("parameters").get(key, default)

    def set_param(self, key: str, value: Any) -> Self:
        self._mapping("parameters", make=True)[key] = value
        return self

    def secret(self, key: str, default: Any = None) -> Any:
        return self._mapping("secrets").get(key, default)

    def set_secret(self, key: str, value: Any) -> Self:
        self._mapping("secrets", make=True)[key] = value
        return self

    def extra(self, key: str, default: Any = None) -> Any:
        return self._mapping("extras").get(key, default)

    def set_extra(self, key: str, value: Any) -> Self:
        self._mapping("extras", make=True)[key] = value
        return self

    def tags(self) -> list[str]:
        return list(self.extra("tags", []))

    def add_tag(self, tag: str) -> Self:
        return self if self.has_tag(tag) else self.set_extra("tags", [*self.tags(), tag])

    def has_tag(self, tag: str) -> bool:
        return tag in self.tags()

    # --- from and to files and clusters ---

    def load(self, fname: str = "", job_name: str = "", cluster_alias: str = "") -> Self:
        """Read a job file; or, with ``job_name``, take over a job that a cluster has."""
        if job_name:
            from openpaisdk.binding.cluster import Cluster

            self.cluster = Cluster(cluster_alias)
            return self._read(self.cluster.client.job_config(job_name))
        from openpaisdk.jobs.job_file import read_job_file

        self.protocol = read_job_file(fname, [])
        return self

    def save(self, fname: str) -> Self:
        """Write a job file: YAML, or JSON where the name ends so. Secrets are written too."""
        from openpaisdk.io_utils import to_file

        to_file(self.protocol, fname)
        return self

    def _read(self, text: str) -> Self:
        import yaml

        found = yaml.safe_load(text)
        if not isinstance(found, dict):
            raise UsageError("This text is not a job.")
        self.protocol = found
        return self

    # --- quick ways to make one ---

    def one_liner(
        self,
        commands: str | Sequence[str],
        image: str = "",
        *,
        cluster_alias: str = "",
        cpu: int | None = None,
        gpu: int | None = None,
        memoryMB: int | None = None,  # noqa: N803 (the name it has in job files and on the command line)
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
        """Make this a job that runs a command, as ``pai sub`` does; the rest comes from your defaults.

        Several commands run one after the other; each is a line for a shell. ``sources`` are paths in the
        current folder; they travel when the job is submitted.
        """
        from openpaisdk.jobs.command_job import (
            ELSEWHERE,
            HERE,
            HOST_IMAGE,
            JobOptions,
            ResourceOptions,
            one_liner,
        )
        from openpaisdk.jobs.option_values import dependency, memory_mb
        from openpaisdk.jobs.pre_commands import PreCommands

        lines = [commands] if isinstance(commands, str) else list(commands)
        if not lines or not all(line.strip() for line in lines):
            raise UsageError("There is no command to run.")
        book = ClusterRegistry.load()
        defaults = book.defaults
        entry = book.resolve(cluster_alias)
        base = HERE if entry.is_embedded else ELSEWHERE
        memory = memory_mb(mem) if mem else memoryMB

        def pick(given: int | None, key: str, fallback: int) -> int:
            kept = defaults.number(key) if given is None else given
            return fallback if kept is None else kept

        if memory is None and defaults.text("mem"):
            memory = memory_mb(defaults.text("mem"))
        around = PreCommands(
            environment=env,
            secrets=secrets,
            python=python,
            pip_installs=[*pip_installs, *defaults.many("pip-installs")],
            pip_path=pip_path,
            sdk_branch=defaults.text("container-sdk-branch"),
        )
        only = [*sources, *defaults.many("sources")]
        if only:
            from openpaisdk.jobs.sources import collect

            self._sources = collect(str(Path.cwd()), only)
        packed = self._sources
        made = one_liner(
            self.name or generate_name(lines[0]),
            lines[0],
            image=image or defaults.text("image") or HOST_IMAGE,
            resources=ResourceOptions(
                pick(cpu, "cpu", base.cpu),
                pick(gpu, "gpu", base.gpu),
                pick(memory, "memoryMB", base.memory_mb),
                ports,
            ),
            virtual_cluster=virtual_cluster or defaults.text("virtual-cluster"),
            sources={"sha256": packed.sha256, "size": packed.size} if packed else None,
            around=around,
            wishes=JobOptions(
                instances=instances,
                retries=retries,
                priority=priority,
                time_limit=timeout,
                after=[dependency(text) for text in after],
                outputs=outputs,
                workspace=workspace or entry.text("workspace") or defaults.text("workspace"),
            ),
        )
        made["taskRoles"]["main"]["commands"] = lines  # type: ignore[index]
        self.protocol = made
        return self

    # --- on a cluster ---

    def select_cluster(self, cluster_alias: str = "") -> Self:
        """The cluster that the other methods mean."""
        from openpaisdk.binding.cluster import Cluster

        self.cluster = Cluster(cluster_alias)
        return self

    def submit(self, cluster: Cluster | str | None = None) -> Self:
        """Hand the job in, to a cluster or to the one of that alias; by default the one commands use."""
        from openpaisdk.binding.cluster import Cluster
        from openpaisdk.jobs.command_job import HOST_IMAGE, callers_environment
        from openpaisdk.jobs.submission import submit_job

        if cluster is not None or self.cluster is None:
            self.cluster = cluster if isinstance(cluster, Cluster) else Cluster(cluster or "")
        there = self.cluster
        self.validate()
        job = dict(self.protocol)
        wire = there.client  # a cluster in no file is met now
        entry = there.entry
        if _image(job) == HOST_IMAGE and not entry.is_ours:
            raise UsageError(f"The cluster {entry.alias} runs jobs in containers: the job needs an image.")
        if entry.is_embedded and job.get("protocolVersion"):
            extras = dict(job.get("extras") or {})
            ours = {"environment": callers_environment(), **(extras.get("openpaisdk") or {})}
            job["extras"] = {**extras, "openpaisdk": ours}
        if self._sources:
            from openpaisdk.jobs.sources import send

            send(wire, self._sources)
        name = submit_job(wire, job)
        self.protocol["jobName" if "jobName" in self.protocol else "name"] = name
        return self

    @property
    def link(self) -> str:
        """Its page on the cluster's web portal."""
        return self._there().get_job_link(self.name)

    def get_status(self) -> JobStatus:
        return self._there().status(self.name)

    @property
    def state(self) -> str:
        return self.get_status().state

    def wait(self, timeout: float | None = None) -> str:
        """Wait until it is over; the state it ended in."""
        return self._there().wait(self.name, timeout=timeout)

    def logs(self, *, role: str = "", index: int = 0, stream: str = "all", tail: int | None = None) -> str:
        """What a task has printed until now."""
        return self._there().logs(self.name, role=role, index=index, stream=stream, tail=tail)

    def follow(self, *, role: str = "", index: int = 0, stream: str = "all") -> Iterator[str]:
        """The lines a task prints, as it prints them, until the job is over."""
        return self._there().follow(self.name, role=role, index=index, stream=stream)

    def stop(self) -> Self:
        """Tell it to end."""
        self._there().stop(self.name)
        return self

    @property
    def aio(self) -> AsyncJob:
        """The same methods, for ``await``."""
        return AsyncJob(self)

    def _there(self) -> Cluster:
        if not self.name:
            raise PaiError("This job has no name, so no cluster can know it.")
        if self.cluster is None:
            self.select_cluster()
        if self.cluster is None:
            raise PaiError("This job is on no cluster.")
        return self.cluster

    def _mapping(self, key: str, make: bool = False) -> dict[str, Any]:
        found = self.protocol.get(key)
        if not isinstance(found, dict):
            found = {}
            if make:
                self.protocol[key] = found
        return found


def _image(job: Mapping[str, Any]) -> str:
    found = [p.get("uri") for p in job.get("prerequisites") or [] if p.get("type") == "dockerimage"]
    return str(found[0]) if len(found) == 1 else ""


class AsyncJob(AsyncWrapper):
    """A job for ``await``."""

    sync: Job

    submit = async_method(Job.submit)
    get_status = async_method(Job.get_status)
    wait = async_method(Job.wait)
    logs = async_method(Job.logs)
    follow = async_generator(Job.follow)
    stop = async_method(Job.stop)
