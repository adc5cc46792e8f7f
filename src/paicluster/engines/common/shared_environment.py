"""What the tasks of a gang have in common: it grows with the gang, so one file has it for all of them."""

from __future__ import annotations

from collections.abc import Mapping

from paicluster.engines.interface import TaskLaunch

_TF_CONFIG = "TF_CONFIG"
_TASK = '"task":'
_LONG = 4096


def encode_shared_variables(task: TaskLaunch) -> bytes:
    """The variables of this task's gang, but for those each has of its own, as a supervisor reads them."""
    shared = {name: value for name, value in task.shared_environment.items() if name not in task.environment}
    if has_long_peers(task.environment):
        shared[_TF_CONFIG] = _peers_and_rest(task.environment)[0]
    return b"".join(f"{name}={value}\0".encode() for name, value in shared.items() if "\0" not in value)


def task_specific(task: TaskLaunch) -> tuple[dict[str, str], dict[str, str]]:
    """What is the task's alone: whole variables, and the ends of some whose beginning is common to all."""
    # No program can have these. It is said of the task that its program could not start.
    broken = {name: value for name, value in task.shared_environment.items() if "\0" in value}
    variables = {**broken, **task.environment}
    if not has_long_peers(variables):
        return variables, {}
    _, rest = _peers_and_rest(variables)
    del variables[_TF_CONFIG]
    return variables, {_TF_CONFIG: rest}


def has_long_peers(environment: Mapping[str, str]) -> bool:
    """It names all peers, and only its last words differ from task to task."""
    config = environment.get(_TF_CONFIG, "")
    return len(config) > _LONG and _TASK in config


def _peers_and_rest(environment: Mapping[str, str]) -> tuple[str, str]:
    peers, mark, rest = environment[_TF_CONFIG].rpartition(_TASK)
    return peers + mark, rest
