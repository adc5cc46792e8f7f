"""Memory budget of request bodies: all that are in memory at one time, and those of one user."""

from __future__ import annotations

from collections.abc import MutableMapping

from paiprotocol.errors import Unavailable

# Keys of a request's scope: its reserved bytes, and whose they are.
RESERVED_KEY = "paicluster.body-bytes"
_OWNER_KEY = "paicluster.body-owner"

_RETRY_AFTER_S = 1.0


class BodyBudget:
    """Bytes of request bodies that may be in memory at one time.

    Without it a few hundred connections with a large body each fill the memory of the machine. One user gets
    half of the budget at most, so that the others can always send something.
    """

    __slots__ = ("_in_use", "_of_owner", "per_owner_bytes", "total_bytes")

    def __init__(self, total_bytes: int, largest_body: int) -> None:
        # One body of the largest size always fits.
        self.per_owner_bytes = max(total_bytes // 2, largest_body)
        self.total_bytes = max(total_bytes, self.per_owner_bytes)
        self._in_use = 0
        self._of_owner: dict[str, int] = {}

    @property
    def in_use(self) -> int:
        return self._in_use

    def reserve(self, scope: MutableMapping[str, object], owner: str, size: int) -> None:
        """Reserve bytes that have arrived, until `release`; raises Unavailable when there is no space."""
        of_owner = self._of_owner.get(owner, 0) + size
        if of_owner > self.per_owner_bytes or self._in_use + size > self.total_bytes:
            who = "this user" if of_owner > self.per_owner_bytes else "all users"
            raise Unavailable(
                f"The cluster is receiving too many large requests of {who} at one time.",
                hint="Try again in a moment, with fewer requests at a time.",
                retry_after_s=_RETRY_AFTER_S,
            )
        self._in_use += size
        self._of_owner[owner] = of_owner
        reserved = scope.get(RESERVED_KEY, 0)
        scope[RESERVED_KEY] = size + (reserved if isinstance(reserved, int) else 0)
        scope[_OWNER_KEY] = owner

    def release(self, scope: MutableMapping[str, object]) -> None:
        """Return what a request reserved. Call it when the request is answered."""
        size = scope.pop(RESERVED_KEY, 0)
        owner = scope.pop(_OWNER_KEY, "")
        if not isinstance(size, int) or not isinstance(owner, str):
            return
        self._in_use -= size
        reserved = self._of_owner.get(owner, 0) - size
        if reserved > 0:
            self._of_owner[owner] = reserved
        else:
            self._of_owner.pop(owner, None)
