"""Encryption of job secrets at rest: AES-256-GCM, key outside the database, bound to their job."""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path

from paicluster.auth.key_files import load_key
from paiprotocol.errors import StoreError

_NONCE = 12


class Sealer:
    """Encrypts and decrypts the secrets of jobs."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def from_key_files(cls, keys: Path) -> Sealer:
        """With the key in the ``keys`` folder, created on first use."""
        return cls(load_key(keys, "sealing"))

    def seal(self, data: bytes, uid: str) -> bytes:
        """Encrypt. Only `unseal` with the same ``uid`` decrypts it: secrets cannot be moved to other jobs."""
        # Most clusters have no secrets: the library is imported for the first one.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(_NONCE)
        return nonce + AESGCM(self._key).encrypt(nonce, data, uid.encode())

    def fingerprint(self, data: bytes) -> str:
        """Digest (hex) by which equal data are recognised; without the key it reveals nothing else."""
        return hmac.new(self._key, data, "sha256").hexdigest()

    def unseal(self, sealed: bytes, uid: str) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            return AESGCM(self._key).decrypt(sealed[:_NONCE], sealed[_NONCE:], uid.encode())
        except (InvalidTag, ValueError):
            raise StoreError(
                f"The secrets of {uid} cannot be decrypted: encrypted with another key, or changed since.",
                hint="Restore the cluster's keys folder from the time the job was submitted.",
            ) from None
