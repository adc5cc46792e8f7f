"""The error of a task whose image cannot be used. Small: imported also where no task has an image."""

from __future__ import annotations

from paicluster.engines.interface import LaunchFailed

# Codes of the exit table.
IMAGE_MISSING_CODE = 254
REJECTED_CODE = -200


class ImageRejected(LaunchFailed):
    """The image cannot be used, and a retry will not help. ``exit_code`` is a code of the exit table."""

    def __init__(self, message: str, *, exit_code: int = IMAGE_MISSING_CODE):
        super().__init__(message, transient=False)
        self.exit_code = exit_code
