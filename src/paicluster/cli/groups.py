"""`paicluster group`: groups of users and their rights."""

from __future__ import annotations

import argparse
import re
from typing import Any

from paicluster.cli.admin_api import AdminApi, path
from paicluster.cli.command_group import CommandGroup
from paicluster.cli.quota_commands import add_quota_commands
from paicluster.cli.terminal import output_option, print_rows
from paicluster.cli.users import require_users, require_virtual_clusters
from paiprotocol.errors import NotFound, UsageError

_COLUMNS = {
    "GROUP": "groupname",
    "ADMIN": "admin",
    "VIRTUAL CLUSTERS": "virtualClusters",
    "STORAGES": "storageConfigs",
    "DESCRIPTION": "description",
}
_LISTS = {"vc": "virtualClusters", "storage": "storageConfigs"}

_NAME = re.compile(r"[A-Za-z0-9_]+")

group = CommandGroup(
    "group",
    "Groups of users. Works whether or not the cluster's server runs.",
    "  paicluster group add vision --home ./cluster --vc lab --storage data\n"
    "  paicluster group join vision alice bob --home ./cluster\n"
    "  paicluster group grant vision --no-vc lab --home ./cluster\n"
    "  paicluster group set-quota vision --gpu 8 --storage 2t --home ./cluster\n"
    "  paicluster group members vision --home ./cluster -o json",
)


def _right_options(parser: argparse.ArgumentParser, *, revocable: bool) -> None:
    for name, kind in (("vc", "virtual cluster"), ("storage", "storage")):
        options = dict.fromkeys((f"--{name}", *([f"--no-{name}"] if revocable else [])))
        for option in options:
            verb = "revoke" if option.startswith("--no-") else "grant"
            parser.add_argument(
                option,
                action="append",
                default=[],
                metavar=name.upper(),
                help=f"{verb} its members access to this {kind}",
            )


@group.command("add", "create a group")
def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="GROUP", help="letters, digits and '_'")
    parser.set_defaults(check=_check_name)
    parser.add_argument("--description", default="", metavar="TEXT", help="what the group is for")
    parser.add_argument("--admin", action="store_true", help="grant its members administrator rights")
    _right_options(parser, revocable=False)


def _check_name(arguments: argparse.Namespace) -> None:
    if not _NAME.fullmatch(arguments.name):
        raise UsageError(f"{arguments.name!r} is not a valid group name: use letters, digits and '_' only.")


@group.handler("add")
def add(api: AdminApi, arguments: argparse.Namespace) -> None:
    _require_vcs_and_storages(api, arguments)
    acls = {"admin": arguments.admin, **{key: getattr(arguments, name) for name, key in _LISTS.items()}}
    body = {"groupname": arguments.name, "extension": {"acls": acls}}
    if arguments.description:
        body["description"] = arguments.description
    api.request("POST", path("groups"), body)
    print(f"Created group {arguments.name}.")


@group.command("list", "list groups")
def _list(parser: argparse.ArgumentParser) -> None:
    output_option(parser)


@group.handler("list")
def list_groups(api: AdminApi, arguments: argparse.Namespace) -> None:
    groups: list[dict[str, Any]] = api.request("GET", path("groups"))
    print_rows(
        groups if arguments.output == "json" else [_flat(entry) for entry in groups],
        _COLUMNS,
        arguments.output,
    )


def _require_vcs_and_storages(api: AdminApi, arguments: argparse.Namespace) -> None:
    """Raise NotFound for a misspelt virtual cluster or storage."""
    require_virtual_clusters(api, arguments.vc)
    known = (
        [storage["name"] for storage in api.request("GET", path("storage", "config"))]
        if arguments.storage
        else []
    )
    for name in arguments.storage:
        if name not in known:
            raise NotFound(
                f"There is no storage {name}; nothing was changed.", hint=f"Storages: {', '.join(known)}."
            )


def _flat(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, **entry.get("extension", {}).get("acls", {})}


@group.command("members", "list the members of a group")
def _members(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="GROUP")
    output_option(parser)


@group.handler("members")
def members(api: AdminApi, arguments: argparse.Namespace) -> None:
    api.request("GET", path("groups", arguments.name))
    listed = api.request("GET", path("groups", arguments.name, "userlist"))
    print_rows(listed, {"USER": "username", "ADMIN": "clusterAdmin"}, arguments.output)


@group.command("join", "add users to a group")
def _join(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="GROUP")
    parser.add_argument("users", metavar="USER", nargs="+")


@group.handler("join")
def join(api: AdminApi, arguments: argparse.Namespace) -> None:
    require_users(api, arguments.users)
    for user in arguments.users:
        api.request("PUT", path("users", user, "group"), {"groupname": arguments.name})
        print(f"User {user} is in group {arguments.name}.")


@group.command("leave", "remove users from a group")
def _leave(parser: argparse.ArgumentParser) -> None:
    _join(parser)


@group.handler("leave")
def leave(api: AdminApi, arguments: argparse.Namespace) -> None:
    api.request("GET", path("groups", arguments.name))
    require_users(api, arguments.users)
    for user in arguments.users:
        api.request("DELETE", path("users", user, "group"), {"groupname": arguments.name})
        print(f"User {user} is no longer in group {arguments.name}.")


add_quota_commands(group, "group")


@group.command("grant", "change a group's rights")
def _grant(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="GROUP")
    admin = parser.add_mutually_exclusive_group()
    admin.add_argument(
        "--admin", action="store_true", default=None, help="grant its members administrator rights"
    )
    admin.add_argument("--no-admin", action="store_false", dest="admin", help="revoke administrator rights")
    _right_options(parser, revocable=True)


@group.handler("grant")
def grant(api: AdminApi, arguments: argparse.Namespace) -> None:
    changes = [getattr(arguments, f"{no}{name}") for name in _LISTS for no in ("", "no_")]
    if arguments.admin is None and not any(changes):
        raise UsageError(
            "There is nothing to change.", hint="Use --vc, --storage or --admin, or their --no- forms."
        )
    extension = api.request("GET", path("groups", arguments.name)).get("extension", {})
    _require_vcs_and_storages(api, arguments)
    acls = dict(extension.get("acls", {}))
    for name, key in _LISTS.items():
        granted = dict.fromkeys([*acls.get(key, []), *getattr(arguments, name)])
        acls[key] = [right for right in granted if right not in getattr(arguments, f"no_{name}")]
    if arguments.admin is not None:
        acls["admin"] = arguments.admin
    api.request(
        "PUT", path("groups", arguments.name, "extension"), {"extension": {**extension, "acls": acls}}
    )
    print_rows([_flat(api.request("GET", path("groups", arguments.name)))], _COLUMNS, "table")


@group.command("remove", "remove a group; its members remain users")
def _remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="GROUP")


@group.handler("remove")
def remove(api: AdminApi, arguments: argparse.Namespace) -> None:
    api.request("DELETE", path("groups", arguments.name))
    print(f"Removed group {arguments.name}.")
