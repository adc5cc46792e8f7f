"""Authority: which kinds of tokens a route accepts, and from whom.

Every route declares one, with `@route`; `authentication.authenticate` checks it.
"""

from __future__ import annotations

import msgspec

from paicluster.auth.tokens import Identity, TokenKind
from paiprotocol.errors import Forbidden

# OpenPAI's messages, which clients compare.
NOT_ADMIN = "Non-admin is not allow to do this operation."
_REFUSED = "{} are not allowed to do this operation."
_REFUSALS = {
    TokenKind.LOGIN: ("Sessions", ""),
    TokenKind.APPLICATION: ("Applications", "Log in: an application's token is not accepted here."),
    TokenKind.JOB: ("Jobs", "A job's token is for storage, logs and jobs of its user only."),
    TokenKind.DELEGATION: ("Delegation tokens", "They are for WebHDFS and transfers only: log in."),
}


class Authority(msgspec.Struct, frozen=True):
    """What a route accepts."""

    kinds: frozenset[TokenKind] = frozenset()
    # Only from administrators. A job's token never has their rights.
    admin: bool = False
    # Responds without a token, too.
    is_public: bool = False
    # Accepts a ticket (a short-lived credential for one resource) instead of a token.
    takes_ticket: bool = False
    # Responds without a token where the settings have `anonymous-v1-reads`.
    allows_anonymous: bool = False

    def check(self, identity: Identity) -> None:
        """Raise Forbidden unless the route accepts the token of this caller."""
        if identity.kind not in self.kinds:
            what, hint = _REFUSALS[identity.kind]
            raise Forbidden(_REFUSED.format(what), hint=hint)
        if self.admin and not identity.admin:
            raise Forbidden(NOT_ADMIN)


_USERS = frozenset({TokenKind.LOGIN})
_PROGRAMS = _USERS | {TokenKind.APPLICATION}
_JOBS = _PROGRAMS | {TokenKind.JOB}

# Responds to everybody: version, health, login with a password.
PUBLIC = Authority(is_public=True)
# Reports of tasks, and links that browsers and other tools fetch without a token.
TICKET = Authority(takes_ticket=True)
# Files.
FILES = Authority(frozenset(TokenKind))
# Jobs, logs, sources, and what a client reads in order to submit a job. A job's token reaches its user's.
JOBS = Authority(_JOBS)
JOBS_V1 = Authority(_JOBS, allows_anonymous=True)
# The same for what a browser or curl reads by an address alone: logs, files of remote storages.
READABLE_BY_TICKET = Authority(_JOBS, takes_ticket=True)
# Cluster, users and groups as every user sees them; deletion of own jobs.
CLUSTER = Authority(_PROGRAMS)
# The own account: password, profile, tokens. No program acts for the user here.
ACCOUNT = Authority(_USERS)
ADMIN_READS = Authority(_PROGRAMS, admin=True)
ADMINISTRATION = Authority(_USERS, admin=True)
