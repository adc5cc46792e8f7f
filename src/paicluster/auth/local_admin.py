"""Short-lived administrator tokens issued by a process that can read the key file.

The administrator's commands authenticate to a running server with them. Such a token has no database row and
is valid for two minutes. Imports no database code: a command that talks to a running server loads none.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path

from paicluster.auth import jwt
from paicluster.auth.key_files import read_key

LIFETIME_S = 120
# The token claim, and the prefix of the token's id.
CLAIM = "localAdmin"


def issue_local_admin_token(keys: Path, username: str) -> str:
    """A token that acts for ``username`` with administrator rights, signed with the key in ``keys``."""
    now = int(time.time())
    payload = {
        "username": username,
        "application": False,
        "jobSpecific": False,
        CLAIM: True,
        "jti": f"{CLAIM}-{secrets.token_urlsafe(12)}",
        "iat": now,
        "exp": now + LIFETIME_S,
    }
    return jwt.encode(payload, read_key(keys, "tokens"))


def is_local_admin(payload: Mapping[str, object]) -> bool:
    return payload.get(CLAIM) is True


def valid_until(payload: Mapping[str, object]) -> int | None:
    """The expiry of a local administrator's token; None if it is not valid now.

    An expiry further ahead than the lifetime is rejected, so that no token can be made in advance.
    """
    expires, now = payload.get("exp"), time.time()
    return expires if isinstance(expires, int) and now < expires <= now + LIFETIME_S + 1 else None
