"""What users keep with their account. Keys and tokens among it lie sealed in the database."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from openpaisdk.errors import PaiError
from paicluster.auth.sealing import Sealer

# A private key, a token of another service, tokens of other clusters.
SECRET = frozenset({"jobSSH", "githubPAT", "boundedClusters"})
_MARK = "sealed"


def seal(extension: Mapping[str, Any], sealer: Sealer, username: str) -> dict[str, Any]:
    """What a user gave, as it is stored."""
    return {
        key: {_MARK: _seal(value, sealer, username)} if key in SECRET else value
        for key, value in extension.items()
    }


def unseal(extension: Mapping[str, Any], sealer: Sealer, username: str) -> dict[str, Any]:
    """An extension as its user sees it. What cannot be opened any more is left out."""
    found = {}
    for key, value in extension.items():
        if key not in SECRET:
            found[key] = value
            continue
        try:
            found[key] = json.loads(sealer.unseal(base64.b64decode(value[_MARK]), _what(username)))
        except (PaiError, ValueError, TypeError, KeyError):
            continue
    return found


def without_secrets(extension: Mapping[str, Any]) -> dict[str, Any]:
    """An extension as administrators see it."""
    return {key: value for key, value in extension.items() if key not in SECRET}


def _seal(value: Any, sealer: Sealer, username: str) -> str:
    return base64.b64encode(sealer.seal(json.dumps(value).encode(), _what(username))).decode()


def _what(username: str) -> str:
    return f"user:{username}"
