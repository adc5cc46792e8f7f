"""The clusters a person knows: ``clusters.yaml``, a list of entries."""

from __future__ import annotations

import os

from openpaisdk.config.defaults import Defaults, defaults_file
from openpaisdk.config.paths import display_path, project_folder, user_folder
from openpaisdk.config.yaml_files import Lock, read_yaml, write_yaml
from openpaisdk.errors import ConfigError, PaiError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FILE = "clusters.yaml"
EMBEDDED_ALIAS = "local"
EMBEDDED = "embedded"


class ClusterEntry:
    """One entry. ``raw`` is the whole mapping, so that keys we do not know survive a rewrite."""

    __slots__ = ("alias", "raw")

    def __init__(self, raw: dict[str, object]):
        self.raw = raw
        self.alias = str(raw["cluster_alias"])

    @classmethod
    def embedded(cls) -> ClusterEntry:
        """The cluster inside: where it listens and its token are in its handshake file, never here."""
        return cls({"cluster_alias": EMBEDDED_ALIAS, "type": EMBEDDED})

    @property
    def is_embedded(self) -> bool:
        return self.raw.get("type") == EMBEDDED

    @property
    def is_storage(self) -> bool:
        return str(self.raw.get("type") or "").startswith("storage-")

    @property
    def is_ours(self) -> bool:
        """Whether the cluster is one of this package, which knows our additions to jobs."""
        info = self.raw.get("info")
        return self.is_embedded or (isinstance(info, dict) and "containers" in info)

    def text(self, key: str) -> str:
        value = self.raw.get(key)
        return "" if value is None else str(value)


class ClusterRegistry:
    """All entries of the clusters file in force, and which one is selected."""

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
    def load_path() -> str:
        """Where the clusters file in force lies, whether or not it can be read."""
        return clusters_file(Defaults.load())

    @property
    def selected(self) -> str:
        return self.defaults.text("cluster-alias")

    def find(self, alias: str) -> ClusterEntry | None:
        return next((e for e in self.entries if e.alias == alias), None)

    def resolve(self, alias: str = "") -> ClusterEntry:
        """The cluster a command means: the one named, the one selected, or the only one there is."""
        wanted = alias or self.selected
        if wanted:
            entry = self.find(wanted)
            if entry:
                return entry
            if wanted == EMBEDDED_ALIAS:
                return ClusterEntry.embedded()
            raise self.unknown(wanted) if alias else self._selected_is_gone()
        usable = [e for e in self.entries if not e.is_storage]
        if not usable:
            return ClusterEntry.embedded()
        if len(usable) > 1:
            names, first = ", ".join(e.alias for e in usable), usable[0].alias
            raise UsageError(
                f"There are {len(usable)} clusters ({names}) and none is selected.",
                hint=f"Add -a {first} to the command, or choose one for good: pai select-cluster -g {first}",
            )
        return usable[0]

    def _selected_is_gone(self) -> UsageError:
        path = self.defaults.set_in("cluster-alias")
        everywhere = "-g " if path == defaults_file(is_global=True) else ""
        return UsageError(
            f"There is no cluster called {self.selected!r}, but {display_path(path)} selects it.",
            hint=f"Choose another one: pai select-cluster {everywhere}{EMBEDDED_ALIAS}",
        )

    def unknown(self, alias: str) -> UsageError:
        from difflib import get_close_matches

        near = get_close_matches(alias, [e.alias for e in self.entries], 1)
        return UsageError(
            f"There is no cluster called {alias!r}." + (f" Did you mean {near[0]}?" if near else ""),
            hint="pai list-clusters shows those you have; pai add-cluster adds one",
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
        with Lock(self.path):
            entries = _entries(self.path)  # anew: another command may have written since
            change(entries)
            write_yaml(self.path, [e.raw for e in entries])
            self.entries = entries


def option_for(alias: str) -> str:
    """``-a ALIAS `` for a command a person may copy; empty where that cluster is meant anyway."""
    try:
        meant = ClusterRegistry.load().resolve().alias
    except PaiError:  # none is selected, or the files cannot be read
        meant = ""
    return "" if meant == alias else f"-a {alias} "


def check_clusters(value: object, path: str) -> list[ClusterEntry]:
    """The entries of a clusters file that a person wrote: whole, and no alias twice."""
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


def check_alias(alias: str) -> str:
    """An alias as it may be given to a cluster: it stands in addresses and before job names."""
    if not alias or any(c in alias for c in "/~ \t\n:") or alias == EMBEDDED_ALIAS:
        why = (
            "that name is kept for the cluster on this machine"
            if alias == EMBEDDED_ALIAS
            else "choose a plain word"
        )
        raise UsageError(f"A cluster cannot be called {alias!r}: {why}.")
    return alias


def clusters_file(defaults: Defaults) -> str:
    return os.path.join(project_folder() if defaults.yes("clusters-in-local") else user_folder(), FILE)


def _entries(path: str) -> list[ClusterEntry]:
    return read_entries(read_yaml(path), path)


def read_entries(value: object, path: str) -> list[ClusterEntry]:
    """The entries in what a clusters file says."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigError(f"{display_path(path)} must hold a list of clusters.")
    entries = []
    for i, raw in enumerate(value):
        if not isinstance(raw, dict) or not raw.get("cluster_alias"):
            raise ConfigError(f"{display_path(path)}: entry {i + 1} has no cluster_alias.")
        entries.append(ClusterEntry({str(k): v for k, v in raw.items()}))
    return entries
