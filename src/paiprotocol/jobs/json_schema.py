"""JSON Schemas for editors, generated from the definitions that validate jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paiprotocol.jobs.schema_nodes import Node


def job_schema(version: str = "v2") -> dict[str, Any]:
    """The JSON Schema (draft 7) of a job in version ``v1`` or ``v2``."""
    if version in ("v1", "1"):
        from paiprotocol.jobs.v1 import JOB_V1 as NODE

        name = "v1"
    elif version in ("v2", "2"):
        from paiprotocol.jobs.v2_schema import JOB_V2 as NODE

        name = "v2"
    else:
        from paiprotocol.errors import UsageError

        raise UsageError(f'There is no version "{version}" of the job protocol.', hint='Use "v1" or "v2".')
    return json_schema_of(NODE, f"OpenPAI job {name}")


def json_schema_of(node: Node, title: str) -> dict[str, Any]:
    """The JSON Schema (draft 7) of a document with this schema."""
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": title, **node.json_schema()}
