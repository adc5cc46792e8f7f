"""Error messages for tasks whose image did not start on its node."""

from __future__ import annotations

import re
from dataclasses import replace

from paicluster.engines.common import container_errors, image_names
from paicluster.engines.common.container_errors import pull_error
from paicluster.engines.common.image_rejection import IMAGE_MISSING_CODE, ImageRejected
from paicluster.engines.interface import Observation

# Messages of podman and Apptainer about pulling the image, not about running it.
_PULL_ERROR = re.compile(
    r"Trying to pull|initializing source|pinging container registry|short-name|reading manifest|"
    r"repository name must|invalid reference format|parsing reference|conveyor",
    re.I,
)


def explain(seen: Observation, image: str, username: str) -> Observation:
    """The observation with a readable message and the exit code that names the cause.

    ``username``: the login for the image's registry.
    """
    if container_errors.is_missing_image(seen) and image_names.registry_of(image) == "localhost":
        node = seen.placement.node if seen.placement is not None else "that ran the task"
        message = f"There is no image {image} on the node {node}, and images of `localhost` cannot be pulled."
        return replace(seen, start_error=message, platform_code=IMAGE_MISSING_CODE)
    if not _PULL_ERROR.search(seen.start_error):
        return container_errors.classify(seen, image)
    error = pull_error(image, username, seen.start_error)
    code = error.exit_code if isinstance(error, ImageRejected) else container_errors.VANISHED
    return replace(seen, start_error=error.message, platform_code=code)
