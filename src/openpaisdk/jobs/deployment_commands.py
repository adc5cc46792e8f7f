"""Commands of the deployment that a job uses: they run before those of its task roles."""

from __future__ import annotations

from openpaisdk.jobs.command_job import DEPLOYMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


def change_pre_commands(
    job: Mapping[str, Any], roles: Sequence[str], change: Callable[[list[str]], list[str]]
) -> dict[str, Any]:
    """The job with other ``preCommands`` of these roles; it uses a deployment then, if it used none."""
    defaults = _mapping(job.get("defaults"))
    name = str(defaults.get("deployment") or DEPLOYMENT)
    deployments = [dict(d) for d in job.get("deployments") or []]
    used = next((d for d in deployments if d.get("name") == name), None)
    if used is None:
        used = {"name": name}
        deployments.append(used)
    in_roles = {role: dict(commands) for role, commands in _mapping(used.get("taskRoles")).items()}
    for role in roles:
        own = in_roles.setdefault(role, {})
        own["preCommands"] = change(list(own.get("preCommands") or []))
    used["taskRoles"] = in_roles
    return {**job, "deployments": deployments, "defaults": {**defaults, "deployment": name}}


def pre_commands_of(job: Mapping[str, Any]) -> list[str]:
    """All ``preCommands`` of the deployment that a job uses."""
    name = str(_mapping(job.get("defaults")).get("deployment") or DEPLOYMENT)
    used = [_mapping(d) for d in job.get("deployments") or []]
    roles = [_mapping(d.get("taskRoles")) for d in used if d.get("name") == name]
    return [
        str(line)
        for commands in roles
        for role in commands.values()
        for line in role.get("preCommands") or []
    ]


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}
