"""A cluster as an object: ask it, hand jobs in, follow them, reach its storage."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, overload

from openpaisdk.binding.async_wrappers import AsyncWrapper, async_generator, async_method
from openpaisdk.binding.job_list import JobList
from openpaisdk.client.follow import follow
from openpaisdk.client.follow_stream import NO_LOG, FollowRequest
from openpaisdk.client.models import CORES, GPUS, MEMORY, VirtualCluster, check_states
from openpaisdk.client.models import JobStatus as JobStatus
from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry
from openpaisdk.connect import open_embedded, open_entry
from openpaisdk.errors import UsageError

if TYPE_CHECKING:
    from openpaisdk.binding.job import Job
    from openpaisdk.client import ClusterClient as Wire
    from openpaisdk.storage import Storage


class Cluster:
    """One cluster, as one user.

    ``Cluster("team")`` is one of your clusters file, ``Cluster()`` the one that commands use, and
    ``Cluster("new", "http://pai.example.org", "alice", password="...")`` one that is in no file. May be used
    from several threads at once. ``cluster.aio`` has the same methods for ``await``.
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
            given = {"pai_uri": pai_uri, "user": user, "password": password, "token": token}
            raw.update({k: v for k, v in given.items() if v})
            if not verify:
                raw["verify_tls"] = False
            if ca_file:
                raw["ca_file"] = ca_file
            self.entry = ClusterEntry(raw)
        else:
            self.entry = ClusterRegistry.load().resolve(cluster_alias)
        self._threads = threading.local()
        self._meeting = threading.Lock()

    @classmethod
    def of(cls, entry: ClusterEntry) -> Cluster:
        """The cluster of an entry of the clusters file."""
        made = cls.__new__(cls)
        made.entry = entry
        made._threads = threading.local()
        made._meeting = threading.Lock()
        return made

    @property
    def client(self) -> Wire:
        """The connection of this thread; made, and the cluster met, at first use."""
        found: Wire | None = getattr(self._threads, "client", None)
        if found is None:
            found = self._threads.client = self._open()
        return found

    def _open(self) -> Wire:
        if self.entry.is_embedded:
            return open_embedded(self.entry.alias)
        with self._meeting:
            if "info" not in self.entry.raw:  # in no file yet: how it is reached is still to be learned
                from openpaisdk.client.discovery import connection_settings, probe_cluster

                text, verify = self.entry.text, self.entry.raw.get("verify_tls") is not False
                cluster, info = probe_cluster(
                    self.alias, text("pai_uri"), text("user"), verify, text("ca_file")
                )
                self.entry = ClusterEntry({**self.entry.raw, **connection_settings(cluster, info)})
        return open_entry(self.entry)

    # --- who it is ---

    @property
    def alias(self) -> str:
        return self.entry.alias

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

    def __repr__(self) -> str:
        where = self.entry.text("pai_uri") or ("on this machine" if self.entry.is_embedded else "?")
        return f"<Cluster {self.alias} {where}>"

    def info(self) -> dict[str, object]:
        """What the cluster says of itself: name, version, how one logs in."""
        return self.client.info()

    def check(self) -> Cluster:
        """Ask for everything a person needs there; raises where something is wrong."""
        self.client.virtual_clusters()
        return self

    def get_token(self, password: str = "") -> str:
        """A new token for a password; used from now on."""
        password = password or self.entry.text("password")
        if not password:
            raise UsageError(f"A token for {self.alias} needs a password.")
        return self.login(self.client.login(self.user, password)).entry.text("token")

    def login(self, token: str) -> Cluster:
        """Use this token from now on."""
        self.entry = ClusterEntry({**self.entry.raw, "token": token})
        self._threads = threading.local()
        return self

    # --- what it has ---

    def virtual_clusters(self) -> list[VirtualCluster]:
        return self.client.virtual_clusters()

    def available_resources(self) -> dict[str, dict[str, int]]:
        """What is free in each virtual cluster: ``{"default": {"GPUs": 1, "vCores": 8, "memory": 1024}}``.

        -1 where the cluster does not tell.
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
        """Your jobs, newest first (``user=""``: everybody's); or, with a name, the status of one."""
        if name:
            return self.status(name, user or "")
        if state:
            check_states(state)
        found = self.client.all_jobs(
            user=self.user if user is None else user,
            state=state.upper(),
            keyword=keyword,
            virtual_cluster=virtual_cluster,
            tags=tags,
        )
        return JobList(found)

    def status(self, name: str, user: str = "") -> JobStatus:
        """How a job is: ``.state``, ``.tasks``, and all that the cluster says in ``.raw``."""
        return self.client.job(name, user)

    def submit(self, job: Job | Mapping[str, Any] | str) -> Job:
        """Hand a job in: a ``Job``, a mapping, or the text or path of a job file. Gives the job back."""
        from openpaisdk.binding.job import Job

        handed = job if isinstance(job, Job) else Job.of(job)
        handed.submit(self)
        return handed

    def stop(self, name: str, user: str = "") -> None:
        """Tell a job to end."""
        self.client.stop(name, user)

    def delete(self, name: str, user: str = "") -> None:
        """Remove a job that is over, with its logs."""
        self.client.delete(name, user)

    def wait(self, name: str, user: str = "", timeout: float | None = None) -> str:
        """Wait until a job is over; the state it ended in. ``TimeoutError`` if that takes too long."""
        if timeout is None:
            state = ""
            for frame in follow(self.client, FollowRequest(name, user, stream=NO_LOG)):
                state = str(frame.head.get("state") or state) if frame.kind in ("state", "end") else state
            return state
        # A stream cannot be left at a given moment, so the job is asked for.
        deadline, pause = time.monotonic() + timeout, 0.05
        while not (job := self.status(name, user)).is_finished:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"The job {name} is {job.state} after {timeout:g} seconds.")
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, 1.0)
        return job.state

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
        """What a task of a job has printed until now."""
        wanted = FollowRequest(name, user, role=role, index=index, stream=stream, tail=tail, follow=False)
        data = b"".join(f.data for f in follow(self.client, wanted) if f.kind == "log")
        return data.decode("utf-8", "replace")

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
        """The lines a task prints, as it prints them, until the job is over."""
        wanted = FollowRequest(name, user, role=role, index=index, stream=stream, tail=tail)
        rest = b""
        # A connection of its own: other questions may be asked between two lines.
        for frame in follow(self._open(), wanted):
            if frame.kind != "log":
                continue
            *lines, rest = (rest + frame.data).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace") + "\n"
        if rest:
            yield rest.decode("utf-8", "replace")

    def get_job_link(self, name: str, user: str = "") -> str:
        """The page of a job on the cluster's web portal."""
        from openpaisdk.client.address import quote

        owner, _, bare = self.client.whole_name(name, user).partition("~")
        return f"{self.client.uri}/job-detail.html?username={quote(owner)}&jobName={quote(bare)}"

    # --- the REST API by the names it always had here ---

    def rest_api_cluster_info(self) -> dict[str, object]:
        return self.info()

    def rest_api_jobs(self, name: str = "") -> Any:
        return self.rest_api_job_info(name) if name else self.rest_api_job_list()

    def rest_api_job_list(self, user: str = "") -> list[dict[str, object]]:
        return [job.raw for job in self.client.all_jobs(user=user or self.user)]

    def rest_api_job_info(self, name: str, info: str | None = None, user: str = "") -> dict[str, object]:
        """The status of a job; with ``info`` its ``config``, or how to reach it by ``ssh``."""
        if info == "config":
            import yaml

            found = yaml.safe_load(self.client.job_config(name, user))
            return found if isinstance(found, dict) else {}
        if info == "ssh":
            return self.client.job_ssh(name, user)
        if info:
            raise UsageError(f"A job has no {info!r}: ask for config or ssh.")
        return self.client.job(name, user).raw

    def rest_api_token(self, expiration: int = 3600) -> str:
        return self.get_token()

    def rest_api_submit(self, job: Mapping[str, Any]) -> str:
        """Hand in a job (version 1 or 2) as it is; its name."""
        from openpaisdk.jobs.submission import submit_job

        return submit_job(self.client, dict(job))

    def rest_api_execute_job(self, name: str, e_type: str = "STOP", user: str = "") -> None:
        """``STOP`` a job, or ``START`` it again where the cluster can."""
        self.client.execute(name, e_type, user)

    def rest_api_virtual_clusters(self) -> dict[str, dict[str, object]]:
        return {vc.name: vc.raw for vc in self.client.virtual_clusters()}

    def rest_api_user(self, user: str = "") -> dict[str, object]:
        return self.client.user_info(user)

    def rest_api_storage_configs(self, names: list[str] | None = None) -> list[dict[str, object]]:
        return self.client.storage_records("config", names or [])

    def rest_api_storage_servers(self, names: list[str] | None = None) -> list[dict[str, object]]:
        return self.client.storage_records("server", names or [])


class AsyncCluster(AsyncWrapper):
    """A cluster for ``await``."""

    sync: Cluster

    info = async_method(Cluster.info)
    check = async_method(Cluster.check)
    get_token = async_method(Cluster.get_token)
    virtual_clusters = async_method(Cluster.virtual_clusters)
    available_resources = async_method(Cluster.available_resources)
    status = async_method(Cluster.status)
    submit = async_method(Cluster.submit)
    stop = async_method(Cluster.stop)
    delete = async_method(Cluster.delete)
    wait = async_method(Cluster.wait)
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
        """Your jobs, newest first; or, with a name, the status of one."""
        ask: Any = self.sync.jobs
        found: JobList | JobStatus = await asyncio.to_thread(ask, name, **filters)
        return found
