"""Who may read through version 1: whoever has a token, and everybody where the settings say so.

Clients of the first years send no token when they only read.
"""

from __future__ import annotations

from starlette.requests import Request

from paicluster.api.context import authenticate, context
from paicluster.auth.tokens import Identity
from paicluster.store.rows import UserGrants

ANONYMOUS = Identity("", False, False, None, "", UserGrants(False, (), frozenset(), ()))


async def authenticate_reader(request: Request) -> Identity:
    """Whoever asks; `NOBODY` for one without a token who may read all the same."""
    if context(request).anonymous_v1_reads and "authorization" not in request.headers:
        return ANONYMOUS
    return await authenticate(request)
