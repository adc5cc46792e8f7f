"""What a token says of itself. Only the cluster can say whether it is good; when it ends, it says itself."""

from __future__ import annotations

import json
from binascii import Error, a2b_base64


def token_expiry(token: str) -> float | None:
    """When a token ends, in seconds since 1970; None for one that never does or cannot be read."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    middle = parts[1].replace("-", "+").replace("_", "/")
    try:
        claims = json.loads(a2b_base64(middle + "=" * (-len(middle) % 4)))
        end = claims.get("exp")
    except (Error, ValueError, AttributeError):
        return None
    return float(end) if isinstance(end, int | float) and not isinstance(end, bool) else None
