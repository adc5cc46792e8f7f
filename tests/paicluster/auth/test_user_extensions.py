"""What users keep with their account: secrets in it are sealed, and opened for them alone."""

from __future__ import annotations

import json

from paicluster.auth import extensions
from paicluster.auth.jobssh import make_key_pair
from paicluster.auth.sealing import Sealer


def test_secrets_are_sealed_for_one_user_and_the_rest_stays_readable() -> None:
    sealer = Sealer(b"k" * 32)
    own = {"githubPAT": "ghp_1", "boundedClusters": {"x": {"token": "t0ken"}}, "team": "blue"}
    stored = extensions.seal(own, sealer, "alice")
    assert "ghp_1" not in json.dumps(stored) and "t0ken" not in json.dumps(stored)
    assert stored["team"] == "blue"
    assert extensions.unseal(stored, sealer, "alice") == own
    assert extensions.unseal(stored, sealer, "bob") == {"team": "blue"}
    assert extensions.unseal(stored, Sealer(b"x" * 32), "alice") == {"team": "blue"}
    assert extensions.without_secrets(stored) == {"team": "blue"}
    assert extensions.unseal(
        {"jobSSH": {"sealed": 3}, "githubPAT": 1, "a": {"sealed": 3}}, sealer, "alice"
    ) == {"a": {"sealed": 3}}


def test_a_key_pair_has_the_forms_that_ssh_reads() -> None:
    pair = make_key_pair()
    assert pair["key"].startswith("-----BEGIN RSA PRIVATE KEY-----")
    assert pair["pubKey"].startswith("ssh-rsa ") and pair["pubKey"].endswith(" pai-job-ssh")
