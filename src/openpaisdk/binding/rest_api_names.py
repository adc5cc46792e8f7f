"""Names of OpenPAI's SDK for single REST requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from openpaisdk.jobs.option_values import items_of
from paiprotocol.errors import UsageError

if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient
    from openpaisdk.jobs.option_values import Items


class RestApiNames(ABC):
    """The part of ``Cluster`` with these names."""

    @property
    @abstractmethod
    def client(self) -> ClusterClient: ...

    @property
    @abstractmethod
    def user(self) -> str: ...

    @abstractmethod
    def info(self) -> dict[str, object]: ...

    @abstractmethod
    def get_token(self, password: str = "") -> str: ...

    def rest_api_cluster_info(self) -> dict[str, object]:
        return self.info()

    def rest_api_jobs(self, name: str = "") -> Any:
        return self.rest_api_job_info(name) if name else self.rest_api_job_list()

    def rest_api_job_list(self, user: str = "") -> list[dict[str, object]]:
        return [job.raw for job in self.client.all_jobs(user=user or self.user)]

    def rest_api_job_info(self, name: str, info: str | None = None, user: str = "") -> dict[str, object]:
        """The status of a job; with ``info`` its ``config``, or its ``ssh`` access."""
        if info == "config":
            import yaml

            config = yaml.safe_load(self.client.job_config(name, user))
            return config if isinstance(config, dict) else {}
        if info == "ssh":
            return self.client.job_ssh(name, user)
        if info:
            raise UsageError(f"A job has no {info!r}: use config or ssh.")
        return self.client.job(name, user).raw

    def rest_api_token(self, expiration: int = 3600) -> str:
        return self.get_token()

    def rest_api_submit(self, job: Mapping[str, Any]) -> str:
        """Submit a job (version 1 or 2) unchanged; returns its name."""
        from openpaisdk.jobs.submission import submit_job

        return submit_job(self.client, dict(job))

    def rest_api_execute_job(self, name: str, e_type: str = "STOP", user: str = "") -> None:
        """``STOP`` a job, or ``START`` it again where the cluster supports it."""
        self.client.execute(name, e_type, user)

    def rest_api_virtual_clusters(self) -> dict[str, dict[str, object]]:
        return {vc.name: vc.raw for vc in self.client.virtual_clusters()}

    def rest_api_user(self, user: str = "") -> dict[str, object]:
        return self.client.user_info(user)

    def rest_api_storage_configs(self, names: Items | None = None) -> list[dict[str, object]]:
        return self.client.storage_records("config", items_of(names, "names"))

    def rest_api_storage_servers(self, names: Items | None = None) -> list[dict[str, object]]:
        return self.client.storage_records("server", items_of(names, "names"))
