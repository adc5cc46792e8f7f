"""REST client of OpenPAI's first generation (before 1.0, on YARN), which has version 1 of the API.

That API has no filters, pages, events or tags. The client filters and pages itself, and raises an error for
what it cannot provide.
"""

from __future__ import annotations

import json

from openpaisdk.client.cluster_client import ClusterClient, mapping_of, unexpected_response
from openpaisdk.client.http_errors import NO_API
from openpaisdk.client.models import Event, JobSummary, VirtualCluster
from paiprotocol.errors import NotFound, PaiError
from pairuntime.transport.http1 import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Unpack

    from openpaisdk.client.models import JobFilter

TOKEN_LIFETIME_S = 604800


class V1ClusterClient(ClusterClient):
    """Client of one cluster, using version 1 of the API."""

    generation = 1

    def info(self) -> dict[str, object]:
        """Cluster information; empty up to version 0.14, which responds with a web page."""
        body = self._request("GET", "/api/v1").read()
        try:
            return mapping_of(json.loads(body), self)
        except ValueError:
            if b"PAI RESTful API" in body:
                return {}
            raise unexpected_response(self) from None

    def login(self, user: str, password: str) -> str:
        body = json.dumps({"username": user, "password": password, "expiration": TOKEN_LIFETIME_S}).encode()
        return self._request_token("/api/v1/token", body, user)

    def user_info(self, user: str = "") -> dict[str, object]:
        return mapping_of(self._get(f"/api/v1/user/{quote(user or self.user)}"), self)

    def jobs(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        order: str = "",
        reasons: bool = False,
        **filters: Unpack[JobFilter],
    ) -> list[JobSummary]:
        jobs = list(self.all_jobs(offset=offset or 0, **filters))
        if order.endswith("ASC"):
            jobs.reverse()
        return jobs if limit is None else jobs[:limit]

    def all_jobs(
        self, *, offset: int = 0, reasons: bool = False, **filters: Unpack[JobFilter]
    ) -> Iterator[JobSummary]:
        user, state = filters.get("user"), filters.get("state")
        keyword, virtual_cluster = filters.get("keyword"), filters.get("virtual_cluster")
        tags = frozenset(filters.get("tags", "").split(",")) - {""}
        raw = self._get(f"/api/v1/user/{quote(user)}/jobs" if user else "/api/v1/jobs")
        if not isinstance(raw, list):
            raise unexpected_response(self)
        jobs = [JobSummary(mapping_of(listed, self)) for listed in raw]
        jobs.sort(key=lambda job: -(job.submitted_ms or 0))
        states = frozenset(state.split(",")) if state else None
        selected = [
            job
            for job in jobs
            if (states is None or job.state in states)
            and (not keyword or keyword in job.name)
            and (not virtual_cluster or virtual_cluster == job.virtual_cluster)
            and (not tags or not tags.isdisjoint(job.tags))
        ]
        return iter(selected[offset:])

    def count_jobs(self, *, state: str = "", user: str = "", virtual_cluster: str = "") -> int:
        return len(self.jobs(state=state, user=user, virtual_cluster=virtual_cluster))

    def job_ssh(self, name: str, user: str = "") -> dict[str, object]:
        return mapping_of(
            self._get(self.v1_job_path(name, user) + "/ssh", job_name=self.short_name(name, user)), self
        )

    def events(self, name: str, user: str = "") -> list[Event]:
        raise self._unsupported("has no job events")

    def submit(self, job: str, key: str, *, strict: bool = False) -> str:
        try:
            return super().submit(job, key, strict=strict)
        except NotFound as e:
            if e.code != NO_API:
                raise
            raise self._unsupported(
                "accepts only version 1 jobs (JSON); submit those with pai submit"
            ) from None

    def _job_path(self, name: str, user: str) -> str:
        return self.v1_job_path(name, user)

    def tag(self, name: str, value: str, user: str = "") -> None:
        raise self._unsupported("has no tags")

    def untag(self, name: str, value: str, user: str = "") -> None:
        raise self._unsupported("has no tags")

    def virtual_clusters(self) -> list[VirtualCluster]:
        response = mapping_of(self._get("/api/v1/virtual-clusters"), self)
        return [VirtualCluster(name, mapping_of(raw, self)) for name, raw in response.items()]

    def storages(self) -> list[dict[str, object]]:
        return []

    def _unsupported(self, what: str) -> PaiError:
        return PaiError(f"The cluster {self.alias} runs OpenPAI's first generation, which {what}.")
