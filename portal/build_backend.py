"""Build backend of the package: hatchling, and for a wheel Node.js where the machine has none.

An editable installation needs no portal, so it asks for nothing more.
"""

from __future__ import annotations

from typing import Any

from bundle_build import NODE_WHEEL, system_has_node
from hatchling import build as hatchling_build
from hatchling.build import *  # noqa: F403


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    needed = hatchling_build.get_requires_for_build_wheel(config_settings)
    return needed if system_has_node() else [*needed, NODE_WHEEL]
