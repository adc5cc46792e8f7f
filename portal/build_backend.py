"""Build backend of the package: hatchling, and for a wheel Node.js.

An editable installation needs no portal, so it asks for nothing more.
"""

from __future__ import annotations

from typing import Any

from bundle_build import node_requirement
from hatchling import build as hatchling_build
from hatchling.build import *  # noqa: F403


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*hatchling_build.get_requires_for_build_wheel(config_settings), node_requirement()]
