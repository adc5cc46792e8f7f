"""User extensions: their secrets are sealed for their user."""

from __future__ import annotations

import json

from paicluster.auth import user_extensions
from paicluster.auth.sealing import Sealer
from paicluster.auth.ssh_keys import generate_key_pair


def test_only_secrets_of_an_extension_are_sealed() -> None:
    sealer = Sealer(b"k" * 32)
    own = {"githubPAT": "ghp_1", "boundedClusters": {"x": {"token": "t0ken"}}, "team": "blue"}
    stored = user_extensions.seal(own, sealer, "alice")
    assert "ghp_1" not in json.dumps(stored) and "t0ken" not in json.dumps(stored)
    assert stored["team"] == "blue"
    assert user_extensions.unseal(stored, sealer, "alice") == own
    assert user_extensions.unseal(stored, sealer, "bob") == {"team": "blue"}
    assert user_extensions.unseal(stored, Sealer(b"x" * 32), "alice") == {"team": "blue"}
    assert user_extensions.without_secrets(stored) == {"team": "blue"}
    assert user_extensions.unseal(
        {"jobSSH": {"sealed": 3}, "githubPAT": 1, "a": {"sealed": 3}}, sealer, "alice"
    ) == {"a": {"sealed": 3}}


def test_key_pair_is_in_ssh_format() -> None:
    pair = generate_key_pair()
    assert pair["key"].startswith("-----BEGIN RSA PRIVATE KEY-----")
    assert pair["pubKey"].startswith("ssh-rsa ") and pair["pubKey"].endswith(" pai-job-ssh")
