"""Build hook of the wheel: makes the portal's files. Without npm the wheel is built without them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))

from bundle_build import FILES, NoBundle, build


class PortalHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # A checkout is built by `make portal`, when it is wanted.
        if version == "editable":
            return
        try:
            build()
        except NoBundle as error:
            # Files of an older build would not match the server.
            for file in FILES.glob("*"):
                file.unlink()
            self.app.display_warning(f"The package is built without the web portal: {error}.")
