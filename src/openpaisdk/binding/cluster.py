"""Cluster as an object: submit and follow jobs, query resources, access its storage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, overload

from openpaisdk.binding.async_wrappers import AsyncWrapper, async_generator, async_method
from openpaisdk.binding.job_list import JobList
from openpaisdk.binding.rest_api_names import RestApiNames
from openpaisdk.binding.run_list import Runs
from openpaisdk.binding.wait_report import WaitReport
from openpaisdk.client.follow import follow, log_lines, log_text
from openpaisdk.client.follow_stream import NO_LOG, FollowRequest
from openpaisdk.client.models import CORES, GPUS, MEMORY, VirtualCluster, check_states
from openpaisdk.client.models import JobStatus as JobStatus
from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry
from openpaisdk.connect import ClusterConnection
from openpaisdk.jobs.config_submission import submit_config
from openpaisdk.jobs.job_names import NamedJob
from openpaisdk.jobs.job_notices import STATE, WAITING, job_notices
from openpaisdk.jobs.option_values import seconds
from openpaisdk.jobs.runs import load_runs
from paiprotocol.errors import PaiError, UsageError

if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient
    from openpaisdk.functions import JobFuture, JobFutures
    from openpaisdk.storage import Storage


class Submittable(Protocol):
    """A job object that submits itself, like ``Job``."""

    def get_config(self) -> dict[str, Any]: ...

    def submit(self, cluster: Any = ...) -> Any: ...


SubmittableT = TypeVar("SubmittableT", bound=Submittable)


class Cluster(ClusterConnection, RestApiNames):
    """One cluster, as one user.

    ``Cluster("team")`` is an entry of your clusters file, ``Cluster()`` the one that commands use, and
    ``Cluster("new", "http://pai.example.org", "alice", password="...")`` one that is in no file.
    Thread-safe. ``cluster.aio`` has the same methods for ``await``.
    """

    def __init__(
        self,
        cluster_alias: str = "",
        pai_uri: str = "",
        user: str = "",
        password: str = "",
        token: str = "",
        *,
        verify: bool = True,
        ca_file: str = "",
        **more: object,
    ):
        if pai_uri or more.get("type"):
            raw: dict[str, object] = {**more, "cluster_alias": cluster_alias or "cluster"}
            settings = {"pai_uri": pai_uri, "user": user, "password": password, "token": token}
            raw.update({k: v for k, v in settings.items() if v})
            if not verify:
                raw["verify_tls"] = False
            if ca_file:
                raw["ca_file"] = ca_file
            entry = ClusterEntry(raw)
        else:
            entry = ClusterRegistry.load().resolve(cluster_alias)
        super().__init__(entry)

    @classmethod
    def of(cls, entry: ClusterEntry) -> Cluster:
        """The cluster of an entry of the clusters file."""
        made = cls.__new__(cls)
        ClusterConnection.__init__(made, entry)
        return made

    # --- identity ---

    @property
    def user(self) -> str:
        return self.entry.text("user") or self.client.user

    @property
    def pai_uri(self) -> str:
        return self.entry.text("pai_uri") or self.client.uri

    @property
    def aio(self) -> AsyncCluster:
        """The same methods, for ``await``."""
        return AsyncCluster(self)

    def display_fields(self) -> dict[str, str]:
        """Fields to display of this cluster, without a request to it."""
        return {"cluster": self.alias, "address": self.entry.shown_address, "user": self.entry.text("user")}

    def _repr_html_(self) -> str:
        from openpaisdk.output.html import html_fields

        return html_fields(self.display_fields())

    def _ipython_display_(self) -> None:
        from openpaisdk.binding.live_views import show_cluster

        show_cluster(self.display_fields(), repr(self), self.entry, self.virtual_clusters)

    def info(self) -> dict[str, object]:
        """Name, version and login method of the cluster."""
        return self.client.info()

    def check(self) -> Cluster:
        """Check connection and token; raises an error if something is wrong."""
        self.client.virtual_clusters()
        return self

    def get_token(self, password: str = "") -> str:
        """Get a new token for a password and use it from now on."""
        password = password or self.entry.text("password")
        if not password:
            raise UsageError(f"A token for {self.alias} needs a password.")
        return self.login(self.client.login(self.user, password)).entry.text("token")

    def login(self, token: str) -> Cluster:
        """Use this token from now on."""
        self._use(ClusterEntry({**self.entry.raw, "token": token}))
        return self

    # --- resources ---

    def virtual_clusters(self) -> list[VirtualCluster]:
        return self.client.virtual_clusters()

    def available_resources(self) -> dict[str, dict[str, int]]:
        """Free resources of each virtual cluster: ``{"default": {"GPUs": 1, "vCores": 8, "memory": 1024}}``.

        -1 where the cluster does not report a value.
        """
        free: dict[str, dict[str, int]] = {}
        for vc in self.virtual_clusters():
            kinds = {"GPUs": GPUS, "vCores": CORES, "memory": MEMORY}
            amounts = {kind: vc.available(*keys) for kind, keys in kinds.items()}
            free[vc.name] = {kind: -1 if n is None else n for kind, n in amounts.items()}
        return free

    @property
    def storage(self) -> Storage:
        """The files of this cluster: ``.list``, ``.upload``, ``.download`` and more."""
        from openpaisdk.storage import Storage

        return Storage.of(self.client)

    # --- jobs ---

    @overload
    def jobs(self, name: str) -> JobStatus: ...

    @overload
    def jobs(
        self,
        *,
        user: str | None = None,
        state: str = "",
        keyword: str = "",
        virtual_cluster: str = "",
        tags: str = "",
    ) -> JobList: ...

    def jobs(
        self,
        name: str = "",
        *,
        user: str | None = None,
        state: str = "",
        keyword: str = "",
        virtual_cluster: str = "",
        tags: str = "",
    ) -> JobList | JobStatus:
        """Your jobs, newest first (``user=""``: all users' jobs); or, with a name, the status of one job."""
        if name:
            return self.status(name, user or "")
        if state:
            check_states(state)
        summaries = self.client.all_jobs(
            user=self.user if user is None else user,
            state=state.upper(),
            keyword=keyword,
            virtual_cluster=virtual_cluster,
            tags=tags,
        )
        return JobList(summaries)

    def runs(
        self,
        *names: str,
        user: str | None = None,
        state: str = "",
        keyword: str = "",
        tags: str = "",
        limit: int | None = None,
        metrics: Sequence[str] = (),
    ) -> Runs:
        """Parameters, states and metrics of the tasks of these jobs; or of those that the filters select, the
        newest first.

        ``limit``: the maximum number of jobs; ``metrics``: only these.
        """
        if state:
            check_states(state)
        owner = self.user if user is None else user
        client = self.client
        table, _ = load_runs(
            client,
            [client.whole_name(name, owner) for name in names],
            limit=limit,
            metrics=metrics,
            username=owner,
            state=state.upper(),
            keyword=keyword,
            tagsContain=tags,
        )
        return Runs(table)

    def status(self, name: str, user: str = "") -> JobStatus:
        """Status of a job: ``.state``, ``.tasks``, and the whole response in ``.raw``."""
        return self.client.job(name, user)

    @overload
    def submit(self, job: SubmittableT) -> SubmittableT: ...

    @overload
    def submit(self, job: Mapping[str, Any] | str) -> SubmittedJob: ...

    def submit(self, job: Any) -> Any:
        """Submit a ``Job``, a mapping, or the text or path of a job file; returns the submitted job."""
        if not isinstance(job, Mapping | str):
            return job.submit(self)
        from openpaisdk.jobs.job_file import job_data
        from openpaisdk.jobs.short_job_file import find_short_job

        upload = None
        if short := find_short_job(job):
            from openpaisdk.jobs.command_recipe import CommandRecipe

            recipe = CommandRecipe(short.options, folder=short.folder)
            config, upload = recipe.build(self.client, self.entry, recipe.preview())
        else:
            config = job_data(job)
        submitted = SubmittedJob(config, self)
        submitted.name = self.submit_config(config, upload)
        return submitted

    def submit_config(
        self,
        config: Mapping[str, Any],
        upload: Callable[[ClusterClient], None] | None = None,
        *,
        strict: bool = False,
    ) -> str:
        """Validate a job given as plain data, upload its files and submit it; returns its name."""
        return submit_config(self, config, upload, strict=strict)

    def stop(self, name: str, user: str = "") -> None:
        """Stop a job."""
        self.client.stop(name, user)

    def delete(self, name: str, user: str = "") -> None:
        """Delete a finished job, with its logs, and with what its function left on the storage."""
        from openpaisdk.jobs.deletion import delete_job

        delete_job(self.client, name, user)

    def wait(
        self,
        name: str,
        user: str = "",
        timeout: str | float | None = None,
        *,
        progress: bool | None = None,
    ) -> str:
        """Wait until a job finishes; returns its final state. ``TimeoutError`` after ``timeout``.

        ``timeout`` is a number of seconds, or text like ``2h``. At a terminal and in a notebook the job's
        states and the reason of a failure are printed; ``progress`` switches that on or off.
        """
        report = WaitReport(name, progress)
        try:
            state = (
                self._follow_to_end(name, user, report)
                if timeout is None
                else self._poll_to_end(name, user, _seconds(timeout), report)
            )
        except KeyboardInterrupt:
            if report.is_shown:
                report.show_message("stopped waiting; the job continues.")
            raise
        if report.is_shown:
            report.show_outcome(self.status(name, user))
        return state

    def _follow_to_end(self, name: str, user: str, report: WaitReport) -> str:
        state = ""
        for notice in job_notices(follow(self.client, FollowRequest(name, user, stream=NO_LOG))):
            report.show(notice)
            state = notice.text if notice.kind == STATE else state
        return state

    def _poll_to_end(self, name: str, user: str, timeout_s: float, report: WaitReport) -> str:
        """Poll the job: a blocking stream cannot be left at a given moment."""
        deadline, pause = time.monotonic() + timeout_s, 0.05
        while not (job := self.status(name, user)).is_finished:
            report.show_state(job.state)
            if report.is_shown and job.state == WAITING and (reason := self.pending_reason(name, user)):
                report.show_message(reason)
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                raise TimeoutError(f"The job {name} is {job.state} after {timeout_s:g} seconds.")
            time.sleep(min(pause, remaining_s))
            pause = min(pause * 1.5, 1.0)
        return job.state

    def pending_reason(self, name: str, user: str = "") -> str:
        """Why a job waits for its start; empty if the cluster has not said so."""
        return self.client.pending_reason(name, user)

    def logs(
        self,
        name: str,
        user: str = "",
        *,
        role: str = "",
        index: int = 0,
        stream: str = "all",
        tail: int | None = None,
    ) -> str:
        """The log of a task until now."""
        request = FollowRequest(name, user, role=role, index=index, stream=stream, tail=tail, follow=False)
        return log_text(self.client, request)

    def follow(
        self,
        name: str,
        user: str = "",
        *,
        role: str = "",
        index: int = 0,
        stream: str = "all",
        tail: int | None = None,
    ) -> Iterator[str]:
        """The lines of a task's log as they are written, until the job finishes."""
        request = FollowRequest(name, user, role=role, index=index, stream=stream, tail=tail)
        # A connection of its own: the caller may send other requests between two lines.
        yield from log_lines(self.open_client(), request)

    def get_job_link(self, name: str, user: str = "") -> str:
        """The page of a job on the cluster's web portal."""
        return self.client.job_page(name, user)


def _seconds(timeout: str | float) -> float:
    """Seconds to wait. A number may be a fraction or 0, which a job's time limit may not."""
    return seconds(timeout) if isinstance(timeout, str) else timeout


class SubmittedJob(NamedJob):
    """A job on a cluster: its configuration as submitted, its status, its log."""

    def __init__(self, protocol: Mapping[str, Any], cluster: Cluster | None = None):
        self.protocol: dict[str, Any] = dict(protocol)
        self.cluster = cluster

    @property
    def name(self) -> str:
        return str(self.protocol.get("name") or self.protocol.get("jobName") or "")

    @name.setter
    def name(self, name: str) -> None:
        self.protocol["jobName" if "jobName" in self.protocol else "name"] = name

    def get_config(self) -> dict[str, Any]:
        """The job as plain data."""
        return dict(self.protocol)

    def __repr__(self) -> str:
        where = f" on {self.cluster.alias}" if self.cluster else ""
        return f"<Job {self.name or 'without a name'}{where}>"

    def __str__(self) -> str:
        from openpaisdk.jobs.submission import mask_secrets
        from paiprotocol.jobs import dump_yaml

        return dump_yaml(mask_secrets(self.protocol))

    def display_fields(self) -> dict[str, str]:
        """Fields to display of this job, without a request to its cluster."""
        from openpaisdk.binding.job_fields import job_fields

        return job_fields(self.protocol, self.cluster.alias if self.cluster else "")

    def _repr_html_(self) -> str:
        from openpaisdk.output.html import html_fields

        return html_fields(self.display_fields())

    def _ipython_display_(self) -> None:
        from openpaisdk.binding.live_views import show_job

        if self.cluster is None or not self.name:
            raise NotImplementedError  # nothing of it changes: IPython shows the ordinary representation
        show_job(self.display_fields(), repr(self), self.cluster.entry, self.get_status)

    @property
    def link(self) -> str:
        """The job's page on the cluster's web portal."""
        return self._on_cluster().get_job_link(self.name)

    def get_status(self) -> JobStatus:
        return self._on_cluster().status(self.name)

    @property
    def state(self) -> str:
        return self.get_status().state

    def wait(self, timeout: str | float | None = None, *, progress: bool | None = None) -> str:
        """Wait until the job finishes; returns its final state. ``progress`` as in ``Cluster.wait``."""
        return self._on_cluster().wait(self.name, timeout=timeout, progress=progress)

    def logs(self, *, role: str = "", index: int = 0, stream: str = "all", tail: int | None = None) -> str:
        """The log of a task until now."""
        return self._on_cluster().logs(self.name, role=role, index=index, stream=stream, tail=tail)

    def follow(self, *, role: str = "", index: int = 0, stream: str = "all") -> Iterator[str]:
        """The lines of a task's log as they are written, until the job finishes."""
        return self._on_cluster().follow(self.name, role=role, index=index, stream=stream)

    def future(self) -> JobFuture:
        """The future of the function that this job calls, as ``openpaisdk.submit`` returned it."""
        return self.futures()[0]

    def futures(self) -> JobFutures:
        """The futures of all calls of this job: one, also if several tasks make it together."""
        from openpaisdk.functions import futures_of

        return futures_of(self._on_cluster(), self.name)

    def runs(self, *, metrics: Sequence[str] = ()) -> Runs:
        """Parameters, states and metrics of the tasks of an array; of another job, one run."""
        return self._on_cluster().runs(self.name, metrics=metrics)

    def stop(self) -> Self:
        """Stop the job."""
        self._on_cluster().stop(self.name)
        return self

    def resubmit(self, name: str = "", *, strict: bool = False, **options: Any) -> SubmittedJob:
        """Submit a copy of this job, as it is on the cluster, with changes: ``job.resubmit(gpu=8)``.

        Without ``name`` the name gets a new suffix. Options are those of ``Job.one_liner``; ``role``,
        ``updates`` and ``deployment`` as in ``pai resubmit``. What is not given is as in this job.
        ``strict``: raise an error if the copy asks for more than its virtual cluster has.
        """
        from openpaisdk.binding.job_copy import copy_of_job

        cluster = self._on_cluster()
        data, upload = copy_of_job(cluster.client, cluster.entry, self.name, name, **options)
        copy = SubmittedJob(data, cluster)
        copy.name = cluster.submit_config(data, upload, strict=strict)
        return copy

    def resubmit_failed(
        self, name: str = "", *, now: bool = False, strict: bool = False, **options: Any
    ) -> SubmittedJob | None:
        """Submit a copy of this array that runs only the tasks that did not succeed; None if all did.

        ``now``: also of a job that has not finished. The other parameters are those of `resubmit`.
        """
        from openpaisdk.binding.job_copy import copy_of_job, failed_tasks_of

        cluster = self._on_cluster()
        tasks = failed_tasks_of(cluster.client, self.name, now=now, has_own_files="sources" in options)
        if not tasks:
            return None
        data, upload = copy_of_job(cluster.client, cluster.entry, self.name, name, tasks=tasks, **options)
        copy = SubmittedJob(data, cluster)
        copy.name = cluster.submit_config(data, upload, strict=strict)
        return copy

    def select_cluster(self, cluster_alias: str = "") -> Self:
        """Select the cluster that the other methods use; by default the one that commands use."""
        self.cluster = Cluster(cluster_alias)
        return self

    def _on_cluster(self) -> Cluster:
        if not self.name:
            raise PaiError("This job has no name, so it cannot be on a cluster.")
        if self.cluster is None:
            self.select_cluster()
        if self.cluster is None:
            raise PaiError("This job is not on a cluster.")
        return self.cluster


class AsyncCluster(AsyncWrapper):
    """``Cluster`` with awaitable methods."""

    sync: Cluster

    info = async_method(Cluster.info)
    check = async_method(Cluster.check)
    get_token = async_method(Cluster.get_token)
    virtual_clusters = async_method(Cluster.virtual_clusters)
    available_resources = async_method(Cluster.available_resources)
    runs = async_method(Cluster.runs)
    status = async_method(Cluster.status)
    submit = async_method(Cluster.submit)
    stop = async_method(Cluster.stop)
    delete = async_method(Cluster.delete)
    wait = async_method(Cluster.wait)
    pending_reason = async_method(Cluster.pending_reason)
    logs = async_method(Cluster.logs)
    follow = async_generator(Cluster.follow)

    @overload
    async def jobs(self, name: str) -> JobStatus: ...

    @overload
    async def jobs(
        self,
        *,
        user: str | None = None,
        state: str = "",
        keyword: str = "",
        virtual_cluster: str = "",
        tags: str = "",
    ) -> JobList: ...

    async def jobs(self, name: str = "", **filters: Any) -> JobList | JobStatus:
        """Your jobs, newest first; or, with a name, the status of one job."""
        query: Any = self.sync.jobs
        found: JobList | JobStatus = await asyncio.to_thread(query, name, **filters)
        return found
