"""Variables as words of the shell: what the tasks of a gang have in common is written once for all."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping

# A shell needs these before it can read anything.
_START_VARIABLES = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH")

TF_CONFIG = "TF_CONFIG"
_TASK = '"task":'
_LONG = 4096


def can_be_exported(name: str) -> bool:
    """Whether a shell can have a variable of that name; other programs can have any."""
    return name.isascii() and name.isidentifier()


def exports(variables: Mapping[str, str], but: Collection[str] = ()) -> str:
    """Lines that a shell reads; without those of which some task has one of its own."""
    return "".join(
        f"export {name}={shlex.quote(value)}\n"
        for name, value in variables.items()
        if can_be_exported(name) and name not in but
    )


def beside_exports(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What must reach the shell some other way: it needs it before it reads, or cannot have it."""
    for name, value in variables.items():
        if name in _START_VARIABLES or not can_be_exported(name):
            yield name, value


def has_long_peers(environment: Mapping[str, str]) -> bool:
    config = environment.get(TF_CONFIG, "")
    return len(config) > _LONG and _TASK in config


def peers_for_all(environment: Mapping[str, str]) -> str:
    """The line that gives every task its TF_CONFIG: it names all peers, and only its last words differ."""
    peers = environment[TF_CONFIG].rpartition(_TASK)[0] + _TASK
    role, index = "$PAI_CURRENT_TASK_ROLE_NAME", "$PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"
    who = f'{{\\"type\\":\\"{role}\\",\\"index\\":{index}}}}}'
    return f'export {TF_CONFIG}={shlex.quote(peers)}"{who}"\n'
