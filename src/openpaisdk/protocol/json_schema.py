"""JSON Schemas for editors, generated from the definitions that validate jobs."""

from __future__ import annotations

from typing import Any


def job_schema(version: str = "v2") -> dict[str, Any]:
    """The JSON Schema (draft 7) of a job in version ``v1`` or ``v2``."""
    if version in ("v1", "1"):
        from openpaisdk.protocol.v1 import JOB_V1 as NODE

        name = "v1"
    elif version in ("v2", "2"):
        from openpaisdk.protocol.v2_schema import JOB_V2 as NODE

        name = "v2"
    else:
        from openpaisdk.errors import UsageError

        raise UsageError(f'There is no version "{version}" of the job protocol.', hint='Use "v1" or "v2".')
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"OpenPAI job {name}",
        **NODE.json_schema(),
    }
