"""REST client of a cluster (API version 2): one method per request, typed results."""

from __future__ import annotations

import json

from openpaisdk.client.http_errors import NO_API, is_missing_job, login_rejected
from openpaisdk.client.models import Event, JobStatus, JobSummary, VirtualCluster, name_list, number
from openpaisdk.client.transport import Endpoint, Transport
from paiprotocol.errors import (
    NO_JOB,
    ConnectionFailed,
    Forbidden,
    InvalidParameters,
    NotFound,
    PaiError,
    Unauthorized,
)
from pairuntime.transport.http1 import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping
    from typing import Any, Unpack

    from openpaisdk.client.models import JobFilter
    from openpaisdk.client.session import Session
    from openpaisdk.client.task_choice import TaskChoice
    from openpaisdk.client.transport import Renew
    from pairuntime.transport.http1 import Body, Response

PAGE_SIZE = 1000
"""Jobs per request when all jobs are listed."""
MAX_NAME_CANDIDATES = 200
"""How many of the newest jobs are searched for a name similar to a misspelt one."""


class ClusterClient:
    """Client of one cluster for one user. Not thread-safe: each thread creates its own."""

    generation = 2
    """Generation of OpenPAI's API; ``v1_client`` implements the first."""

    def __init__(
        self,
        alias: str,
        endpoint: Endpoint,
        *,
        renew: Renew | None = None,
        is_embedded: bool = False,
    ):
        self.alias = alias
        self.transport = Transport(alias, endpoint, renew)
        self.is_embedded = is_embedded

    def with_own_connection(self) -> ClusterClient:
        """A client of the same cluster and user for another thread."""
        transport = self.transport
        return type(self)(self.alias, transport.endpoint, renew=transport.renew, is_embedded=self.is_embedded)

    @property
    def user(self) -> str:
        return self.transport.endpoint.user

    @property
    def uri(self) -> str:
        return str(self.transport.endpoint.address)

    def info(self) -> dict[str, object]:
        """Name, version and authentication method. Needs no token."""
        return mapping_of(self._get("/api/v2/info"), self)

    def login(self, user: str, password: str) -> str:
        """Exchange a password for a token."""
        body = json.dumps({"username": user, "password": password}).encode()
        return self._request_token("/api/v2/authn/basic/login", body, user)

    def _request_token(self, path: str, body: bytes, user: str) -> str:
        try:
            token = mapping_of(self._request_json("POST", path, body=body), self).get("token")
        except (InvalidParameters, NotFound, Unauthorized) as e:
            raise login_rejected(e, self.alias, user) from None
        if not isinstance(token, str) or not token:
            raise ConnectionFailed(f"{self.transport.where} returned no token.")
        return token

    def jobs(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        order: str = "",
        reasons: bool = False,
        **filters: Unpack[JobFilter],
    ) -> list[JobSummary]:
        """A page of jobs, newest first unless ``order`` says otherwise.

        With ``reasons``, pending jobs have a pending reason, on clusters that include it in this response.
        """
        response = self._get(
            "/api/v2/jobs",
            {
                "username": filters.get("user"),
                "state": filters.get("state"),
                "keyword": filters.get("keyword"),
                "vc": filters.get("virtual_cluster"),
                "tagsContain": filters.get("tags"),
                "limit": limit,
                "offset": offset,
                "order": order,
                "reasons": "true" if reasons else "",
            },
        )
        if isinstance(response, dict):  # with a total count
            response = response.get("data")
        if not isinstance(response, list):
            raise unexpected_response(self)
        return [JobSummary(mapping_of(raw, self)) for raw in response]

    def all_jobs(
        self, *, offset: int = 0, reasons: bool = False, **filters: Unpack[JobFilter]
    ) -> Iterator[JobSummary]:
        """All jobs, newest first; pages are requested as the iterator advances."""
        seen: set[str] = set()  # a job submitted meanwhile shifts all others by one position
        while True:
            page = self.jobs(limit=PAGE_SIZE, offset=offset, reasons=reasons, **filters)
            for job in page:
                if job.whole_name not in seen:
                    seen.add(job.whole_name)
                    yield job
            if len(page) < PAGE_SIZE:
                return
            offset += len(page)

    def count_jobs(self, *, state: str = "", user: str = "", virtual_cluster: str = "") -> int:
        """Number of jobs, without listing them."""
        values: dict[str, str | int | None] = {
            "state": state,
            "username": user,
            "vc": virtual_cluster,
            "limit": 0,
            "withTotalCount": "true",
        }
        return number(mapping_of(self._get("/api/v2/jobs", values), self), "totalCount") or 0

    def job(self, name: str, user: str = "") -> JobStatus:
        return JobStatus(
            mapping_of(self._get(self._job_path(name, user), job_name=self.short_name(name, user)), self)
        )

    def job_config(self, name: str, user: str = "") -> str:
        """The job as submitted: JSON or YAML text, secrets masked."""
        path = self._job_path(name, user) + "/config"
        return (
            self._request("GET", path, job_name=self.short_name(name, user)).read().decode("utf-8", "replace")
        )

    def events(self, name: str, user: str = "") -> list[Event]:
        response = self._get(self.job_path(name, user) + "/events", job_name=self.short_name(name, user))
        data = response.get("data") if isinstance(response, dict) else response
        return [Event(raw) for raw in data if isinstance(raw, dict)] if isinstance(data, list) else []

    def pending_reason(self, name: str, user: str = "") -> str:
        """Why a job waits for its start; empty if the cluster has not said so."""
        try:
            events = self.events(name, user)
        except PaiError:  # API version 1 has no events
            return ""
        return next((event.message for event in events if event.is_pending), "")

    def submit(self, job: str, key: str, *, strict: bool = False) -> str:
        """Submit a job (JSON is YAML); returns the cluster's warning about it, if any.

        ``key`` is the idempotency key: the job is accepted once per key. ``strict``: the cluster refuses a
        job that can never start; OpenPAI's own server does not know that.
        """
        headers = {"Content-Type": "text/yaml", "Idempotency-Key": key}
        path = "/api/v2/jobs?strict=true" if strict else "/api/v2/jobs"
        response = self._request("POST", path, body=job.encode(), headers=headers)
        response.read()
        return response.headers.get("x-warning", "")

    def stop(self, name: str, user: str = "") -> None:
        self.execute(name, "STOP", user)

    def execute(self, name: str, value: str, user: str = "") -> None:
        """``STOP`` a job, or ``START`` it again if the cluster supports that."""
        path = self._job_path(name, user) + "/executionType"
        self._request_json(
            "PUT", path, body=json.dumps({"value": value}).encode(), job_name=self.short_name(name, user)
        )

    def delete(self, name: str, user: str = "") -> None:
        """Delete a finished job with its logs. The last versions of OpenPAI do not support this."""
        for path in (self.job_path(name, user), self.v1_job_path(name, user)):
            try:
                # OpenPAI also stops a running job; with this parameter our own server refuses instead.
                self._request("DELETE", f"{path}?finished=only", job_name=self.short_name(name, user)).read()
            except NotFound as e:
                if e.code != NO_API:
                    raise
            else:
                return
        raise PaiError(f"The cluster {self.alias} does not support deleting jobs.")

    def tag(self, name: str, value: str, user: str = "") -> None:
        path = self.job_path(name, user) + "/tag"
        self._request_json(
            "PUT", path, body=json.dumps({"value": value}).encode(), job_name=self.short_name(name, user)
        )

    def untag(self, name: str, value: str, user: str = "") -> None:
        path = self.job_path(name, user) + "/tag"
        self._request_json(
            "DELETE", path, body=json.dumps({"value": value}).encode(), job_name=self.short_name(name, user)
        )

    def job_ssh(self, name: str, user: str = "") -> dict[str, object]:
        """SSH addresses and key of a job's tasks."""
        try:
            response = self._get(self.job_path(name, user) + "/ssh", job_name=self.short_name(name, user))
        except NotFound as e:
            if e.code != NO_API:
                raise
            response = self._get(self.v1_job_path(name, user) + "/ssh", job_name=self.short_name(name, user))
        return mapping_of(response, self)

    def open_session(
        self, name: str, user: str = "", *, role: str = "", index: int | None = None, terminal: bool = False
    ) -> Session:
        """Open a session in a running task of a job, by default its first one. `Session.start` starts it."""
        from pairuntime.transport.session_messages import PROTOCOL

        values = {"role": role, "index": index, "terminal": "true" if terminal else ""}
        try:
            opened = self.transport.upgrade(self.job_path(name, user) + "/exec", values, PROTOCOL)
        except NotFound as e:
            if e.code == NO_API:
                raise PaiError(f"The cluster {self.alias} cannot run commands in running jobs.") from None
            raise (self.no_job(self.short_name(name, user)) if is_missing_job(e) else e) from None
        # Imported now, while the cluster starts the host of the session.
        from openpaisdk.client.session import Session

        return Session(*opened)

    def job_attempt(self, name: str, user: str, attempt: int) -> JobStatus:
        """The job in one of its attempts, numbered from 0."""
        path = f"{self.job_path(name, user)}/attempts/{attempt}"
        return JobStatus(mapping_of(self._get(path, job_name=self.short_name(name, user)), self))

    def check_job(self, job: Mapping[str, object]) -> list[Mapping[str, object]]:
        """What our own server finds wrong with a job, without submitting it; empty on other servers."""
        try:
            response = self._request_json("POST", "/api/v2/job-checks", body=json.dumps(job).encode())
        except NotFound:
            return []
        problems = mapping_of(response, self).get("problems")
        return (
            [problem for problem in problems if isinstance(problem, dict)]
            if isinstance(problems, list)
            else []
        )

    def forwarded_task(self, task: TaskChoice) -> tuple[str, int]:
        """Role and index of a running task whose ports can be forwarded; raises if they cannot."""
        values = {"role": task.role, "index": task.index}
        path = self.job_path(task.job, task.user) + "/forward"
        try:
            response = mapping_of(
                self._get(path, values, job_name=self.short_name(task.job, task.user)), self
            )
        except NotFound as e:
            if e.code == NO_API:
                raise PaiError(f"The cluster {self.alias} cannot forward ports of jobs.") from None
            raise
        return str(response.get("role")), number(response, "index") or 0

    def open_port(self, task: TaskChoice, port: int) -> tuple[socket.socket, bytes]:
        """Open a connection with a port of a running task: a WebSocket of ``pai.forward.v1``, and its first
        bytes if they have come."""
        from pairuntime.transport.relay import PROTOCOL

        values = {"role": task.role, "index": task.index, "port": port}
        try:
            return self.transport.upgrade(self.job_path(task.job, task.user) + "/forward", values, PROTOCOL)
        except NotFound as e:
            raise (self.no_job(self.short_name(task.job, task.user)) if is_missing_job(e) else e) from None

    def virtual_clusters(self) -> list[VirtualCluster]:
        response = mapping_of(self._get("/api/v2/virtual-clusters"), self)
        return [VirtualCluster(name, mapping_of(raw, self)) for name, raw in response.items()]

    def usable_virtual_clusters(self) -> list[VirtualCluster]:
        """The virtual clusters that this user may use; all of them where the cluster does not tell which."""
        clusters = self.virtual_clusters()
        if self.is_embedded or not self.user:
            return clusters
        try:
            info = self.user_info()
        except (
            Forbidden,
            NotFound,
            InvalidParameters,
        ):  # an application's token, or a user of another system
            return clusters
        own = name_list(info, "virtualCluster")
        return [vc for vc in clusters if vc.name in own] if "virtualCluster" in info else clusters

    def quotas(self) -> list[dict[str, object]]:
        """Quotas of this user and of the user's groups, as the cluster reports them."""
        try:
            listed = mapping_of(self._get("/api/v2/quota"), self).get("quotas")
        except NotFound as e:
            if e.code != NO_API:
                raise
            raise NotFound(
                f"The cluster {self.alias} does not report quotas.",
                hint="pai cluster-resources shows the resources of its virtual clusters.",
            ) from None
        return [quota for quota in listed if isinstance(quota, dict)] if isinstance(listed, list) else []

    def user_info(self, user: str = "") -> dict[str, object]:
        """Profile of a user: groups, virtual clusters, storages."""
        return mapping_of(self._get(f"/api/v2/users/{quote(user or self.user)}"), self)

    def usage(self, user: str = "") -> dict[str, Any]:
        """What nodes, virtual clusters and running jobs use now; with ``user``, only jobs of this user."""
        return self._usage("/api/v2/usage" + (f"?user={quote(user)}" if user else ""))

    def job_usage(self, name: str, user: str = "") -> dict[str, Any]:
        """What the running tasks of a job use now, and what the job used over time."""
        return self._usage(f"{self.job_path(name, user)}/usage")

    def _usage(self, path: str) -> dict[str, Any]:
        try:
            return mapping_of(self._get(path), self)
        except NotFound as e:
            if e.code != NO_API:
                raise
            raise PaiError(
                f"The cluster {self.alias} does not tell what its tasks use.",
                hint="Clusters of this product do; for OpenPAI's see the metrics in its portal.",
            ) from None

    def storages(self) -> list[dict[str, object]]:
        """Storages this user may use, as the cluster lists them; empty if the cluster has no such API."""
        try:
            listed = mapping_of(self._get("/api/v2/storages"), self).get("storages")
        except NotFound as e:
            if e.code != NO_API:
                raise
            return []
        return (
            [storage for storage in listed if isinstance(storage, dict)] if isinstance(listed, list) else []
        )

    def storage_records(self, kind: str, names: list[str]) -> list[dict[str, object]]:
        """``config`` or ``server`` records of storages, the API of clusters before 1.0."""
        query = "&".join(f"names={quote(name)}" for name in names)
        listed = self._get(f"/api/v2/storage/{kind}" + (f"?{query}" if query else ""))
        return [record for record in listed if isinstance(record, dict)] if isinstance(listed, list) else []

    def has_sources(self, sha256: str) -> bool:
        """Whether the cluster already has the source archive with this hash."""
        response = self.transport.request("HEAD", f"/api/v2/sources/{sha256}", accept=(404,))
        response.read()
        return response.status == 200

    def max_sources_bytes(self) -> int | None:
        """The largest source archive that the cluster takes; None if it does not say."""
        limit = self.info().get("maxSourcesBytes")
        return limit if isinstance(limit, int) else None

    def patch_sources(self, sha256: str, base: str, body: Body) -> bool:
        """Let the cluster build an archive from one it has; False if it needs the whole archive."""
        headers = {"Content-Type": "application/vnd.openpai.sources-patch"}
        path = f"/api/v2/sources/{sha256}"
        response = self.transport.request(
            "PUT",
            path,
            values={"base": base},
            body=body,
            headers=headers,
            timeout=600,
            accept=(400, 404, 409),
            whole=True,
        )
        response.read()
        return response.status < 300

    def put_sources(self, sha256: str, body: Body | bytes) -> None:
        headers = {"Content-Type": "application/x-tar"}
        try:
            self._request("PUT", f"/api/v2/sources/{sha256}", body=body, headers=headers, timeout=600).read()
        except NotFound as e:
            if e.code != NO_API:
                raise
            raise PaiError(
                f"The cluster {self.alias} has no source store, so files cannot be uploaded with a job.",
                hint="Put them into the image, or omit --sources.",
            ) from None

    def no_job(self, name: str) -> NotFound:
        """The error for a job that does not exist; suggests a similarly named job of its user."""
        from difflib import get_close_matches

        owner, _, bare = self.whole_name(name).rpartition("~")
        try:
            known = {job.name for job in self.jobs(user=owner, limit=MAX_NAME_CANDIDATES)} - {bare}
        except PaiError:
            known = set()
        near = get_close_matches(bare, known, 1, 0.75)
        where = "" if self.is_embedded else f" -a {self.alias}"
        listed = "lists your jobs" if owner == self.user else f"--user {owner} lists the jobs of {owner}"
        return NotFound(
            f"There is no job {name!r} on the cluster {self.alias}."
            + (f" Did you mean {near[0]}?" if near else ""),
            code=NO_JOB,
            hint=f"pai list-jobs{where} {listed}.",
        )

    def whole_name(self, name: str, user: str = "") -> str:
        """``user~name``, the name of a job that is unique in the cluster."""
        return name if "~" in name else f"{user or self.user}~{name}"

    def short_name(self, name: str, user: str = "") -> str:
        """The name by which this user calls a job: ``user~name`` only for another user's."""
        return f"{user}~{name}" if user not in ("", self.user) and "~" not in name else name

    def job_path(self, name: str, user: str = "") -> str:
        return f"/api/v2/jobs/{quote(self.whole_name(name, user))}"

    def _job_path(self, name: str, user: str) -> str:
        """The job's path in the version of the API that this client uses."""
        return self.job_path(name, user)

    def job_page(self, name: str, user: str = "") -> str:
        """The address of a job's web page."""
        owner, _, bare = self.whole_name(name, user).partition("~")
        return f"{self.uri}/job-detail.html?username={quote(owner)}&jobName={quote(bare)}"

    def portal_link(self, page: str = "") -> str:
        """A link to a page of the web portal that signs its browser in, once.

        On clusters that issue none, the address of their portal.
        """
        try:
            link = mapping_of(self._request_json("POST", "/api/v2/authn/links", body=b""), self).get("url")
        except NotFound:
            owner, _, name = page.removeprefix("/jobs/").partition("~")
            return self.job_page(name, owner) if name else f"{self.uri}/"
        if not isinstance(link, str):
            raise unexpected_response(self)
        return f"{link}&to={quote(page)}" if page else link

    def v1_job_path(self, name: str, user: str = "") -> str:
        """The job's path in version 1 of the API."""
        owner, _, bare = self.whole_name(name, user).partition("~")
        return f"/api/v1/user/{quote(owner)}/jobs/{quote(bare)}"

    def __repr__(self) -> str:
        return f"<cluster {self.alias} at {self.uri}, as {self.user or 'anonymous'}>"

    def close(self) -> None:
        self.transport.close()

    def _request(
        self,
        method: str,
        path: str,
        *,
        values: Mapping[str, object] | None = None,
        body: bytes | Body | None = None,
        headers: Mapping[str, str] | None = None,
        job_name: str = "",
        timeout: float | None = None,
    ) -> Response:
        """Send a request, and receive the response.

        ``job_name``: the job it is about, for the error if that job does not exist.
        """
        try:
            return self.transport.request(
                method, path, values=values, body=body, headers=headers, timeout=timeout, whole=True
            )
        except NotFound as e:
            if not job_name or not is_missing_job(e):
                raise
            raise self.no_job(job_name) from None

    def _request_json(self, method: str, path: str, *, body: bytes, job_name: str = "") -> object:
        return parse_json(
            self._request(
                method, path, body=body, headers={"Content-Type": "application/json"}, job_name=job_name
            ).read(),
            self,
        )

    def _get(self, path: str, values: Mapping[str, object] | None = None, job_name: str = "") -> object:
        return parse_json(self._request("GET", path, values=values, job_name=job_name).read(), self)


def parse_json(body: bytes, cluster: ClusterClient) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise unexpected_response(cluster) from None


def mapping_of(value: object, cluster: ClusterClient) -> dict[str, object]:
    if not isinstance(value, dict):
        raise unexpected_response(cluster)
    return value


def unexpected_response(cluster: ClusterClient) -> ConnectionFailed:
    return ConnectionFailed(
        f"The server at {cluster.uri} does not respond like an OpenPAI cluster.",
        hint="Check the address with pai list-clusters.",
    )
