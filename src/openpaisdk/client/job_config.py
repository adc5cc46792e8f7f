"""Task roles of a job's configuration, in either version of the protocol.

Read for display, so it is lenient: the configuration may come from any version of OpenPAI. Jobs that are
submitted are parsed by ``paiprotocol.jobs``, which takes longer to import than most commands to run.
"""

from __future__ import annotations

from openpaisdk.client.models import mapping_at, number, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class RoleConfig:
    """What each task of a role runs, and with which resources. Zero and empty where unknown."""

    __slots__ = ("commands", "cpu", "gpu", "image", "instances", "memory_mb", "name")

    def __init__(
        self,
        name: str,
        instances: int,
        *,
        image: str = "",
        cpu: int = 0,
        memory_mb: int = 0,
        gpu: int = 0,
        commands: list[str] | None = None,
    ):
        self.name = name
        self.instances = instances
        self.image = image
        self.cpu = cpu
        self.memory_mb = memory_mb
        self.gpu = gpu
        self.commands = commands or []


def parse_config(config: str) -> dict[str, object]:
    """The configuration as plain data; empty if it cannot be parsed. Our own server sends JSON."""
    import json

    value: object = None
    try:
        value = json.loads(config)
    except ValueError:
        import yaml

        try:
            value = yaml.safe_load(config)
        except yaml.YAMLError:
            pass
    return value if isinstance(value, dict) else {}


def roles_of(config: Mapping[str, object]) -> list[RoleConfig]:
    """The task roles of a job's configuration, in their order."""
    roles = config.get("taskRoles")
    if isinstance(roles, dict):
        images = _images(config)
        return [_v2_role(str(name), role, images) for name, role in roles.items() if isinstance(role, dict)]
    if isinstance(roles, list):
        image = text(config, "image")
        return [_v1_role(role, image) for role in roles if isinstance(role, dict)]
    return []


def _images(config: Mapping[str, object]) -> dict[str, str]:
    """Addresses of the images by the name under which the roles refer to them."""
    prerequisites = config.get("prerequisites")
    return {
        text(item, "name"): text(item, "uri")
        for item in (prerequisites if isinstance(prerequisites, list) else [])
        if isinstance(item, dict) and item.get("type") == "dockerimage"
    }


def _v2_role(name: str, role: dict[str, object], images: dict[str, str]) -> RoleConfig:
    resources = mapping_at(role, "resourcePerInstance")
    commands = role.get("commands")
    instances = number(role, "instances")
    return RoleConfig(
        name,
        1 if instances is None else instances,
        image=images.get(text(role, "dockerImage"), text(role, "dockerImage")),
        cpu=number(resources, "cpu") or 0,
        memory_mb=number(resources, "memoryMB") or 0,
        gpu=number(resources, "gpu") or 0,
        commands=[str(command) for command in commands] if isinstance(commands, list) else [],
    )


def _v1_role(role: dict[str, object], image: str) -> RoleConfig:
    instances = number(role, "taskNumber")
    return RoleConfig(
        text(role, "name"),
        1 if instances is None else instances,
        image=image,
        cpu=number(role, "cpuNumber") or 0,
        memory_mb=number(role, "memoryMB") or 0,
        gpu=number(role, "gpuNumber") or 0,
        commands=[text(role, "command")],
    )
