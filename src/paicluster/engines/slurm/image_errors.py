"""Why a task in an image never began on its node, for the person whose task it is."""

from __future__ import annotations

import re
from dataclasses import replace

from paicluster.engines.common import container_errors, image_names
from paicluster.engines.common.container_errors import pull_error
from paicluster.engines.common.image_rejection import IMAGE_MISSING_CODE, ImageRejected
from paicluster.engines.interface import Observation

# Of podman and Apptainer, about getting the image rather than about running it.
_GETTING = re.compile(
    r"Trying to pull|initializing source|pinging container registry|short-name|reading manifest|"
    r"repository name must|invalid reference format|parsing reference|conveyor",
    re.I,
)


def explain(seen: Observation, image: str, username: str) -> Observation:
    """The same observation in words for people, with the code that says whose fault it is.

    ``username``: who was to log in where the image comes from.
    """
    if container_errors.is_missing_image(seen) and image_names.registry_of(image) == "localhost":
        where = seen.placement.node if seen.placement is not None else "that ran the task"
        why = (
            f"There is no image {image} on the node {where}, and those of `localhost` come from nowhere else."
        )
        return replace(seen, start_error=why, platform_code=IMAGE_MISSING_CODE)
    if not _GETTING.search(seen.start_error):
        return container_errors.classify(seen, image)
    refused = pull_error(image, username, seen.start_error)
    code = refused.exit_code if isinstance(refused, ImageRejected) else container_errors.VANISHED
    return replace(seen, start_error=refused.message, platform_code=code)
