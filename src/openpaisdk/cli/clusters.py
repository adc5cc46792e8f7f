"""``pai add-cluster``, ``list-clusters`` and the like: the clusters a person knows."""

from __future__ import annotations

import os
import sys

from openpaisdk.cli.parser import Parser, command_parser, on_terminal
from openpaisdk.config.clusters import EMBEDDED_ALIAS, ClusterBook, ClusterEntry
from openpaisdk.config.defaults import Change, change_defaults
from openpaisdk.errors import NotFound, PaiError, Unauthorized, UsageError
from openpaisdk.output import say, show, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from openpaisdk.client import Cluster


def add_cluster(argv: list[str]) -> int:
    """``pai add-cluster -a ALIAS --pai-uri URI --user USER [--password P | --token T]``"""
    parser = Parser(
        "add-cluster",
        "pai add-cluster -a team --pai-uri https://pai.example.org --user alice\n"
        "pai add-cluster -a team --pai-uri https://pai.example.org --user alice --token eyJhbGciOi...",
        "The cluster is asked at once. A password is exchanged for a token and never stored; without\n"
        "one (and without --token) you are asked for it. An alias you already have is replaced.",
    )
    parser.add_argument("-a", "--cluster-alias", required=True, metavar="ALIAS", help="what you will call it")
    parser.add_argument("--pai-uri", required=True, metavar="URI", help="its address, as in a browser")
    parser.add_argument("--user", required=True, metavar="USER", help="your name there")
    parser.add_argument("--password", default="", help="your password there")
    parser.add_argument(
        "--token", "--authen-token", default="", help="a token of yours, instead of a password"
    )
    parser.add_argument("--insecure", action="store_true", help="do not check its certificate")
    parser.add_argument("--ca", default="", metavar="FILE", help="certificates to trust for it")
    args = parser.parse(argv)
    alias = args.cluster_alias
    if not alias or any(c in alias for c in "/~ \t\n") or alias == EMBEDDED_ALIAS:
        why = (
            "that name is kept for the cluster on this machine"
            if alias == EMBEDDED_ALIAS
            else "choose a plain word"
        )
        raise UsageError(f"A cluster cannot be called {alias!r}: {why}.")
    if args.password and args.token:
        raise UsageError("Give a password or a token, not both.")
    book = ClusterBook.load()
    cluster, raw = _reached(args)
    info = raw["info"]
    if not args.token and isinstance(info, dict) and info.get("authnMethod") == "OIDC":
        raise UsageError(
            f"The cluster at {raw['pai_uri']} knows no passwords: it logs in through another service.",
            hint="Make an application token on your profile page there, and give it with --token.",
        )
    token = args.token or cluster.login(args.user, args.password or _asked_password(args))
    cluster.transport.endpoint.token = token
    raw["token"] = token
    raw["virtual_clusters"] = _virtual_clusters(cluster)
    known = book.find(alias)
    usable = [entry.alias for entry in book.entries if not entry.is_storage]
    in_use = usable[0] if len(usable) == 1 and not book.selected and usable != [alias] else ""
    book.put(ClusterEntry({**(known.raw if known else {}), **raw}))
    say(f"{'Replaced' if known else 'Added'} {alias} ({raw['pai_uri']}, version {_version(raw)}).")
    if in_use:
        # It was used because it was the only one; a second one must not break every command.
        change_defaults([Change("cluster-alias", "=", in_use)], [], is_global=True)
        say(f"Commands go on using {in_use}. Use {alias} with -a {alias}, or for every command:")
        say(f"  pai select-cluster -g {alias}")
    elif len(book.entries) > 1 and not book.selected:
        say(f"Use it with -a {alias}, or for every command: pai select-cluster -g {alias}")
    return 0


def _reached(args: argparse.Namespace) -> tuple[Cluster, dict[str, object]]:
    """Ask the address who it is, behind OpenPAI's front door or without it."""
    from openpaisdk.client import Cluster, Endpoint
    from openpaisdk.client.transport import REST_SERVER

    ca = os.path.abspath(args.ca) if args.ca else ""
    refused: PaiError | None = None
    for rest_path in (REST_SERVER, ""):
        endpoint = Endpoint(
            args.pai_uri, args.user, rest_path=rest_path, verify=not args.insecure, authority_file=ca
        )
        cluster = Cluster(args.cluster_alias, endpoint)
        try:
            info = cluster.info()
        except NotFound as e:
            refused = e
            continue
        raw: dict[str, object] = {
            "cluster_alias": args.cluster_alias,
            "pai_uri": str(endpoint.address),
            "user": args.user,
            "token": "",
            "info": info,
        }
        if rest_path != REST_SERVER:
            raw["rest_path"] = rest_path
        if args.insecure:
            raw["verify_tls"] = False
        if ca:
            raw["ca_file"] = ca
        return cluster, raw
    raise PaiError(
        f"No OpenPAI cluster answers at {args.pai_uri}.",
        hint="Give the address of its web page, or of its rest-server (http://HOST:9186).",
    ) from refused


def _asked_password(args: argparse.Namespace) -> str:
    if not on_terminal():
        raise UsageError(
            "add-cluster needs --password or --token: there is no terminal to ask for a password."
        )
    from getpass import getpass

    password = getpass(f"Password of {args.user} on {args.cluster_alias}: ")
    if not password:
        raise UsageError("No password was given, so nothing was added.")
    return password


def _virtual_clusters(cluster: Cluster) -> list[str]:
    """Their names; the question also proves that the token is good."""
    try:
        return [vc.name for vc in cluster.virtual_clusters()]
    except Unauthorized as e:
        raise Unauthorized(
            f"The cluster does not accept the token: {e.message}", hint="Nothing was added."
        ) from None


def _version(raw: dict[str, object]) -> str:
    info = raw.get("info")
    return str(info.get("version") or "unknown") if isinstance(info, dict) else "unknown"


def list_clusters(argv: list[str]) -> int:
    """``pai list-clusters``"""
    parser = command_parser("list-clusters", "pai list-clusters", cluster=False)
    args = parser.parse(argv)
    book = ClusterBook.load()
    shown = [_without_secrets(entry) for entry in book.entries]
    selected = book.selected or (book.entries[0].alias if len(book.entries) == 1 else "")

    def people() -> str:
        rows = []
        for raw in shown:
            vcs = raw.get("virtual_clusters")
            names = ", ".join(map(str, vcs)) if isinstance(vcs, list) else ""
            mark = "*" if raw["cluster_alias"] == selected else ""
            rows.append(
                [
                    mark,
                    str(raw["cluster_alias"]),
                    str(raw["pai_uri"]),
                    str(raw.get("user") or "-"),
                    names or "-",
                ]
            )
        return table(["", "ALIAS", "ADDRESS", "USER", "VIRTUAL CLUSTERS"], rows) if rows else ""

    show(shown, args.output, people)
    if not shown and args.output == "table":
        say("No clusters yet. The first command that needs one starts one here.")
    return 0


def _without_secrets(entry: ClusterEntry) -> dict[str, object]:
    raw = {k: v for k, v in entry.raw.items() if k not in ("token", "password")}
    if entry.is_embedded:
        from openpaisdk.local.ready import running

        found = running()
        raw["pai_uri"] = found.url if found else "on this machine, not running"
        raw["user"] = found.user if found else None
        raw["virtual_clusters"] = ["default"]
    raw.setdefault("pai_uri", "-")
    return raw


def select_cluster(argv: list[str]) -> int:
    """``pai select-cluster [-g] alias``"""
    parser = command_parser(
        "select-cluster",
        "pai select-cluster -g team",
        "Without -g the choice holds in this folder only.",
        output=False,
        cluster=False,
    )
    parser.add_argument("-g", "--global", dest="is_global", action="store_true", help="everywhere")
    parser.add_argument("alias", help="the cluster's alias")
    args = parser.parse(argv)
    book = ClusterBook.load()
    if book.find(args.alias) is None and args.alias != EMBEDDED_ALIAS:
        raise book.unknown(args.alias)
    change_defaults([Change("cluster-alias", "=", args.alias)], [], is_global=args.is_global)
    say(f"Commands {'everywhere' if args.is_global else 'in this folder'} now use {args.alias}.")
    return 0


def delete_cluster(argv: list[str]) -> int:
    """``pai delete-cluster alias``"""
    parser = command_parser("delete-cluster", "pai delete-cluster team", output=False, cluster=False)
    parser.add_argument("alias", help="the cluster's alias")
    args = parser.parse(argv)
    book = ClusterBook.load()
    book.delete(args.alias)
    say(f"Forgot {args.alias}. Its jobs are untouched.")
    if book.selected == args.alias:
        say("It was the selected one; choose another with pai select-cluster.")
    sys.stdout.flush()
    return 0
