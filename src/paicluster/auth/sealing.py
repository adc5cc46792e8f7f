"""Job secrets at rest: AES-256-GCM under a key outside the database, bound to the job they belong to."""

from __future__ import annotations

import secrets
from pathlib import Path

from openpaisdk.errors import StoreError
from paicluster.auth.key_files import load_key

_NONCE = 12


class Sealer:
    """Seals and opens the secrets of jobs."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def from_key_files(cls, keys: Path) -> Sealer:
        """With the key in the ``keys`` folder, made at the first use."""
        return cls(load_key(keys, "sealing"))

    def seal(self, data: bytes, uid: str) -> bytes:
        """Only :meth:`unseal` with the same ``uid`` opens it: secrets cannot be moved to another job."""
        # Most clusters see no secrets: the library is loaded for the first that does.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(_NONCE)
        return nonce + AESGCM(self._key).encrypt(nonce, data, uid.encode())

    def unseal(self, sealed: bytes, uid: str) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            return AESGCM(self._key).decrypt(sealed[:_NONCE], sealed[_NONCE:], uid.encode())
        except (InvalidTag, ValueError):
            raise StoreError(
                f"The secrets of {uid} cannot be opened: sealed with another key, or changed since.",
                hint="Put the cluster's keys folder back as it was when the job was submitted.",
            ) from None
