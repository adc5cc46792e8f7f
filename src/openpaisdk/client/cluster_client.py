"""A cluster as an object: each method is one question to its API, each answer a typed value."""

from __future__ import annotations

import json

from openpaisdk.client.address import quote
from openpaisdk.client.http_errors import NO_API, is_missing_job
from openpaisdk.client.models import Event, JobStatus, JobSummary, VirtualCluster, number
from openpaisdk.client.transport import Endpoint, Transport
from openpaisdk.errors import NO_JOB, ConnectionFailed, NotFound, PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from openpaisdk.client.http1 import Body, Response
    from openpaisdk.client.transport import Renew

PAGE_SIZE = 1000
"""How many jobs are asked for at a time when all are wanted."""


MAX_NAME_CANDIDATES = 200
"""Among how many of the newest jobs a name is looked for that somebody may have meant."""


class ClusterClient:
    """Ask a cluster, as one user. Not for several threads at once: each takes its own."""

    generation = 2
    """Of OpenPAI's API; ``client.older`` knows the first."""

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

    @property
    def user(self) -> str:
        return self.transport.endpoint.user

    @property
    def uri(self) -> str:
        return str(self.transport.endpoint.address)

    def info(self) -> dict[str, object]:
        """Name, version and how one logs in. Needs no token."""
        return mapping_of(self._get("/api/v2/info"), self)

    def login(self, user: str, password: str) -> str:
        """A token for a password."""
        body = json.dumps({"username": user, "password": password}).encode()
        answer = self._json("POST", "/api/v2/authn/basic/login", body=body)
        token = mapping_of(answer, self).get("token")
        if not isinstance(token, str) or not token:
            raise ConnectionFailed(f"{self.transport.where} gave no token.")
        return token

    def jobs(
        self,
        *,
        user: str = "",
        state: str = "",
        keyword: str = "",
        virtual_cluster: str = "",
        tags: str = "",
        limit: int | None = None,
        offset: int | None = None,
        order: str = "",
        reasons: bool = False,
    ) -> list[JobSummary]:
        """A page of jobs, newest first unless ``order`` says otherwise.

        With ``reasons`` jobs that wait say why, on clusters that tell it in the same answer.
        """
        found = self._get(
            "/api/v2/jobs",
            {
                "username": user,
                "state": state,
                "keyword": keyword,
                "vc": virtual_cluster,
                "tagsContain": tags,
                "limit": limit,
                "offset": offset,
                "order": order,
                "reasons": "true" if reasons else "",
            },
        )
        if isinstance(found, dict):  # with a total count
            found = found.get("data")
        if not isinstance(found, list):
            raise unexpected_response(self)
        return [JobSummary(mapping_of(raw, self)) for raw in found]

    def all_jobs(
        self,
        *,
        user: str = "",
        state: str = "",
        keyword: str = "",
        virtual_cluster: str = "",
        tags: str = "",
        offset: int = 0,
        reasons: bool = False,
    ) -> Iterator[JobSummary]:
        """Every job, newest first, asked for page by page as they are taken."""
        seen: set[str] = set()  # a job that comes in meanwhile moves all others by one place
        while True:
            page = self.jobs(
                user=user,
                state=state,
                keyword=keyword,
                virtual_cluster=virtual_cluster,
                tags=tags,
                limit=PAGE_SIZE,
                offset=offset,
                reasons=reasons,
            )
            for job in page:
                if job.whole_name not in seen:
                    seen.add(job.whole_name)
                    yield job
            if len(page) < PAGE_SIZE:
                return
            offset += len(page)

    def count_jobs(self, *, state: str = "", user: str = "", virtual_cluster: str = "") -> int:
        """How many jobs there are, without listing them."""
        values: dict[str, str | int | None] = {
            "state": state,
            "username": user,
            "vc": virtual_cluster,
            "limit": 0,
            "withTotalCount": "true",
        }
        return number(mapping_of(self._get("/api/v2/jobs", values), self), "totalCount") or 0

    def job(self, name: str, user: str = "") -> JobStatus:
        return JobStatus(mapping_of(self._get(self.job_path(name, user), missing=name), self))

    def job_config(self, name: str, user: str = "") -> str:
        """The job as it was submitted: JSON or YAML text, secrets masked."""
        path = self.job_path(name, user) + "/config"
        return self._answer("GET", path, missing=name).read().decode("utf-8", "replace")

    def events(self, name: str, user: str = "") -> list[Event]:
        found = self._get(self.job_path(name, user) + "/events", missing=name)
        data = found.get("data") if isinstance(found, dict) else found
        return [Event(raw) for raw in data if isinstance(raw, dict)] if isinstance(data, list) else []

    def submit(self, job: str, key: str) -> None:
        """Hand in a job (JSON is YAML). Under one key it is taken once, however often it is sent."""
        headers = {"Content-Type": "text/yaml", "Idempotency-Key": key}
        self._answer("POST", "/api/v2/jobs", body=job.encode(), headers=headers).read()

    def stop(self, name: str, user: str = "") -> None:
        self.execute(name, "STOP", user)

    def execute(self, name: str, value: str, user: str = "") -> None:
        """``STOP`` a job, or ``START`` it again where the cluster can."""
        path = self._execution_path(name, user)
        self._json("PUT", path, body=json.dumps({"value": value}).encode(), missing=name)

    def _execution_path(self, name: str, user: str) -> str:
        return self.job_path(name, user) + "/executionType"

    def delete(self, name: str, user: str = "") -> None:
        """Remove a job that is over, with its logs. Clusters of OpenPAI's last versions cannot."""
        for path in (self.job_path(name, user), self.v1_job_path(name, user)):
            try:
                # OpenPAI ends a job that runs; a cluster of ours that is asked so leaves it alone.
                self._answer("DELETE", f"{path}?over=only", missing=name).read()
            except NotFound as e:
                if e.code != NO_API:
                    raise
            else:
                return
        raise PaiError(f"The cluster {self.alias} keeps every job: it knows no way to delete one.")

    def tag(self, name: str, value: str, user: str = "") -> None:
        path = self.job_path(name, user) + "/tag"
        self._json("PUT", path, body=json.dumps({"value": value}).encode(), missing=name)

    def untag(self, name: str, value: str, user: str = "") -> None:
        path = self.job_path(name, user) + "/tag"
        self._json("DELETE", path, body=json.dumps({"value": value}).encode(), missing=name)

    def job_ssh(self, name: str, user: str = "") -> dict[str, object]:
        """Where the tasks of a job take ssh, and with which key."""
        try:
            found = self._get(self.job_path(name, user) + "/ssh", missing=name)
        except NotFound as e:
            if e.code != NO_API:
                raise
            found = self._get(self.v1_job_path(name, user) + "/ssh", missing=name)
        return mapping_of(found, self)

    def virtual_clusters(self) -> list[VirtualCluster]:
        found = mapping_of(self._get("/api/v2/virtual-clusters"), self)
        return [VirtualCluster(name, mapping_of(raw, self)) for name, raw in found.items()]

    def user_info(self, user: str = "") -> dict[str, object]:
        """What the cluster knows of a person: groups, virtual clusters, storages."""
        return mapping_of(self._get(f"/api/v2/users/{quote(user or self.user)}"), self)

    def storages(self) -> list[dict[str, object]]:
        """The storages this user may use, as the cluster lists them; none where it has no such list."""
        try:
            found = mapping_of(self._get("/api/v2/storages"), self).get("storages")
        except NotFound as e:
            if e.code != NO_API:
                raise
            return []
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def storage_records(self, kind: str, names: list[str]) -> list[dict[str, object]]:
        """``config`` or ``server`` records of storages, as clusters before 1.0 keep them."""
        asked = "&".join(f"names={quote(name)}" for name in names)
        found = self._get(f"/api/v2/storage/{kind}" + (f"?{asked}" if asked else ""))
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def has_sources(self, sha256: str) -> bool:
        """Whether the cluster already keeps a tar of that identity."""
        answer = self.transport.request("HEAD", f"/api/v2/sources/{sha256}", accept=(404,))
        answer.read()
        return answer.status == 200

    def patch_sources(self, sha256: str, base: str, body: Body) -> bool:
        """Have the cluster make a tar of one it has; false where it cannot, so that it must be sent whole."""
        headers = {"Content-Type": "application/vnd.openpai.sources-patch"}
        path = f"/api/v2/sources/{sha256}"
        answer = self.transport.request(
            "PUT",
            path,
            values={"base": base},
            body=body,
            headers=headers,
            timeout=600,
            accept=(400, 404, 409),
        )
        answer.read()
        return answer.status < 300

    def put_sources(self, sha256: str, body: Body | bytes) -> None:
        headers = {"Content-Type": "application/x-tar"}
        try:
            self._answer("PUT", f"/api/v2/sources/{sha256}", body=body, headers=headers, timeout=600).read()
        except NotFound as e:
            if e.code != NO_API:
                raise
            raise PaiError(
                f"The cluster {self.alias} keeps no sources, so files cannot travel there with a job.",
                hint="Put them into the image, or leave --sources out.",
            ) from None

    def no_job(self, name: str) -> NotFound:
        """The error for a job that is not there, with the name that was meant where one of yours is near."""
        from difflib import get_close_matches

        bare = name.rpartition("~")[2]
        try:
            known = {job.name for job in self.jobs(user=self.user, limit=MAX_NAME_CANDIDATES)} - {bare}
        except PaiError:
            known = set()
        near = get_close_matches(bare, known, 1, 0.75)
        where = "" if self.is_embedded else f" -a {self.alias}"
        return NotFound(
            f"There is no job {name!r} on the cluster {self.alias}."
            + (f" Did you mean {near[0]}?" if near else ""),
            code=NO_JOB,
            hint=f"pai list-jobs{where} shows yours.",
        )

    def whole_name(self, name: str, user: str = "") -> str:
        """``user~name``, which tells a job from everybody else's."""
        return name if "~" in name else f"{user or self.user}~{name}"

    def job_path(self, name: str, user: str = "") -> str:
        return f"/api/v2/jobs/{quote(self.whole_name(name, user))}"

    def v1_job_path(self, name: str, user: str = "") -> str:
        """The same in version 1 of the API."""
        owner, _, bare = self.whole_name(name, user).partition("~")
        return f"/api/v1/user/{quote(owner)}/jobs/{quote(bare)}"

    def __repr__(self) -> str:
        return f"<cluster {self.alias} at {self.uri}, as {self.user or 'nobody'}>"

    def close(self) -> None:
        self.transport.close()

    def _answer(
        self,
        method: str,
        path: str,
        *,
        values: Mapping[str, object] | None = None,
        body: bytes | Body | None = None,
        headers: Mapping[str, str] | None = None,
        missing: str = "",
        timeout: float | None = None,
    ) -> Response:
        try:
            return self.transport.request(
                method, path, values=values, body=body, headers=headers, timeout=timeout
            )
        except NotFound as e:
            if not missing or not is_missing_job(e):
                raise
            raise self.no_job(missing) from None

    def _json(self, method: str, path: str, *, body: bytes, missing: str = "") -> object:
        return parse_json(self._answer_json(method, path, body, missing).read(), self)

    def _answer_json(self, method: str, path: str, body: bytes, missing: str = "") -> Response:
        headers = {"Content-Type": "application/json"}
        return self._answer(method, path, body=body, headers=headers, missing=missing)

    def _get(self, path: str, values: Mapping[str, object] | None = None, missing: str = "") -> object:
        return parse_json(self._answer("GET", path, values=values, missing=missing).read(), self)


def parse_json(body: bytes, cluster: ClusterClient) -> object:
    try:
        return json.loads(body)
    except ValueError:
        raise unexpected_response(cluster) from None


def mapping_of(value: object, cluster: ClusterClient) -> dict[str, object]:
    if not isinstance(value, dict):
        raise unexpected_response(cluster)
    return value


def unexpected_response(cluster: ClusterClient) -> ConnectionFailed:
    return ConnectionFailed(
        f"Something answers at {cluster.uri}, but not as an OpenPAI cluster does.",
        hint="Check the address: pai list-clusters shows it.",
    )
