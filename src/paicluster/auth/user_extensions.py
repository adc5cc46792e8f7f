"""User extensions: free-form data of a user. Keys and tokens in it are sealed in the database."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from paicluster.auth.sealing import Sealer
from paiprotocol.errors import PaiError

# A private key, a token of another service, tokens of other clusters.
SECRET = frozenset({"jobSSH", "githubPAT", "boundedClusters"})
_SEALED_KEY = "sealed"


def seal(extension: Mapping[str, Any], sealer: Sealer, username: str) -> dict[str, Any]:
    """The extension as it is stored, with sealed secrets."""
    return {
        key: {_SEALED_KEY: _seal(value, sealer, username)} if key in SECRET else value
        for key, value in extension.items()
    }


def unseal(extension: Mapping[str, Any], sealer: Sealer, username: str) -> dict[str, Any]:
    """The extension as its user sees it. Secrets that cannot be decrypted are left out."""
    unsealed = {}
    for key, value in extension.items():
        if key not in SECRET:
            unsealed[key] = value
            continue
        try:
            unsealed[key] = json.loads(sealer.unseal(base64.b64decode(value[_SEALED_KEY]), _scope(username)))
        except (PaiError, ValueError, TypeError, KeyError):
            continue
    return unsealed


def without_secrets(extension: Mapping[str, Any]) -> dict[str, Any]:
    """The extension as administrators see it."""
    return {key: value for key, value in extension.items() if key not in SECRET}


def _seal(value: Any, sealer: Sealer, username: str) -> str:
    return base64.b64encode(sealer.seal(json.dumps(value).encode(), _scope(username))).decode()


def _scope(username: str) -> str:
    return f"user:{username}"
