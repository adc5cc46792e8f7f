"""The tokens of a cluster with a home: those of its people and jobs, and the word of whoever has its keys."""

from __future__ import annotations

import time
from dataclasses import replace

from sqlalchemy import Connection

from openpaisdk.errors import Unauthorized
from paicluster.auth.keyholder import LIFETIME_S, MARK
from paicluster.auth.tokens import INVALID, Identity, Tokens
from paicluster.store import groups


class TokensWithLocalAdmin(Tokens):
    """Tokens of a cluster that also takes the word of whoever holds its keys."""

    async def _look_up(self, token: str) -> tuple[Identity, float]:
        said = self.payload(token)
        if said is None or said.get(MARK) is not True:
            return await super()._look_up(token)
        expires = said.get("exp")
        now = time.time()
        # Not further ahead than they are made for, so that none can be put by for later.
        if not isinstance(expires, int) or not now < expires <= now + LIFETIME_S + 1:
            raise Unauthorized(INVALID)
        username = str(said.get("username"))

        def access(conn: Connection) -> Identity:
            found = replace(groups.access_of(conn, username), admin=True)
            return Identity(username, True, False, None, str(said.get("jti")), found)

        return await self._store.read(access), float(expires)
