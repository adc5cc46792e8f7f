"""Content hashes of transfers. Fast, not cryptographic: they detect faults, not forgery."""

from __future__ import annotations

from paiprotocol.errors import InvalidParameters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Hash(Protocol):
        def update(self, data: bytes | bytearray | memoryview, /) -> object: ...
        def digest(self) -> bytes: ...


XXH3 = "xxh3-128"
BLAKE2B = "blake2b-128"
ALGORITHMS = (XXH3, BLAKE2B)
"""Named in requests; pack records use the index in this tuple. Both digests have 16 bytes."""
DIGEST_BYTES = 16


def preferred_algorithm() -> str:
    """The fastest hash that is installed: xxh3, else one of the standard library."""
    try:
        import xxhash  # noqa: F401
    except ImportError:
        return BLAKE2B
    return XXH3


def hasher(algorithm: str) -> Callable[[], Hash]:
    """Factory of hash objects for an algorithm."""
    if algorithm == XXH3:
        import xxhash

        return xxhash.xxh3_128
    if algorithm == BLAKE2B:
        import hashlib

        return lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)
    raise InvalidParameters(f"Unknown transfer hash {algorithm!r}; known are {', '.join(ALGORITHMS)}.")


def hash_bytes(data: bytes | memoryview, algorithm: str) -> bytes:
    if algorithm == XXH3:
        import xxhash

        return xxhash.xxh3_128_digest(data)
    digest = hasher(algorithm)()
    digest.update(data)
    return digest.digest()


def combine(digests: list[bytes], algorithm: str) -> bytes:
    """Hash of a file transferred in parts: the hash of the parts' digests, in order."""
    return hash_bytes(b"".join(digests), algorithm)
