"""Variables that the tasks of a gang share: they grow with the gang, so one file holds them for all tasks."""

from __future__ import annotations

from collections.abc import Mapping

from paicluster.engines.interface import TaskLaunch

_TF_CONFIG = "TF_CONFIG"
_TASK = '"task":'
_MIN_SHARED_CHARS = 4096


def encode_shared_variables(task: TaskLaunch) -> bytes:
    """Shared variables of the gang, without those that the task overrides, in the supervisor's format."""
    shared = {name: value for name, value in task.shared_environment.items() if name not in task.environment}
    if has_long_peers(task.environment):
        shared[_TF_CONFIG] = _peers_and_rest(task.environment)[0]
    return b"".join(f"{name}={value}\0".encode() for name, value in shared.items() if "\0" not in value)


def task_specific(task: TaskLaunch) -> tuple[dict[str, str], dict[str, str]]:
    """The task's own variables, and the suffixes of variables whose beginning the gang shares."""
    # No program can have these: the start fails with a message.
    invalid = {name: value for name, value in task.shared_environment.items() if "\0" in value}
    variables = {**invalid, **task.environment}
    if not has_long_peers(variables):
        return variables, {}
    _, rest = _peers_and_rest(variables)
    del variables[_TF_CONFIG]
    return variables, {_TF_CONFIG: rest}


def has_long_peers(environment: Mapping[str, str]) -> bool:
    """Whether TF_CONFIG is long: it lists all peers, and only its end differs from task to task."""
    config = environment.get(_TF_CONFIG, "")
    return len(config) > _MIN_SHARED_CHARS and _TASK in config


def _peers_and_rest(environment: Mapping[str, str]) -> tuple[str, str]:
    peers, marker, rest = environment[_TF_CONFIG].rpartition(_TASK)
    return peers + marker, rest
