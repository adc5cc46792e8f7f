"""What the API can be asked and what it answers, in types; `/openapi.json` is made from them.

Each route's handler has one `Operation` under its name, in the file of its subject. What a type says is held
against every answer the tests see, so a description that is not true does not last.
"""

from __future__ import annotations

from functools import cache

import msgspec

from paicluster.api.openapi import clusters, jobs, server, users, v1
from paicluster.api.openapi.document import document
from paicluster.api.openapi.operation import Operation, name_of

OPERATIONS: dict[str, Operation] = {
    **jobs.OPERATIONS,
    **users.OPERATIONS,
    **clusters.OPERATIONS,
    **v1.OPERATIONS,
    **server.OPERATIONS,
}


@cache
def openapi_json(version: str) -> bytes:
    """The whole description as JSON."""
    from paicluster.api.app import ROUTES

    return msgspec.json.encode(document(ROUTES, OPERATIONS, version))


def missing_operations() -> list[str]:
    """The routes nobody has described; there must be none."""
    from paicluster.api.app import ROUTES

    return [
        f"{'|'.join(methods)} {path} ({name_of(handler)})"
        for path, methods, handler in ROUTES
        if name_of(handler) not in OPERATIONS
    ]


def stale_operations() -> list[str]:
    """The descriptions that no route has."""
    from paicluster.api.app import ROUTES

    return sorted(OPERATIONS.keys() - {name_of(handler) for _, _, handler in ROUTES})
