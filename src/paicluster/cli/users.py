"""`paicluster user`: the users of a cluster."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from paicluster.cli.admin_api import AdminApi, path
from paicluster.cli.command_group import CommandGroup
from paicluster.cli.quota_commands import add_quota_commands
from paicluster.cli.terminal import output_option, print_rows
from paicluster.server import task_accounts
from paiprotocol.errors import ConfigError, Conflict, NotFound, UsageError

_COLUMNS = {
    "USER": "username",
    "ADMIN": "admin",
    "DISABLED": "disabled",
    "GROUPS": "grouplist",
    "VIRTUAL CLUSTERS": "virtualCluster",
    "EMAIL": "email",
}

_NAME = re.compile(r"[\w.-]+", re.ASCII)
_UNFINISHED = "WAITING,RUNNING,STOPPING"

group = CommandGroup(
    "user",
    "Users of a cluster. Works whether or not its server runs.",
    "  paicluster user add alice --home ./cluster --vc lab\n"
    '  echo "$PASSWORD" | paicluster user passwd alice --home ./cluster\n'
    "  paicluster user grant alice --admin --home ./cluster\n"
    "  paicluster user disable bob --home ./cluster\n"
    "  paicluster user certificate alice --to certificates --home ./cluster\n"
    "  paicluster user set-quota alice --tasks 20 --gpu 4 --storage 500g --home ./cluster\n"
    "  paicluster user list --home ./cluster -o json",
)


@group.command("add", "create a user; the password is prompted for, or read from standard input")
def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER", help="letters, digits, '.', '-' and '_'")
    parser.set_defaults(wants_password=True, check=_check_name)
    parser.add_argument("--email", default="", metavar="ADDRESS", help="e-mail address of the user")
    parser.add_argument("--admin", action="store_true", help="grant administrator rights")
    parser.add_argument(
        "--vc", action="append", default=[], metavar="VC", help="grant access to this virtual cluster"
    )


def _check_name(arguments: argparse.Namespace) -> None:
    if not _NAME.fullmatch(arguments.name):
        raise UsageError(
            f"{arguments.name!r} is not a valid user name: use letters, digits, '.', '-' and '_' only."
        )


@group.handler("add")
def add(api: AdminApi, arguments: argparse.Namespace) -> None:
    if api.owner:
        raise ConfigError(
            f"This is the embedded cluster that `pai` runs for {api.owner}: it has one user.",
            hint="`paicluster init` and `paicluster serve` run a cluster for several users.",
        )
    require_virtual_clusters(api, arguments.vc)
    body = {
        "username": arguments.name,
        "password": arguments.password,
        "admin": arguments.admin,
        "virtualCluster": arguments.vc,
    }
    if arguments.email:
        body["email"] = arguments.email
    api.request("POST", path("users"), body)
    print(f"Created user {arguments.name}.")
    count = len(api.request("GET", path("users")))
    # A running server may have been started with the option.
    is_shared = api.request("GET", path("settings"))["settings"]["allow-shared-account"]
    settings = replace(api.settings, allow_shared_account=is_shared)
    if problem := task_accounts.account_problem(settings, arguments.name, count):
        print(f"Warning: {problem}", file=sys.stderr)


@group.command("list", "list users")
def _list(parser: argparse.ArgumentParser) -> None:
    output_option(parser)


@group.handler("list")
def list_users(api: AdminApi, arguments: argparse.Namespace) -> None:
    users: list[dict[str, Any]] = api.request("GET", path("users"))
    rows = [{key: value for key, value in user.items() if key != "extension"} for user in users]
    print_rows(rows, _COLUMNS, arguments.output)


@group.command("passwd", "set a user's password; ends the user's sessions")
def _passwd(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER")
    parser.set_defaults(wants_password=True)


@group.handler("passwd")
def passwd(api: AdminApi, arguments: argparse.Namespace) -> None:
    require_users(api, [arguments.name])
    data = {"username": arguments.name, "password": arguments.password}
    api.request("PUT", path("users"), {"patch": True, "data": data})
    print(f"User {arguments.name} has a new password.")


_DISABLE = "disable a user: no login, and tokens are refused; jobs go on, new ones are not accepted"


@group.command("disable", _DISABLE)
def _disable(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER")


@group.handler("disable")
def disable(api: AdminApi, arguments: argparse.Namespace) -> None:
    count = _set_disabled(api, arguments.name, True)
    going_on = f" {_jobs(count)} {'go' if count > 1 else 'goes'} on." if count else ""
    print(f"Disabled user {arguments.name}.{going_on}")


@group.command("enable", "enable a user who was disabled; tokens that have not expired are valid again")
def _enable(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER")


@group.handler("enable")
def enable(api: AdminApi, arguments: argparse.Namespace) -> None:
    _set_disabled(api, arguments.name, False)
    print(f"Enabled user {arguments.name}.")


def _set_disabled(api: AdminApi, name: str, is_disabled: bool) -> int:
    changed = api.request("PUT", path("users", name, "disabled"), {"disabled": is_disabled})
    return int(changed["unfinishedJobs"])


def _jobs(count: int) -> str:
    return f"{count} job{'s' if count > 1 else ''}"


@group.command("remove", "remove a user; the user's finished jobs and files are kept")
def _remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER")
    parser.add_argument("--stop-jobs", action="store_true", help="stop the user's unfinished jobs")


@group.handler("remove")
def remove(api: AdminApi, arguments: argparse.Namespace) -> None:
    name = arguments.name
    require_users(api, [name])
    unfinished = "&".join(
        (f"username={quote(name)}", f"state={_UNFINISHED}", "limit=0", "withTotalCount=true")
    )
    count = api.request("GET", f"{path('jobs')}?{unfinished}")["totalCount"]
    jobs = _jobs(count)
    if count and not arguments.stop_jobs:
        raise Conflict(
            f"User {name} has {jobs} unfinished; nothing was changed.",
            hint="--stop-jobs stops them and removes the user.",
        )
    api.request("DELETE", path("users", name))
    print(f"Removed user {name}." + (f" Stopping {jobs}." if count else ""))


@group.command("certificate", "issue a certificate with which TLS clients log in, or revoke all of a user")
def _certificate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER")
    parser.add_argument(
        "--to", default=".", metavar="FOLDER", help="where USER.pem and USER-key.pem are written (default: .)"
    )
    parser.add_argument("--revoke", action="store_true", help="revoke all certificates of the user")


@group.handler("certificate")
def certificate(api: AdminApi, arguments: argparse.Namespace) -> None:
    name = arguments.name
    where = path("users", name, "certificates")
    if arguments.revoke:
        print(api.request("DELETE", where)["message"])
        return
    folder = Path(arguments.to)
    files = {"certificate": folder / f"{name}.pem", "key": folder / f"{name}-key.pem"}
    for file in files.values():
        if file.exists():
            raise Conflict(f"The file {file} exists; nothing was changed.", hint="Move it away first.")
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}.")
    issued = api.request("POST", where)
    for key, file in files.items():
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(issued[key])
    expires = time.strftime("%Y-%m-%d", time.localtime(issued["expires"] / 1000))
    print(f"Wrote {files['certificate']} and {files['key']}, valid until {expires}.")


add_quota_commands(group, "user")


@group.command("grant", "change a user's rights")
def _grant(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER")
    admin = parser.add_mutually_exclusive_group()
    admin.add_argument("--admin", action="store_true", default=None, help="grant administrator rights")
    admin.add_argument("--no-admin", action="store_false", dest="admin", help="revoke administrator rights")
    for option, verb in (("--vc", "grant access to"), ("--no-vc", "revoke access to")):
        parser.add_argument(
            option, action="append", default=[], metavar="VC", help=f"{verb} this virtual cluster"
        )
    for option, verb in (("--group", "add the user to"), ("--no-group", "remove the user from")):
        parser.add_argument(option, action="append", default=[], metavar="GROUP", help=f"{verb} this group")


@group.handler("grant")
def grant(api: AdminApi, arguments: argparse.Namespace) -> None:
    name = arguments.name
    changes = (arguments.vc, arguments.no_vc, arguments.group, arguments.no_group)
    if arguments.admin is None and not any(changes):
        raise UsageError(
            "There is nothing to change.", hint="Use --admin, --vc or --group, or their --no- forms."
        )
    require_users(api, [name])
    require_virtual_clusters(api, arguments.vc)
    # Access to a virtual cluster is membership in the group of the same name.
    for groupname in (*arguments.vc, *arguments.group):
        api.request("PUT", path("users", name, "group"), {"groupname": groupname})
    for groupname in (*arguments.no_vc, *arguments.no_group):
        api.request("DELETE", path("users", name, "group"), {"groupname": groupname})
    if arguments.admin is not None:
        api.request("PUT", path("users", name, "admin"), {"admin": arguments.admin})
    print_rows([api.request("GET", path("users", name))], _COLUMNS, "table")


def require_virtual_clusters(api: AdminApi, names: list[str]) -> None:
    """Raise NotFound if one of these virtual clusters does not exist."""
    known = api.request("GET", path("virtual-clusters")) if names else ()
    for name in names:
        if name not in known:
            raise NotFound(
                f"There is no virtual cluster {name}; nothing was changed.",
                hint=f"Virtual clusters: {', '.join(known)}. `paicluster vc add` creates one.",
            )


def require_users(api: AdminApi, names: list[str]) -> None:
    """Raise NotFound if one of these users does not exist."""
    for name in names:
        api.request("GET", path("users", name))
