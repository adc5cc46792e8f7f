"""List of clusters that can be changed and saved."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from openpaisdk.binding.cluster import Cluster
from openpaisdk.client.fanout import ClusterCall, call_all
from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry, check_alias, check_clusters
from openpaisdk.config.defaults import Defaults
from openpaisdk.config.yaml_files import FileLock, read_yaml, write_yaml
from openpaisdk.jobs.submission import MASK
from paiprotocol.errors import UsageError

SECRETS = ("token", "password")
_COLUMNS = ["ALIAS", "ADDRESS", "USER"]


class ClusterSettings(dict[str, Any]):
    """Settings of one cluster. ``repr`` masks token and password; the items have their values."""

    def __repr__(self) -> str:
        return repr({key: MASK if key in SECRETS and value else value for key, value in self.items()})


class ClusterList:
    """``ClusterList().load()`` has the clusters of ``~/.openpai/clusters.yaml``; ``.save()`` writes them.

    ``ClusterList().load().add(cfg).save()``, where ``cfg`` has ``cluster_alias``, ``pai_uri``, ``user``, and
    ``password`` or ``token``.
    """

    def __init__(self, clusters: Iterable[Mapping[str, Any]] | Mapping[str, Any] | None = None):
        entries = [clusters] if isinstance(clusters, Mapping) else clusters or []
        self.clusters: list[dict[str, Any]] = [ClusterSettings(raw) for raw in entries]

    def load(self, fname: str = "") -> Self:
        """Read a clusters file; by default the one that commands use."""
        path = fname or ClusterRegistry.file_path()
        self.clusters = [ClusterSettings(entry.raw) for entry in check_clusters(read_yaml(path), path)]
        return self

    def save(self, fname: str = "") -> Self:
        """Write the clusters file atomically, readable only by its owner."""
        path = fname or ClusterRegistry.file_path()
        with FileLock(path):
            write_yaml(path, [dict(raw) for raw in self.clusters])
        return self

    def add(self, cluster: Mapping[str, Any], *, check: bool = True) -> Self:
        """Add a cluster, or replace the one with its alias. Connects to it, unless ``check`` is false.

        A password is exchanged for a token and not stored.
        """
        raw = dict(cluster)
        alias = check_alias(str(raw.get("cluster_alias") or ""))
        if check and not str(raw.get("type") or "").startswith("storage-"):
            raw = _registered(alias, raw)
        self.clusters = [c for c in self.clusters if c["cluster_alias"] != alias] + [ClusterSettings(raw)]
        return self

    def update(self, cluster: Mapping[str, Any]) -> Self:
        """Change some keys of an existing cluster."""
        settings = self._find(str(cluster.get("cluster_alias") or ""))
        settings.update(cluster)
        return self

    def update_all(self) -> Self:
        """Refresh all clusters in parallel; a cluster that does not respond causes a warning."""
        from openpaisdk.client.discovery import refresh

        for alias, changes in self._call_all(lambda cluster: refresh(cluster.client)).items():
            self._find(alias).update(changes)
        return self

    def delete(self, cluster_alias: str) -> Self:
        """Remove a cluster from the list."""
        self.clusters.remove(self._find(cluster_alias))
        return self

    def select(self, cluster_alias: str = "") -> dict[str, Any]:
        """The settings of a cluster; by default of the one that commands use."""
        return ClusterSettings(self._entry(cluster_alias).raw)

    def select_storage(self, cluster_alias: str, storage_name: str, workspace: str = "") -> Self:
        """Set the storage and the folder for the files of your jobs."""
        from openpaisdk.jobs.command_job import absolute_workspace

        settings = self._find(cluster_alias)
        folder = absolute_workspace(workspace, str(settings.get("user") or ""))
        settings.update(storage_name=storage_name, workspace=folder)
        return self

    def get_client(self, cluster_alias: str = "") -> Cluster:
        """A client for a cluster; by default for the one that commands use."""
        return Cluster.of(self._entry(cluster_alias))

    def available_resources(self) -> dict[str, dict[str, dict[str, int]]]:
        """Free resources by cluster and virtual cluster. A cluster that does not respond causes a warning."""
        return self._call_all(lambda cluster: cluster.available_resources())

    @property
    def aliases(self) -> list[str]:
        return [str(raw["cluster_alias"]) for raw in self.clusters]

    def tell(self) -> dict[str, dict[str, Any]]:
        """All settings by alias, without secrets."""
        return {
            str(raw["cluster_alias"]): {k: v for k, v in raw.items() if k not in SECRETS}
            for raw in self.clusters
        }

    def __iter__(self) -> Iterator[Cluster]:
        return iter([Cluster.of(ClusterEntry(raw)) for raw in self._usable()])

    def __len__(self) -> int:
        return len(self.clusters)

    def __contains__(self, alias: object) -> bool:
        return alias in self.aliases

    def __getitem__(self, alias: str) -> Cluster:
        return self.get_client(alias)

    def __repr__(self) -> str:
        if not self.clusters:
            return "<no clusters>"
        from openpaisdk.output import table

        return table(_COLUMNS, self._rows())

    def _repr_html_(self) -> str:
        if not self.clusters:
            return "<p>no clusters</p>"
        from openpaisdk.output.html import html_table

        return html_table(_COLUMNS, self._rows())

    def _rows(self) -> list[list[str]]:
        entries = [ClusterEntry(raw) for raw in self.clusters]
        return [[entry.alias, entry.shown_address or "-", entry.text("user") or "-"] for entry in entries]

    def _usable(self) -> list[dict[str, Any]]:
        return [raw for raw in self.clusters if not ClusterEntry(raw).is_storage]

    def _entry(self, alias: str) -> ClusterEntry:
        return self._registry().resolve(alias)

    def _registry(self) -> ClusterRegistry:
        return ClusterRegistry("", [ClusterEntry(raw) for raw in self.clusters], Defaults.load())

    def _find(self, alias: str) -> dict[str, Any]:
        settings = next((raw for raw in self.clusters if raw["cluster_alias"] == alias), None)
        if settings is None:
            raise self._registry().unknown(alias)
        return settings

    def _call_all(self, query: Any) -> dict[str, Any]:
        calls = [
            ClusterCall(cluster.alias, lambda cluster=cluster: query(cluster))  # type: ignore[misc]
            for cluster in self
        ]
        call_all(calls)
        for call in calls:
            if call.error is not None:
                warnings.warn(call.error.message, stacklevel=3)
        return {call.alias: call.result for call in calls if call.error is None}


def _registered(alias: str, raw: dict[str, Any]) -> dict[str, Any]:
    from openpaisdk.client.discovery import Credentials, register_cluster

    if not raw.get("pai_uri"):
        raise UsageError(f"The cluster {alias} has no pai_uri.")
    credentials = Credentials(
        str(raw.get("user") or ""), password=str(raw.get("password") or ""), token=str(raw.get("token") or "")
    )
    detected = register_cluster(
        alias,
        str(raw["pai_uri"]),
        credentials,
        verify=raw.get("verify_tls") is not False,
        ca_file=str(raw.get("ca_file") or ""),
    )
    return {**{k: v for k, v in raw.items() if k not in SECRETS}, **detected}
