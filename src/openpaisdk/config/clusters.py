"""Cluster registry: the entries of ``clusters.yaml``."""

from __future__ import annotations

import os

from openpaisdk.config.defaults import Defaults, defaults_file
from openpaisdk.config.paths import display_path, project_folder, user_folder
from openpaisdk.config.task_cluster import OWN_ALIAS, TASK, task_cluster_settings
from openpaisdk.config.yaml_files import FileLock, read_yaml, write_yaml
from paiprotocol.errors import ConfigError, PaiError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FILE = "clusters.yaml"
EMBEDDED_ALIAS = "local"
EMBEDDED = "embedded"
JOBS_STORAGE = "jobs"
"""In addresses this storage name means the files of jobs: ``pai://<cluster>/jobs/<job>/...``."""


class ClusterEntry:
    """One entry. ``raw`` is the whole mapping, so that unknown keys survive a rewrite."""

    __slots__ = ("alias", "raw")

    def __init__(self, raw: dict[str, object]):
        self.raw = raw
        self.alias = str(raw["cluster_alias"])

    @classmethod
    def embedded(cls) -> ClusterEntry:
        """The entry of the embedded cluster; its address and token are only in its handshake file."""
        return cls({"cluster_alias": EMBEDDED_ALIAS, "type": EMBEDDED})

    @property
    def is_embedded(self) -> bool:
        return self.raw.get("type") == EMBEDDED

    @property
    def is_storage(self) -> bool:
        return str(self.raw.get("type") or "").startswith("storage-")

    @property
    def is_paicluster(self) -> bool:
        """Whether the server is this package's, which supports the additions to jobs."""
        info = self.raw.get("info")
        return (
            self.is_embedded
            or self.raw.get("type") == TASK
            or (isinstance(info, dict) and "containers" in info)
        )

    @property
    def shares_machine(self) -> bool:
        """Whether jobs run beside the caller, with the caller's programs: on the embedded cluster, also
        when one of its own tasks submits them."""
        return self.is_embedded or self.raw.get("embedded") is True

    def text(self, key: str) -> str:
        value = self.raw.get(key)
        return "" if value is None else str(value)

    @property
    def shown_address(self) -> str:
        """The address without a password. That of the embedded cluster changes with every start."""
        if self.is_embedded:
            return "on this machine"
        scheme, separator, rest = self.text("pai_uri").partition("://")
        user, at, host = rest.rpartition("@")
        return f"{scheme}{separator}{'******@' if at else ''}{host}" if user or host else scheme

    def __repr__(self) -> str:
        return f"<cluster {self.alias} {self.shown_address}>"


class ClusterRegistry:
    """All entries of the active clusters file, and the selected one."""

    __slots__ = ("defaults", "entries", "path")

    def __init__(self, path: str, entries: list[ClusterEntry], defaults: Defaults):
        self.path = path
        self.entries = entries
        self.defaults = defaults

    @classmethod
    def load(cls) -> ClusterRegistry:
        defaults = Defaults.load()
        path = clusters_file(defaults)
        return cls(path, _entries(path), defaults)

    @staticmethod
    def file_path() -> str:
        """The path of the active clusters file, whether or not it exists."""
        return clusters_file(Defaults.load())

    @property
    def selected(self) -> str:
        return self.defaults.text("cluster-alias")

    @property
    def own(self) -> ClusterEntry | None:
        """The cluster of the task that this process runs in; None outside a task. It is in no file."""
        settings = task_cluster_settings(frozenset(entry.alias for entry in self.entries))
        return ClusterEntry(settings) if settings else None

    def selected_storage(self, alias: str) -> str:
        """The storage of `select-storage`, else the default `storage-alias`; empty if neither is set."""
        entry = self.find(alias)
        return (entry.text("storage_name") if entry else "") or self.defaults.text("storage-alias")

    def find(self, alias: str) -> ClusterEntry | None:
        return next((e for e in self.entries if e.alias == alias), None)

    def resolve(self, alias: str = "") -> ClusterEntry:
        """The cluster a command uses: by alias, the task's own one, the selected one, or the only one.

        With no cluster at all it is the embedded one.
        """
        own = self.own
        if own is not None and (not alias or (alias == own.alias and self.find(alias) is None)):
            return own
        name = alias or self.selected
        if name:
            entry = self.find(name)
            if entry:
                return entry
            if name == EMBEDDED_ALIAS:
                return ClusterEntry.embedded()
            raise self.unknown(name) if alias else self._selected_missing()
        usable = [e for e in self.entries if not e.is_storage]
        if not usable:
            return ClusterEntry.embedded()
        if len(usable) > 1:
            names, first = ", ".join(e.alias for e in usable), usable[0].alias
            raise UsageError(
                f"There are {len(usable)} clusters ({names}) and none is selected.",
                hint=f"Add -a {first} to the command, or select one: pai select-cluster -g {first}",
            )
        return usable[0]

    def _selected_missing(self) -> UsageError:
        path = self.defaults.defining_file("cluster-alias")
        option = "-g " if path == defaults_file(is_global=True) else ""
        return UsageError(
            f"There is no cluster called {self.selected!r}, but {display_path(path)} selects it.",
            hint=f"Select another one: pai select-cluster {option}{EMBEDDED_ALIAS}",
        )

    def unknown(self, alias: str) -> UsageError:
        if alias == OWN_ALIAS:
            return UsageError(
                f"{OWN_ALIAS!r} is the cluster of the task that a program runs in; this is not a task.",
                hint="Outside a task, name one of your clusters: pai list-clusters lists them.",
            )
        from difflib import get_close_matches

        near = get_close_matches(alias, [e.alias for e in self.entries], 1)
        return UsageError(
            f"There is no cluster called {alias!r}." + (f" Did you mean {near[0]}?" if near else ""),
            hint="pai list-clusters lists your clusters; pai add-cluster adds one",
        )

    def put(self, entry: ClusterEntry) -> None:
        """Add an entry, or replace the one with its alias."""

        def change(entries: list[ClusterEntry]) -> None:
            for i, old in enumerate(entries):
                if old.alias == entry.alias:
                    entries[i] = entry
                    return
            entries.append(entry)

        self._rewrite(change)

    def delete(self, alias: str) -> None:
        def change(entries: list[ClusterEntry]) -> None:
            if all(e.alias != alias for e in entries):
                raise self.unknown(alias)
            entries[:] = [e for e in entries if e.alias != alias]

        self._rewrite(change)

    def _rewrite(self, change: Callable[[list[ClusterEntry]], None]) -> None:
        with FileLock(self.path):
            entries = _entries(self.path)  # read again: another command may have written it meanwhile
            change(entries)
            write_yaml(self.path, [e.raw for e in entries])
            self.entries = entries


def require_jobs(entry: ClusterEntry) -> None:
    """Refuse a storage that is on no cluster where a cluster is needed."""
    if entry.is_storage:
        raise UsageError(
            f"{entry.alias} is a storage, and runs no jobs.",
            hint="Name a cluster with -a; pai list-clusters lists yours.",
        )


def alias_option(alias: str) -> str:
    """``-a ALIAS `` for a command to copy; empty if that cluster is the selected one."""
    try:
        selected = ClusterRegistry.load().resolve().alias
    except PaiError:  # none is selected, or the files cannot be read
        selected = ""
    return "" if selected == alias else f"-a {alias} "


def check_clusters(value: object, path: str) -> list[ClusterEntry]:
    """The validated entries of a clusters file: complete, with unique aliases."""
    entries = read_entries(value, path)
    seen: set[str] = set()
    for i, entry in enumerate(entries):
        where = f"{display_path(path)}: entry {i + 1} ({entry.alias})"
        if entry.alias in seen:
            raise ConfigError(f"{where} has the alias of another entry.")
        seen.add(entry.alias)
        if not entry.is_embedded and not entry.is_storage and not entry.text("pai_uri"):
            raise ConfigError(f"{where} has no pai_uri.")
    return entries


RESERVED_ALIASES = {
    EMBEDDED_ALIAS: "that name is reserved for the embedded cluster",
    OWN_ALIAS: "inside a task that name is the task's own cluster",
}


def check_alias(alias: str) -> str:
    """Check a new alias: it is used in URLs and before job names."""
    if not alias or any(c in alias for c in "/~ \t\n:") or alias in RESERVED_ALIASES:
        reason = RESERVED_ALIASES.get(alias, "choose a plain word")
        raise UsageError(f"A cluster cannot be called {alias!r}: {reason}.")
    return alias


def check_storage_name(name: str) -> str:
    """Check a new storage name."""
    if name == JOBS_STORAGE:
        raise UsageError(
            f"A storage cannot be called {name!r}: pai://<cluster>/{JOBS_STORAGE}/<job> are a job's files.",
            hint="Choose another name.",
        )
    return name


def reserved_names(entries: list[ClusterEntry]) -> list[str]:
    """Entries and storages whose names are reserved now, as texts for messages."""
    names = []
    for entry in entries:
        if entry.alias == OWN_ALIAS:
            names.append(f"the cluster {OWN_ALIAS}")
        storages = entry.raw.get("storages")
        for storage in storages if isinstance(storages, list) else []:
            name = storage.get("name") if isinstance(storage, dict) else storage
            if name == JOBS_STORAGE:
                names.append(f"the storage {JOBS_STORAGE} of {entry.alias}")
    return names


def clusters_file(defaults: Defaults) -> str:
    return os.path.join(project_folder() if defaults.is_enabled("clusters-in-local") else user_folder(), FILE)


def _entries(path: str) -> list[ClusterEntry]:
    return read_entries(read_yaml(path), path)


def read_entries(value: object, path: str) -> list[ClusterEntry]:
    """The entries in the parsed content of a clusters file."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigError(f"{display_path(path)} must contain a list of clusters.")
    entries = []
    for i, raw in enumerate(value):
        if not isinstance(raw, dict) or not raw.get("cluster_alias"):
            raise ConfigError(f"{display_path(path)}: entry {i + 1} has no cluster_alias.")
        entries.append(ClusterEntry({str(k): v for k, v in raw.items()}))
    return entries
