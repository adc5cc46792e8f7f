"""What could follow the words typed so far. Asked with every TAB: nothing is started, nobody waited for."""

from __future__ import annotations

import sys

from openpaisdk.cli.commands import ALIASES, PLACES
from openpaisdk.errors import PaiError

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
STATES_WANTED = {"stop-job": "WAITING,RUNNING,STOPPING", "delete-job": "SUCCEEDED,FAILED,STOPPED"}


def complete(words: list[str]) -> int:
    """Print, one a line, what the last of the words could become."""
    try:
        found = candidates(words)
    except (PaiError, OSError):
        found = []  # whatever is wrong, it is told when the command is run
    if found:
        sys.stdout.write("\n".join(found) + "\n")
    return 0


def candidates(words: list[str]) -> list[str]:
    """What the last word could become, as far as it is typed."""
    *before, word = words or [""]
    if not before:
        names = [name for name in (*PLACES, *ALIASES) if name.startswith(word)]
        return sorted(names) if word else list(PLACES)
    if before == ["help"]:
        return [name for name in PLACES if name.startswith(word)]
    command = ALIASES.get(before[0], before[0])
    if command not in PLACES:
        return []
    from openpaisdk.cli.parser import parser_of

    line = CommandLineCompleter(command, parser_of(command), before[1:])
    return line.of(word)


class CommandLineCompleter:
    """A command line that is being typed."""

    def __init__(self, command: str, parser: Parser, words: list[str]):
        self.command = command
        self.parser = parser
        self.alias = ""
        self.place = 0
        """How many words of the command's own were typed already."""
        self.open: argparse.Action | None = None
        """The option whose value comes next."""
        self.ended = False
        for word in words:
            self._take(word)

    def _take(self, word: str) -> None:
        if self.open is not None:
            if self.open.dest == "cluster_alias":
                self.alias = word
            self.open = None
            return
        if word.startswith("-") and len(word) > 1 and not self.ended:
            if word == "--":
                self.ended = True
                return
            name, equals, value = word.partition("=")
            action = self.parser.options.get(name)
            if action is None or action.nargs in (0, "?"):
                return
            if equals and action.dest == "cluster_alias":
                self.alias = value
            self.open = None if equals else action
            return
        self.place += 1

    def of(self, word: str) -> list[str]:
        if self.open is not None:
            return self._values(self.open, word)
        if word.startswith("-") and not self.ended and self._is_ours():
            name, equals, value = word.partition("=")
            if not equals:
                return sorted(o for o in self.parser.options if o.startswith(word) and _is_long(o, word))
            action = self.parser.options.get(name)
            return [f"{name}={v}" for v in self._values(action, value)] if action else []
        if self.command == "sub":
            return []  # a command of the job's, in a folder of files
        own = self.parser.own_words
        if not own:
            return []
        action = own[min(self.place, len(own) - 1)]
        if self.place >= len(own) and action.nargs not in ("*", "+"):
            return []
        return self._values(action, word)

    def _is_ours(self) -> bool:
        return self.command != "sub" or self.place == 0

    def _values(self, action: argparse.Action, word: str) -> list[str]:
        if word.startswith(URL[: len(word)]) and (word.startswith(URL) or action.dest in ("path", "paths")):
            return self._addresses(word)
        if action.choices:
            return [str(c) for c in action.choices if str(c).startswith(word)]
        find = self._finders().get(action.dest)
        return [name for name in find(word) if name.startswith(word)] if find else []

    def _finders(self) -> dict[str, Callable[[str], Iterable[str]]]:
        return {
            "job": self._jobs,
            "jobs": self._jobs,
            "after": self._jobs,
            "job_name": lambda word: [] if self.command in ("sub", "clone-job") else self._jobs(word),
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

    def _book(self) -> ClusterRegistry:
        from openpaisdk.config.clusters import ClusterRegistry

        return ClusterRegistry.load()

    def _aliases(self) -> list[str]:
        from openpaisdk.config.clusters import EMBEDDED_ALIAS

        return list(dict.fromkeys([*(e.alias for e in self._book().entries), EMBEDDED_ALIAS]))

    def _of_entry(self, key: str, alias: str = "") -> list[str]:
        """Names that were learned when the cluster was added, or asked anew."""
        entry = self._book().resolve(alias or self.alias)
        found: object = entry.raw.get(key)
        if entry.is_embedded and (cluster := self._cluster(entry)):
            found = (
                cluster.storages() if key == "storages" else [vc.name for vc in cluster.virtual_clusters()]
            )
        if not isinstance(found, list):
            return []
        return [str(item.get("name") if isinstance(item, dict) else item) for item in found]

    def _addresses(self, word: str) -> list[str]:
        """``pai://`` cluster, storage; files are for the command itself to find."""
        if not word.startswith(URL):
            return [URL]
        alias, slash, rest = word[len(URL) :].partition("/")
        if not slash:
            return [f"{URL}{name}/" for name in self._aliases() if name.startswith(alias)]
        if "/" in rest:
            return []
        names = ["0", *self._of_entry("storages", alias)]
        return [f"{URL}{alias}/{name}/" for name in names if name.startswith(rest)]

    def _jobs(self, word: str) -> list[str]:
        cluster = self._cluster(self._book().resolve(self.alias))
        if cluster is None:
            return []
        state = STATES_WANTED.get(self.command, "")
        jobs = cluster.jobs(user=cluster.user, state=state, keyword=word, limit=MAX_CANDIDATES)
        return [job.name for job in jobs]

    def _cluster(self, entry: ClusterEntry) -> ClusterClient | None:
        """One that is there; the one of this machine is not started for a TAB."""
        if entry.is_embedded:
            from openpaisdk.client import ClusterClient
            from openpaisdk.connect import endpoint_of
            from openpaisdk.embedded.ensure_running import find_running

            found = find_running()
            if found is None:
                return None
            cluster = ClusterClient(entry.alias, endpoint_of(found))
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
