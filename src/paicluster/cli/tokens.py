"""`paicluster token`: who is logged in, and with what programs; taking it back."""

from __future__ import annotations

import argparse
import time
from typing import Any

from openpaisdk.errors import NotFound
from paicluster.cli.admin_api import AdminApi, path
from paicluster.cli.command_group import CommandGroup
from paicluster.cli.terminal import output_option, show

_COLUMNS = {"ID": "id", "USER": "username", "KIND": "kind", "NAME": "name", "MADE": "made", "UNTIL": "until"}

family = CommandGroup(
    "token",
    "Tokens by which people and programs are known; never the tokens themselves.",
    "  paicluster token list --home ./cluster\n"
    "  paicluster token list alice --home ./cluster -o json\n"
    "  paicluster token revoke ID --home ./cluster",
)


@family.command("list", "show the tokens that hold")
def _list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user", metavar="USER", nargs="?", help="of this user (default: everybody's)")
    output_option(parser)


@family.handler("list")
def list_tokens(office: AdminApi, arguments: argparse.Namespace) -> None:
    rows = _tokens(office, arguments.user)
    if arguments.output != "json":
        for row in rows:
            row["kind"] = "application" if row["application"] else "session"
            row["made"], row["until"] = _day(row["createdTime"]), _day(row["expirationTime"])
    show(rows, _COLUMNS, arguments.output)


def _tokens(office: AdminApi, user: str | None) -> list[dict[str, Any]]:
    if user is not None:
        office.request("GET", path("users", user))
        names = [user]
    else:
        names = [one["username"] for one in office.request("GET", path("users"))]
    found = []
    for name in names:
        # Everybody may ask only for his own.
        for token in office.request("GET", path("tokens") + "?details", of=name)["details"]:
            found.append({"username": name, **token})
    return found


def _day(ms: int | None) -> str:
    return "it is revoked" if ms is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(ms / 1000))


@family.command("revoke", "take tokens back, at once")
def _revoke(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", metavar="ID", nargs="+", help="as `paicluster token list` shows them")


@family.handler("revoke")
def revoke(office: AdminApi, arguments: argparse.Namespace) -> None:
    there = {token["id"] for token in _tokens(office, None)}
    missing = [one for one in arguments.ids if one not in there]
    if missing:
        raise NotFound(
            f"There is no token {', '.join(missing)}; nothing was changed.",
            hint="`paicluster token list` shows those that hold.",
        )
    for one in arguments.ids:
        office.request("DELETE", path("tokens", one))
        print(f"Revoked token {one}.")
