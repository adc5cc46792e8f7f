"""Credentials of the server: keys for its tokens and secrets, and the first user of a new cluster."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from paicluster.auth import users as accounts
from paicluster.auth.passwords import NO_PASSWORD
from paicluster.auth.sealing import Sealer
from paicluster.auth.tokens import Tokens, TokensWithLocalAdmin, new_token_row
from paicluster.config.settings import Settings
from paicluster.remote_storages import storages
from paicluster.server.launch_settings import account_name
from paicluster.store import Store, users
from paiprotocol.errors import ConfigError

log = logging.getLogger("paicluster")

_EMBEDDED_TOKEN = "embedded"


@dataclass(frozen=True, slots=True)
class EmbeddedLogin:
    """User and token of the embedded cluster, for the handshake file; empty on other clusters."""

    user: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the server issues tokens and seals with. ``is_new``: it had no users before this start."""

    tokens: Tokens
    sealer: Sealer
    login: EmbeddedLogin
    is_new: bool


def open_credentials(settings: Settings, store: Store, notices: TextIO) -> Credentials:
    """Open the keys, and create the first user of a new cluster."""
    keys = settings.home / "keys"
    if store.read_sync(users.any_issued):
        _check_keys(keys)
    tokens = TokensWithLocalAdmin.open(store, keys, settings.authentication.session_s)
    sealer = Sealer.from_key_files(keys)
    is_new = not store.read_sync(users.count_users)
    storages.check_names(settings.storages, is_new=is_new)
    login = _embedded_login(store, tokens) if settings.embedded else EmbeddedLogin()
    if not settings.embedded:
        _ensure_admin(store, notices)
    return Credentials(tokens, sealer, login, is_new)


def _ensure_admin(store: Store, notices: TextIO) -> None:
    password = accounts.ensure_admin(store, os.environ.get("PAICLUSTER_ADMIN_PASSWORD"))
    if password is not None:
        message = f"Created user 'admin' with password {password} (shown only once)."
        print(message, file=notices, flush=True)


def _embedded_login(store: Store, tokens: Tokens) -> EmbeddedLogin:
    """The only user of an embedded cluster, created on first start, with a token for the handshake file."""
    user = re.sub(r"[^\w.-]", "_", account_name()) or "user"
    if store.read_sync(lambda conn: users.get_user(conn, user)) is None:
        # No password: the token is the only credential, and only this account can read it.
        store.write_sync(lambda conn: users.add_user(conn, user, NO_PASSWORD, created_ms=0, admin=True))
    rows = store.read_sync(lambda conn: users.list_tokens(conn, user, 0))
    row = next((token for token in rows if token.name == _EMBEDDED_TOKEN), None)
    if row is None:
        row = new_token_row(user, "application", name=_EMBEDDED_TOKEN)
        store.write_sync(lambda conn: users.add_token(conn, row))
    return EmbeddedLogin(user, tokens.render(row))


def _check_keys(keys: Path) -> None:
    """New keys in place of lost ones would invalidate tokens and secrets without an explanation."""
    if not keys.exists():
        raise ConfigError(
            f"The folder {keys} is missing, though the cluster was used before: its keys are lost.",
            hint="Restore it from a backup; or create an empty one to continue with new keys: then every "
            "token is invalid, and the secrets of jobs cannot be decrypted.",
        )
    effects = {"tokens": "every token is invalid", "sealing": "the secrets of jobs cannot be decrypted"}
    for name, effect in effects.items():
        if not (keys / name).exists():
            log.warning("The key %s is missing; creating a new one: %s.", keys / name, effect)
