"""`paicluster token`: tokens of logins and of applications; revoking them."""

from __future__ import annotations

import argparse
import time
from typing import Any

from paicluster.cli.admin_api import AdminApi, path
from paicluster.cli.command_group import CommandGroup
from paicluster.cli.terminal import output_option, print_rows
from paiprotocol.errors import NotFound

_COLUMNS = {
    "ID": "id",
    "USER": "username",
    "KIND": "kind",
    "NAME": "name",
    "CREATED": "created",
    "EXPIRES": "expires",
}

group = CommandGroup(
    "token",
    "Tokens of users and programs. The tokens themselves are never shown.",
    "  paicluster token list --home ./cluster\n"
    "  paicluster token list alice --home ./cluster -o json\n"
    "  paicluster token revoke ID --home ./cluster",
)


@group.command("list", "list valid tokens")
def _list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user", metavar="USER", nargs="?", help="tokens of this user (default: of all users)")
    output_option(parser)


@group.handler("list")
def list_tokens(api: AdminApi, arguments: argparse.Namespace) -> None:
    rows = _tokens(api, arguments.user)
    if arguments.output != "json":
        for row in rows:
            row["kind"] = "application" if row["application"] else "session"
            row["created"], row["expires"] = _time(row["createdTime"]), _time(row["expirationTime"])
    print_rows(rows, _COLUMNS, arguments.output)


def _tokens(api: AdminApi, user: str | None) -> list[dict[str, Any]]:
    if user is not None:
        api.request("GET", path("users", user))
        names = [user]
    else:
        names = [row["username"] for row in api.request("GET", path("users"))]
    tokens = []
    for name in names:
        # The API lists only the caller's own tokens.
        for token in api.request("GET", path("tokens") + "?details", as_user=name)["details"]:
            tokens.append({"username": name, **token})
    return tokens


def _time(ms: int | None) -> str:
    return "never" if ms is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(ms / 1000))


@group.command("revoke", "revoke tokens")
def _revoke(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", metavar="ID", nargs="+", help="ids from `paicluster token list`")


@group.handler("revoke")
def revoke(api: AdminApi, arguments: argparse.Namespace) -> None:
    known = {token["id"] for token in _tokens(api, None)}
    missing = [token_id for token_id in arguments.ids if token_id not in known]
    if missing:
        raise NotFound(
            f"There is no token {', '.join(missing)}; nothing was changed.",
            hint="`paicluster token list` shows the valid ones.",
        )
    for token_id in arguments.ids:
        api.request("DELETE", path("tokens", token_id))
        print(f"Revoked token {token_id}.")
