"""Environment of a task: its own variables, and those that it shares with the other tasks of its gang."""

import os

from pairuntime.supervisor import claim

# Variables that all tasks of a gang share: NAME=value, each followed by a zero byte.
SHARED_ENVIRONMENT_FILE = "env"


class SharedEnvironment:
    """Variables that all tasks of a gang share: one file with a link in each folder, read once."""

    def __init__(self) -> "None":
        self._file = None  # type: tuple[int, int] | None
        self._variables = {}  # type: dict[bytes, bytes]

    def environment(self, folder: "str", own: "dict[str, str]") -> "dict[bytes, bytes]":
        """The shared variables and a task's own ones, before `with_suffixes`."""
        path = os.path.join(folder, SHARED_ENVIRONMENT_FILE)
        stat = os.stat(path)
        if (stat.st_dev, stat.st_ino) != self._file:
            self._variables = {}
            for pair in claim.read_file(path).split(b"\0")[:-1]:
                name, _, value = pair.partition(b"=")
                self._variables[name] = value
            self._file = stat.st_dev, stat.st_ino
        variables = dict(self._variables)
        for name_text, text in own.items():
            variables[os.fsencode(name_text)] = os.fsencode(text)
        return variables


def with_suffixes(variables: "dict[bytes, bytes]", suffixes: "dict[str, str]") -> "dict[bytes, bytes]":
    """The complete environment. Long variables of a gang (TF_CONFIG) differ only in their last characters."""
    whole = dict(variables)
    for name, suffix in suffixes.items():
        whole[os.fsencode(name)] += os.fsencode(suffix)
    return whole


def whole_environment(
    folder: "str", own: "dict[str, str]", suffixes: "dict[str, str] | None"
) -> "dict[bytes, bytes] | dict[str, str]":
    """A task's own variables and those it shares with its gang."""
    return own if suffixes is None else with_suffixes(SharedEnvironment().environment(folder, own), suffixes)
