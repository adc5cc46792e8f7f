"""`/openapi.json` is complete, valid, and built from the route table."""

from __future__ import annotations

import json

from paicluster.api.app import DESCRIBED_ROUTES
from paicluster.api.openapi import missing_operations, openapi_json, stale_operations
from support.team_cluster import TeamCluster


def test_every_route_is_described() -> None:
    assert missing_operations(DESCRIBED_ROUTES) == []
    assert stale_operations(DESCRIBED_ROUTES) == []


def test_document_is_valid_openapi() -> None:
    from jsonschema_rs import validator_for  # comes with schemathesis

    document = json.loads(openapi_json(DESCRIBED_ROUTES, "v1"))
    assert document["openapi"].startswith("3.1")
    identifiers = [
        operation["operationId"] for path in document["paths"].values() for operation in path.values()
    ]
    assert len(identifiers) == len(set(identifiers))
    for schema in document["components"]["schemas"].values():
        validator_for({**schema, "components": document["components"]})


def test_document_is_served_without_token_under_both_prefixes(team: TeamCluster) -> None:
    plain = team.get("/openapi.json", token=None)
    assert plain.status == 200
    assert plain.json()["info"]["title"] == "OpenPAI REST API"
    assert team.get("/rest-server/openapi.json", token=None).body == plain.body
