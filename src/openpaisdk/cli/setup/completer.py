"""TAB completion of a ``pai`` command line. Starts no server and waits at most ``COMPLETION_TIMEOUT_S``."""

from __future__ import annotations

import sys

from openpaisdk.cli.commands import ALIASES, ENTRY_POINTS
from paiprotocol.errors import PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from openpaisdk.cli.parser import Parser
    from openpaisdk.client import ClusterClient
    from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry

COMPLETION_TIMEOUT_S = 2.0
MAX_CANDIDATES = 200
URL = "pai://"
COMPLETED_STATES = {"stop-job": "WAITING,RUNNING,STOPPING", "delete-job": "SUCCEEDED,FAILED,STOPPED"}


def complete(argv: list[str]) -> int:
    """Print the candidates for the last argument, one per line."""
    try:
        words = candidates(argv)
    except (PaiError, OSError):
        words = []  # the command itself reports the error when it runs
    words = [each for each in words if each.isprintable()]  # names of files may contain anything
    if words:
        sys.stdout.write("\n".join(words) + "\n")
    return 0


def candidates(argv: list[str]) -> list[str]:
    """The possible values of the last argument, which may be incomplete."""
    *before, word = argv or [""]
    if not before:
        names = [name for name in (*ENTRY_POINTS, *ALIASES) if name.startswith(word)]
        return sorted(names) if word else list(ENTRY_POINTS)
    if before == ["help"]:
        return [name for name in ENTRY_POINTS if name.startswith(word)]
    command = ALIASES.get(before[0], before[0])
    if command not in ENTRY_POINTS:
        return []
    from openpaisdk.cli.parser import get_parser

    return CommandLineCompleter(command, get_parser(command), before[1:]).complete(word)


class CommandLineCompleter:
    """Completer of one incomplete command line."""

    def __init__(self, command: str, parser: Parser, argv: list[str]):
        self.command = command
        self.parser = parser
        self.alias = ""
        self.position = 0
        """The number of positional arguments before the incomplete one."""
        self.pending_option: argparse.Action | None = None
        """The option whose value comes next."""
        self.options_ended = False
        for word in argv:
            self._consume(word)

    def _consume(self, word: str) -> None:
        if self.pending_option is not None:
            if self.pending_option.dest == "cluster_alias":
                self.alias = word
            self.pending_option = None
            return
        if word.startswith("-") and len(word) > 1 and not self.options_ended:
            if word == "--":
                self.options_ended = True
                return
            name, equals, value = word.partition("=")
            action = self.parser.options.get(name)
            if action is None or action.nargs in (0, "?"):
                return
            if equals and action.dest == "cluster_alias":
                self.alias = value
            self.pending_option = None if equals else action
            return
        self.position += 1

    def complete(self, word: str) -> list[str]:
        if self.pending_option is not None:
            return self._values(self.pending_option, word)
        if word.startswith("-") and not self.options_ended and self._accepts_options():
            name, equals, value = word.partition("=")
            if not equals:
                return sorted(o for o in self.parser.options if o.startswith(word) and _is_long(o, word))
            action = self.parser.options.get(name)
            return [f"{name}={v}" for v in self._values(action, value)] if action else []
        if self.command == "sub":
            return []  # the job's command; the shell completes file names
        positionals = self.parser.positionals
        if not positionals:
            return []
        action = positionals[min(self.position, len(positionals) - 1)]
        if self.position >= len(positionals) and action.nargs not in ("*", "+"):
            return []
        return self._values(action, word)

    def _accepts_options(self) -> bool:
        return self.command != "sub" or self.position == 0

    def _values(self, action: argparse.Action, word: str) -> list[str]:
        if word.startswith(URL[: len(word)]) and (word.startswith(URL) or action.dest in ("path", "paths")):
            return self._addresses(word)
        if action.choices:
            return [str(c) for c in action.choices if str(c).startswith(word)]
        lookup = self._lookups().get(action.dest)
        return [name for name in lookup(word) if name.startswith(word)] if lookup else []

    def _lookups(self) -> dict[str, Callable[[str], Iterable[str]]]:
        return {
            "job": self._jobs,
            "jobs": self._jobs,
            "after": self._jobs,
            "job_name": lambda word: [] if self.command in ("sub", "resubmit") else self._jobs(word),
            "alias": lambda _: self._aliases(),
            "aliases": lambda _: self._aliases(),
            "cluster_alias": lambda _: self._aliases(),
            "virtual_cluster": lambda _: self._of_entry("virtual_clusters"),
            "storage_name": lambda _: self._of_entry("storages"),
            "storage_alias": lambda _: self._of_entry("storages"),
            "state": lambda _: ("WAITING", "RUNNING", "STOPPING", "SUCCEEDED", "FAILED", "STOPPED"),
            "changes": lambda _: [f"{key}=" for key in _keys()],
            "keys": lambda _: _keys(),
        }

    def _registry(self) -> ClusterRegistry:
        from openpaisdk.config.clusters import ClusterRegistry

        return ClusterRegistry.load()

    def _aliases(self) -> list[str]:
        from openpaisdk.config.clusters import EMBEDDED_ALIAS

        registry = self._registry()
        own = [registry.own.alias] if registry.own else []
        return list(dict.fromkeys([*own, *(e.alias for e in registry.entries), EMBEDDED_ALIAS]))

    def _of_entry(self, key: str, alias: str = "") -> list[str]:
        """Names stored in the cluster's entry; a cluster that is in no file is queried."""
        entry = self._registry().resolve(alias or self.alias)
        names: object = entry.raw.get(key)
        if key not in entry.raw and not entry.is_storage and (cluster := self._cluster(entry)):
            names = (
                cluster.storages() if key == "storages" else [vc.name for vc in cluster.virtual_clusters()]
            )
        if not isinstance(names, list):
            return []
        return [str(item.get("name") if isinstance(item, dict) else item) for item in names]

    def _addresses(self, word: str) -> list[str]:
        """Candidates for ``pai://<cluster>/<storage>/`` and ``…/jobs/<job>/``; no paths on a storage."""
        from openpaisdk.config.clusters import JOBS_STORAGE

        if not word.startswith(URL):
            return [URL]
        alias, slash, rest = word[len(URL) :].partition("/")
        if not slash:
            return [f"{URL}{name}/" for name in self._aliases() if name.startswith(alias)]
        storage, slash, job = rest.partition("/")
        if slash:
            if storage != JOBS_STORAGE or "/" in job:
                return []
            self.alias = alias
            return [f"{URL}{alias}/{storage}/{name}/" for name in self._jobs(job) if name.startswith(job)]
        entry = self._registry().resolve(alias)
        names = ["0", *self._of_entry("storages", alias), *([] if entry.is_storage else [JOBS_STORAGE])]
        return [f"{URL}{alias}/{name}/" for name in dict.fromkeys(names) if name.startswith(rest)]

    def _jobs(self, word: str) -> list[str]:
        cluster = self._cluster(self._registry().resolve(self.alias))
        if cluster is None:
            return []
        state = COMPLETED_STATES.get(self.command, "")
        jobs = cluster.jobs(user=cluster.user, state=state, keyword=word, limit=MAX_CANDIDATES)
        return [job.name for job in jobs]

    def _cluster(self, entry: ClusterEntry) -> ClusterClient | None:
        """A client for the cluster; None if the embedded cluster is not running: a TAB does not start it."""
        if entry.is_embedded:
            from openpaisdk.client import ClusterClient
            from openpaisdk.connect import endpoint_of
            from openpaisdk.embedded.ensure_running import find_running

            handshake = find_running()
            if handshake is None:
                return None
            cluster = ClusterClient(entry.alias, endpoint_of(handshake))
        else:
            from openpaisdk.connect import open_entry

            cluster = open_entry(entry)
        cluster.transport.shorten_timeouts(COMPLETION_TIMEOUT_S)
        return cluster


def _is_long(option: str, word: str) -> bool:
    return option.startswith("--") or word == option


def _keys() -> list[str]:
    from openpaisdk.config.defaults import KEYS

    return list(KEYS)
