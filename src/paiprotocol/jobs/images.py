"""Images of a job: which ones it names, and the sentence for a cluster that cannot use them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NO_IMAGE = "host"
"""Image of a task that runs without a container."""


def unused_images(images: Iterable[str]) -> str:
    """Warning about images on a cluster that runs tasks without containers; empty if there are none."""
    names = ", ".join(sorted(set(images) - {NO_IMAGE, ""}))
    return f"This cluster runs tasks without containers: {names} is not used." if names else ""


def named_images(job: Mapping[str, object]) -> list[str]:
    """Images that the document of a job names, of either version of the protocol."""
    image = job.get("image")
    prerequisites = job.get("prerequisites")
    items = prerequisites if isinstance(prerequisites, list) else []
    return [
        *([image] if isinstance(image, str) else []),
        *(
            str(item.get("uri", ""))
            for item in items
            if isinstance(item, dict) and item.get("type") == "dockerimage"
        ),
    ]
