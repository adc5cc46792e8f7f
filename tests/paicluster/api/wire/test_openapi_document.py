"""`/openapi.json` is valid, and built from the declarations of the routes."""

from __future__ import annotations

import json

from paicluster.api.routes import DESCRIBED_ROUTES
from paicluster.api.wire.openapi import openapi_json
from support.openapi_check import current_document
from support.team_cluster import TeamCluster


def test_document_is_valid_openapi() -> None:
    from jsonschema_rs import validator_for  # comes with schemathesis

    document = json.loads(openapi_json(DESCRIBED_ROUTES, "v1"))
    assert document["openapi"].startswith("3.1")
    identifiers = [
        operation["operationId"] for path in document["paths"].values() for operation in path.values()
    ]
    assert len(identifiers) == len(set(identifiers))
    # Types of one name get the names of their modules before it.
    assert [name for name in document["components"]["schemas"] if not name.isidentifier()] == []
    for schema in document["components"]["schemas"].values():
        validator_for({**schema, "components": document["components"]})


def test_document_is_served_without_token_under_both_prefixes(team: TeamCluster) -> None:
    plain = team.get("/openapi.json", token=None)
    assert plain.status == 200
    assert plain.json()["info"]["title"] == "OpenPAI REST API"
    # All tests compare responses with it.
    assert plain.json() == current_document()
    assert team.get("/rest-server/openapi.json", token=None).body == plain.body
