"""`paicluster user`: who may use the cluster."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any
from urllib.parse import quote

from openpaisdk.errors import ConfigError, Conflict, NotFound, UsageError
from paicluster.cli.admin_api import AdminApi, path
from paicluster.cli.command_group import CommandGroup
from paicluster.cli.terminal import output_option, show
from paicluster.server import task_accounts

_COLUMNS = {
    "USER": "username",
    "ADMIN": "admin",
    "GROUPS": "grouplist",
    "VIRTUAL CLUSTERS": "virtualCluster",
    "EMAIL": "email",
}

_NAME = re.compile(r"[\w.-]+", re.ASCII)
_UNFINISHED = "WAITING,RUNNING,STOPPING"

family = CommandGroup(
    "user",
    "Users of a cluster. It does not matter whether its server runs.",
    "  paicluster user add alice --home ./cluster --vc lab\n"
    '  echo "$PASSWORD" | paicluster user passwd alice --home ./cluster\n'
    "  paicluster user grant alice --admin --home ./cluster\n"
    "  paicluster user list --home ./cluster -o json",
)


@family.command("add", "make a user; the password is asked for, or read from the standard input")
def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER", help="letters, digits, '.', '-' and '_'")
    parser.set_defaults(wants_password=True, check=_check_name)
    parser.add_argument("--email", default="", metavar="ADDRESS", help="where to write to the user")
    parser.add_argument("--admin", action="store_true", help="who may do everything")
    parser.add_argument(
        "--vc", action="append", default=[], metavar="VC", help="may use this virtual cluster"
    )


def _check_name(arguments: argparse.Namespace) -> None:
    if not _NAME.fullmatch(arguments.name):
        raise UsageError(
            f"{arguments.name!r} cannot be the name of a user: it has letters, digits, '.', '-' and '_' only."
        )


@family.handler("add")
def add(office: AdminApi, arguments: argparse.Namespace) -> None:
    if office.owner:
        raise ConfigError(
            f"This cluster is the one that `pai` runs for {office.owner} alone.",
            hint="`paicluster init` and `paicluster serve` run one for several people.",
        )
    must_be_clusters(office, arguments.vc)
    body = {
        "username": arguments.name,
        "password": arguments.password,
        "admin": arguments.admin,
        "virtualCluster": arguments.vc,
    }
    if arguments.email:
        body["email"] = arguments.email
    office.request("POST", path("users"), body)
    print(f"Made user {arguments.name}.")
    everybody = len(office.request("GET", path("users")))
    if hindrance := task_accounts.account_problem(office.settings, arguments.name, everybody):
        print(f"Warning: {hindrance}", file=sys.stderr)


@family.command("list", "show who there is")
def _list(parser: argparse.ArgumentParser) -> None:
    output_option(parser)


@family.handler("list")
def list_users(office: AdminApi, arguments: argparse.Namespace) -> None:
    found: list[dict[str, Any]] = office.request("GET", path("users"))
    rows = [{key: value for key, value in user.items() if key != "extension"} for user in found]
    show(rows, _COLUMNS, arguments.output)


@family.command("passwd", "give a user a new password, which ends his sessions")
def _passwd(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER")
    parser.set_defaults(wants_password=True)


@family.handler("passwd")
def passwd(office: AdminApi, arguments: argparse.Namespace) -> None:
    must_be_users(office, [arguments.name])
    data = {"username": arguments.name, "password": arguments.password}
    office.request("PUT", path("users"), {"patch": True, "data": data})
    print(f"User {arguments.name} has a new password.")


@family.command("remove", "remove a user; the jobs he ran, and his files, stay")
def _remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER")
    parser.add_argument("--stop-jobs", action="store_true", help="stop those of his jobs that are not over")


@family.handler("remove")
def remove(office: AdminApi, arguments: argparse.Namespace) -> None:
    name = arguments.name
    must_be_users(office, [name])
    unfinished = "&".join(
        (f"username={quote(name)}", f"state={_UNFINISHED}", "limit=0", "withTotalCount=true")
    )
    count = office.request("GET", f"{path('jobs')}?{unfinished}")["totalCount"]
    many = f"{count} job{'s' if count > 1 else ''}"
    if count and not arguments.stop_jobs:
        raise Conflict(
            f"User {name} has {many} that {'are' if count > 1 else 'is'} not over; nothing was changed.",
            hint="With --stop-jobs they are stopped and he is removed.",
        )
    office.request("DELETE", path("users", name))
    print(f"Removed user {name}." + (f" Stopping {many}." if count else ""))


@family.command("grant", "change what a user may do")
def _grant(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER")
    admin = parser.add_mutually_exclusive_group()
    admin.add_argument("--admin", action="store_true", default=None, help="make him an administrator")
    admin.add_argument("--no-admin", action="store_false", dest="admin", help="take that from him")
    for option, verb in (("--vc", "let him use"), ("--no-vc", "no longer let him use")):
        parser.add_argument(
            option, action="append", default=[], metavar="VC", help=f"{verb} this virtual cluster"
        )
    parser.add_argument("--group", action="append", default=[], metavar="GROUP", help="take him into it")
    parser.add_argument("--no-group", action="append", default=[], metavar="GROUP", help="and out of it")


@family.handler("grant")
def grant(office: AdminApi, arguments: argparse.Namespace) -> None:
    name = arguments.name
    given = (arguments.vc, arguments.no_vc, arguments.group, arguments.no_group)
    if arguments.admin is None and not any(given):
        raise UsageError(
            "Say what to change.", hint="--admin, --vc, --group, or one of these with --no- before."
        )
    must_be_users(office, [name])
    must_be_clusters(office, arguments.vc)
    # Who may use a virtual cluster is in the group of its name.
    for group in (*arguments.vc, *arguments.group):
        office.request("PUT", path("users", name, "group"), {"groupname": group})
    for group in (*arguments.no_vc, *arguments.no_group):
        office.request("DELETE", path("users", name, "group"), {"groupname": group})
    if arguments.admin is not None:
        office.request("PUT", path("users", name, "admin"), {"admin": arguments.admin})
    now = office.request("GET", path("users", name))
    show([now], _COLUMNS, "table")


def must_be_clusters(office: AdminApi, names: list[str]) -> None:
    """There are virtual clusters of these names, or nothing is done."""
    there = office.request("GET", path("virtual-clusters")) if names else ()
    for name in names:
        if name not in there:
            raise NotFound(
                f"There is no virtual cluster {name}; nothing was changed.",
                hint=f"There is {', '.join(there)}. `paicluster vc add` makes another.",
            )


def must_be_users(office: AdminApi, names: list[str]) -> None:
    """There are users of these names, or nothing is done."""
    for name in names:
        office.request("GET", path("users", name))
