"""OpenAPI description of the API: requests and responses as types, from which `/openapi.json` is made.

Each route's handler has one `Operation` under its name, in the file of its subject. The tests validate every
response they see against these types, so a wrong description fails.
"""

from __future__ import annotations

import msgspec

from paicluster.api.openapi import clusters, jobs, paddlecloud, server, users, v1
from paicluster.api.openapi.document import Routes, document
from paicluster.api.openapi.operation import Operation, name_of

OPERATIONS: dict[str, Operation] = {
    **jobs.OPERATIONS,
    **users.OPERATIONS,
    **clusters.OPERATIONS,
    **v1.OPERATIONS,
    **paddlecloud.OPERATIONS,
    **server.OPERATIONS,
}


def openapi_json(routes: Routes, version: str) -> bytes:
    """The OpenAPI document of these routes as JSON."""
    return msgspec.json.encode(document(routes, OPERATIONS, version))


def missing_operations(routes: Routes) -> list[str]:
    """Routes without a description; there must be none."""
    return [
        f"{'|'.join(methods)} {path} ({name_of(handler)})"
        for path, methods, handler in routes
        if name_of(handler) not in OPERATIONS
    ]


def stale_operations(routes: Routes) -> list[str]:
    """Descriptions without a route."""
    return sorted(OPERATIONS.keys() - {name_of(handler) for _, _, handler in routes})
