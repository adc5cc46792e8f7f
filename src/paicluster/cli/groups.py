"""`paicluster group`: who belongs together, and what that permits."""

from __future__ import annotations

import argparse
import re
from typing import Any

from openpaisdk.errors import NotFound, UsageError
from paicluster.cli.admin_api import AdminApi, path
from paicluster.cli.command_group import CommandGroup
from paicluster.cli.terminal import output_option, show
from paicluster.cli.users import must_be_clusters, must_be_users

_COLUMNS = {
    "GROUP": "groupname",
    "ADMIN": "admin",
    "VIRTUAL CLUSTERS": "virtualClusters",
    "STORAGES": "storageConfigs",
    "DESCRIPTION": "description",
}
_LISTS = {"vc": "virtualClusters", "storage": "storageConfigs"}

_NAME = re.compile(r"[A-Za-z0-9_]+")

family = CommandGroup(
    "group",
    "Groups of users. It does not matter whether the cluster's server runs.",
    "  paicluster group add vision --home ./cluster --vc lab --storage data\n"
    "  paicluster group join vision alice bob --home ./cluster\n"
    "  paicluster group grant vision --no-vc lab --home ./cluster\n"
    "  paicluster group members vision --home ./cluster -o json",
)


def _rights(parser: argparse.ArgumentParser, *, taking: bool) -> None:
    for name, what in (("vc", "virtual cluster"), ("storage", "storage")):
        options = dict.fromkeys((f"--{name}", *([f"--no-{name}"] if taking else [])))
        for option in options:
            verb = "no longer use" if option.startswith("--no-") else "may use"
            parser.add_argument(
                option,
                action="append",
                default=[],
                metavar=name.upper(),
                help=f"its members {verb} this {what}",
            )


@family.command("add", "make a group")
def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="GROUP", help="letters, digits and '_'")
    parser.set_defaults(check=_check_name)
    parser.add_argument("--description", default="", metavar="TEXT", help="what the group is for")
    parser.add_argument("--admin", action="store_true", help="its members may do everything")
    _rights(parser, taking=False)


def _check_name(arguments: argparse.Namespace) -> None:
    if not _NAME.fullmatch(arguments.name):
        raise UsageError(
            f"{arguments.name!r} cannot be the name of a group: it has letters, digits and '_' only."
        )


@family.handler("add")
def add(office: AdminApi, arguments: argparse.Namespace) -> None:
    _must_be_there(office, arguments)
    acls = {"admin": arguments.admin, **{key: getattr(arguments, name) for name, key in _LISTS.items()}}
    body = {"groupname": arguments.name, "extension": {"acls": acls}}
    if arguments.description:
        body["description"] = arguments.description
    office.request("POST", path("groups"), body)
    print(f"Made group {arguments.name}.")


@family.command("list", "show what groups there are")
def _list(parser: argparse.ArgumentParser) -> None:
    output_option(parser)


@family.handler("list")
def list_groups(office: AdminApi, arguments: argparse.Namespace) -> None:
    found: list[dict[str, Any]] = office.request("GET", path("groups"))
    show(
        found if arguments.output == "json" else [_flat(group) for group in found],
        _COLUMNS,
        arguments.output,
    )


def _must_be_there(office: AdminApi, arguments: argparse.Namespace) -> None:
    """What a group is to permit must be something that there is: it may be misspelt."""
    must_be_clusters(office, arguments.vc)
    known = (
        [one["name"] for one in office.request("GET", path("storage", "config"))] if arguments.storage else []
    )
    for name in arguments.storage:
        if name not in known:
            raise NotFound(
                f"There is no storage {name}; nothing was changed.", hint=f"There is {', '.join(known)}."
            )


def _flat(group: dict[str, Any]) -> dict[str, Any]:
    return {**group, **group.get("extension", {}).get("acls", {})}


@family.command("members", "show who is in a group")
def _members(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="GROUP")
    output_option(parser)


@family.handler("members")
def members(office: AdminApi, arguments: argparse.Namespace) -> None:
    office.request("GET", path("groups", arguments.name))
    found = office.request("GET", path("groups", arguments.name, "userlist"))
    show(found, {"USER": "username", "ADMIN": "clusterAdmin"}, arguments.output)


@family.command("join", "take users into a group")
def _join(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="GROUP")
    parser.add_argument("users", metavar="USER", nargs="+")


@family.handler("join")
def join(office: AdminApi, arguments: argparse.Namespace) -> None:
    must_be_users(office, arguments.users)
    for user in arguments.users:
        office.request("PUT", path("users", user, "group"), {"groupname": arguments.name})
        print(f"User {user} is in group {arguments.name}.")


@family.command("leave", "take users out of a group")
def _leave(parser: argparse.ArgumentParser) -> None:
    _join(parser)


@family.handler("leave")
def leave(office: AdminApi, arguments: argparse.Namespace) -> None:
    office.request("GET", path("groups", arguments.name))
    must_be_users(office, arguments.users)
    for user in arguments.users:
        office.request("DELETE", path("users", user, "group"), {"groupname": arguments.name})
        print(f"User {user} is no longer in group {arguments.name}.")


@family.command("grant", "change what being in a group permits")
def _grant(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="GROUP")
    admin = parser.add_mutually_exclusive_group()
    admin.add_argument("--admin", action="store_true", default=None, help="its members may do everything")
    admin.add_argument("--no-admin", action="store_false", dest="admin", help="not any more")
    _rights(parser, taking=True)


@family.handler("grant")
def grant(office: AdminApi, arguments: argparse.Namespace) -> None:
    changes = [getattr(arguments, f"{no}{name}") for name in _LISTS for no in ("", "no_")]
    if arguments.admin is None and not any(changes):
        raise UsageError(
            "Say what to change.", hint="--vc, --storage, --admin, or one of these with --no- before."
        )
    extension = office.request("GET", path("groups", arguments.name)).get("extension", {})
    _must_be_there(office, arguments)
    acls = dict(extension.get("acls", {}))
    for name, key in _LISTS.items():
        wanted = dict.fromkeys([*acls.get(key, []), *getattr(arguments, name)])
        acls[key] = [one for one in wanted if one not in getattr(arguments, f"no_{name}")]
    if arguments.admin is not None:
        acls["admin"] = arguments.admin
    office.request(
        "PUT", path("groups", arguments.name, "extension"), {"extension": {**extension, "acls": acls}}
    )
    show([_flat(office.request("GET", path("groups", arguments.name)))], _COLUMNS, "table")


@family.command("remove", "remove a group; its members stay users")
def _remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="GROUP")


@family.handler("remove")
def remove(office: AdminApi, arguments: argparse.Namespace) -> None:
    office.request("DELETE", path("groups", arguments.name))
    print(f"Removed group {arguments.name}.")
