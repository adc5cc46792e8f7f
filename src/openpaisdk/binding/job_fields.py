"""Fields of a job for display: what runs where, in few words and without its secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MAX_ROLES = 20
MAX_CHARACTERS = 2000
"""Task roles, and characters of one, that are shown: a job may have megabytes, and a notebook keeps them."""


def job_fields(protocol: Mapping[str, Any], cluster: str = "") -> dict[str, str]:
    """Name, cluster, image, and each role with its resources and commands; of either protocol version."""
    images = [str(item.get("uri", "")) for item in _mappings(protocol.get("prerequisites"))]
    fields = {
        "job": str(protocol.get("name") or protocol.get("jobName") or ""),
        "cluster": cluster,
        "image": ", ".join(images) or str(protocol.get("image") or ""),
    }
    roles = protocol.get("taskRoles")
    if isinstance(roles, Mapping):
        named = [(str(name), role) for name, role in roles.items() if isinstance(role, Mapping)]
    else:
        named = [(str(role.get("name", "")), role) for role in _mappings(roles)]
    for name, role in named[:MAX_ROLES]:
        text = "\n".join(line for line in (_resources(role), *_commands(role)) if line)
        fields[name] = text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."
    if len(named) > MAX_ROLES:
        fields["and"] = f"{len(named) - MAX_ROLES} more task roles"
    return fields


def _mappings(items: object) -> Iterator[Mapping[str, Any]]:
    return (item for item in (items if isinstance(items, list) else ()) if isinstance(item, Mapping))


def _resources(role: Mapping[str, Any]) -> str:
    count = role.get("instances") or role.get("taskNumber") or 1
    each = role.get("resourcePerInstance")
    each = each if isinstance(each, Mapping) else {}
    amounts = [
        f"{each[key]} {unit}{'s' if unit[-1].islower() and each[key] != 1 else ''}"
        for key, unit in (("cpu", "core"), ("gpu", "GPU"), ("memoryMB", "MB"))
        if each.get(key)
    ]
    return ", ".join([f"{count} task{'' if count == 1 else 's'}", *amounts])


def _commands(role: Mapping[str, Any]) -> list[str]:
    commands = role.get("commands") or role.get("command") or []
    return [commands] if isinstance(commands, str) else [str(line) for line in commands]
