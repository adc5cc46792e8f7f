"""Hashes that prove that what arrived is what was sent. Fast ones: they guard against faults, not forgers."""

from __future__ import annotations

from openpaisdk.errors import InvalidParameters

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
"""By name and, in records, by place. Both give 16 bytes."""
SIZE = 16


def preferred() -> str:
    """xxh3 runs at the speed of memory; where its package is missing, the standard library's best does."""
    try:
        import xxhash  # noqa: F401
    except ImportError:
        return BLAKE2B
    return XXH3


def hasher(algorithm: str) -> Callable[[], Hash]:
    """What makes a new hash of that kind."""
    if algorithm == XXH3:
        import xxhash

        return xxhash.xxh3_128
    if algorithm == BLAKE2B:
        import hashlib

        return lambda: hashlib.blake2b(digest_size=SIZE)
    raise InvalidParameters(
        f"There is no hash called {algorithm!r} for transfers; there is {', '.join(ALGORITHMS)}."
    )


def of_bytes(data: bytes | memoryview, algorithm: str) -> bytes:
    if algorithm == XXH3:
        import xxhash

        return xxhash.xxh3_128_digest(data)
    made = hasher(algorithm)()
    made.update(data)
    return made.digest()


def combine(digests: list[bytes], algorithm: str) -> bytes:
    """The hash of a file that travelled in parts: over the hashes of the parts, in order."""
    return of_bytes(b"".join(digests), algorithm)
