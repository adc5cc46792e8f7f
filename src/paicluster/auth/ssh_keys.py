"""SSH keys: the pair of a user's jobs as OpenPAI has it, and the keys of the cluster's own SSH endpoint.

The keys of the endpoint are derived from one secret, as tokens are: the database holds none, and a deleted
job leaves none behind.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path

from paicluster.auth.key_files import load_key
from paicluster.store.rows import JobRow


@dataclass(frozen=True, slots=True)
class Ed25519KeyPair:
    """``private``: a file as OpenSSH reads it. ``public``: type and key in base64, as in authorized_keys."""

    private: str
    public: str


class SshKeys:
    """Ed25519 keys of one cluster: that of its SSH endpoint, and one for each job."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def open(cls, keys: Path) -> SshKeys:
        """With the secret in the ``keys`` folder, created on first use."""
        return cls(load_key(keys, "ssh"))

    def of_host(self) -> Ed25519KeyPair:
        return self._derive("host")

    def of_job(self, job: JobRow) -> Ed25519KeyPair:
        """Key pair of a job: the same for all its attempts, another for a new job of the same name."""
        return self._derive(f"job:{job.id}:{job.created_ms}:{job.framework}")

    def _derive(self, purpose: str) -> Ed25519KeyPair:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519

        seed = hmac.digest(self._secret, purpose.encode(), hashlib.sha256)
        key = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        return Ed25519KeyPair(private.decode(), public.decode())


def generate_key_pair() -> dict[str, str]:
    """A new pair, as stored in a user extension. Takes a tenth of a second: not on an event loop."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return {"key": private.decode(), "pubKey": f"{public.decode()} pai-job-ssh"}
