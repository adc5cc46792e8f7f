"""``pai add-cluster``, ``update-clusters`` and ``update-token``: register and refresh clusters."""

from __future__ import annotations

import sys

from openpaisdk.cli.parser import Parser, command_parser, is_interactive
from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry, check_alias, require_jobs
from openpaisdk.config.defaults import Change, change_defaults
from openpaisdk.output import print_notice, show
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from openpaisdk.client.discovery import Credentials


def add_cluster(argv: list[str]) -> int:
    """``pai add-cluster -a ALIAS --pai-uri URI --user USER [--password P | --token T]``"""
    parser = Parser(
        "add-cluster",
        "pai add-cluster -a team --pai-uri https://pai.example.org --user alice\n"
        "pai add-cluster -a team --pai-uri https://pai.example.org --user alice --token eyJhbGciOi...",
        "Connects to the cluster and stores its version, your virtual clusters and your storages. A\n"
        "password is exchanged for a token and not stored; without --password and --token you are asked\n"
        "for it.\n"
        "An existing alias is replaced.",
    )
    parser.add_argument(
        "-a", "--cluster-alias", required=True, metavar="ALIAS", help="your name for the cluster"
    )
    parser.add_argument(
        "--pai-uri", required=True, metavar="URI", help="the cluster's address, as in a browser"
    )
    parser.add_argument("--user", required=True, metavar="USER", help="your user name on the cluster")
    _login_options(parser)
    parser.add_argument("--insecure", action="store_true", help="do not verify the TLS certificate")
    parser.add_argument(
        "--ca", default="", metavar="FILE", help="CA certificates to trust (default: the system's)"
    )
    args = parser.parse(argv)
    alias = check_alias(args.cluster_alias)
    registry = ClusterRegistry.load()
    from openpaisdk.client.discovery import register_cluster

    raw = register_cluster(
        alias,
        args.pai_uri,
        _credentials(args, args.user, alias),
        verify=not args.insecure,
        ca_file=args.ca,
    )
    known = registry.find(alias)
    usable = [entry.alias for entry in registry.entries if not entry.is_storage]
    current = usable[0] if len(usable) == 1 and not registry.selected and usable != [alias] else ""
    registry.put(ClusterEntry({**_user_settings_of(known), **raw}))
    print_notice(f"{'Replaced' if known else 'Added'} {alias} ({raw['pai_uri']}, version {_version(raw)}).")
    if current:
        # It was used because it was the only one; adding a second one must not break every command.
        change_defaults([Change("cluster-alias", "=", current)], [], is_global=True)
        print_notice(f"Commands still use {current}. Use {alias} with -a {alias}, or for every command:")
        print_notice(f"  pai select-cluster -g {alias}")
    elif len(registry.entries) > 1 and not registry.selected:
        print_notice(f"Use it with -a {alias}, or for every command: pai select-cluster -g {alias}")
    return 0


def update_token(argv: list[str]) -> int:
    """``pai update-token [ALIAS] [--token T | --password P]``"""
    parser = command_parser(
        "update-token",
        "pai update-token team\npai update-token -a team --token eyJhbGciOi...",
        "Tokens expire, after a week on most clusters. You are asked for your password, which is exchanged\n"
        "for a new token. An application token (from your profile page on the portal) never expires.",
        output=False,
    )
    _login_options(parser)
    parser.add_argument("alias", nargs="?", default="", help="the cluster's alias, as -a names it")
    args = parser.parse(argv)
    if args.alias and args.cluster_alias not in ("", args.alias):
        raise UsageError(f"{args.alias} and -a {args.cluster_alias} are two clusters: name one of them.")
    registry = ClusterRegistry.load()
    entry = registry.resolve(args.alias or args.cluster_alias)
    if entry.is_embedded:
        raise UsageError(
            "The embedded cluster needs no token from you.",
            hint="If it does not accept its own, which was revoked, a restart makes a new one: "
            "pai stop-cluster && pai start-cluster. Running jobs continue.",
        )
    require_jobs(entry)
    if registry.find(entry.alias) is None:  # the cluster of this task
        raise UsageError(
            "A task gets its token from its cluster, and cannot change it.",
            hint="For a cluster of your clusters file: pai update-token -a ALIAS",
        )
    from openpaisdk.client.discovery import register_cluster

    raw = register_cluster(
        entry.alias,
        entry.text("pai_uri"),
        _credentials(args, entry.text("user"), entry.alias),
        verify=entry.raw.get("verify_tls") is not False,
        ca_file=entry.text("ca_file"),
    )
    registry.put(ClusterEntry({**_user_settings_of(entry), **raw}))
    print_notice(f"{entry.alias} accepted the new token.")
    return 0


def update_clusters(argv: list[str]) -> int:
    """``pai update-clusters [alias ...]``"""
    parser = command_parser(
        "update-clusters",
        "pai update-clusters",
        "Asks all clusters in parallel.",
        cluster=False,
    )
    parser.add_argument("aliases", nargs="*", metavar="alias", help="only these clusters (default: all)")
    args = parser.parse(argv)
    registry = ClusterRegistry.load()
    for alias in args.aliases:
        if (named := registry.find(alias)) is None:
            raise registry.unknown(alias)
        require_jobs(named)
    entries = [
        e
        for e in registry.entries
        if not e.is_storage and not e.is_embedded and (not args.aliases or e.alias in args.aliases)
    ]
    from openpaisdk.client.discovery import refresh
    from openpaisdk.client.fanout import ClusterCall, call_all, report_failures
    from openpaisdk.connect import open_entry

    calls = [ClusterCall(e.alias, lambda e=e: refresh(open_entry(e))) for e in entries]  # type: ignore[misc]
    call_all(calls, notify=print_notice)
    done: dict[str, str] = {}
    for entry, call in zip(entries, calls, strict=True):
        if call.result is not None:
            fresh = (
                ClusterRegistry.load().find(entry.alias) or entry
            )  # its token may have been renewed meanwhile
            registry.put(ClusterEntry({**fresh.raw, **call.result}))
            done[entry.alias] = _version({**fresh.raw, **call.result})
    show(done, args.output, lambda: "\n".join(f"{alias}: version {v}" for alias, v in done.items()))
    if not entries and args.output == "table":
        print_notice("You have no clusters; pai add-cluster adds one.")
    return report_failures(calls, print_notice)


_NO_PASSWORD = "No password was given, so nothing was changed."
_VISIBLE_PASSWORD = (
    "Other users of this machine can see a password on a command line, and your shell stores it. Leave it "
    "out to be asked for it, or use --password - to send it through standard input."
)


def _login_options(parser: Parser) -> None:
    parser.add_argument(
        "--password",
        default="",
        help="your password on the cluster; - reads it from standard input. Other users of this machine can "
        "see one on a command line",
    )
    parser.add_argument("--token", "--authen-token", default="", help="your token, instead of a password")
    parser.add_argument(
        "--store-password",
        action="store_true",
        help="store the password in the clusters file, to renew the token when it expires",
    )


def _credentials(args: argparse.Namespace, user: str, alias: str) -> Credentials:
    from openpaisdk.client.discovery import Credentials

    if args.password and args.token:
        raise UsageError("Give a password or a token, not both.")
    if args.password == "-":
        args.password = sys.stdin.readline().rstrip("\r\n")
        if not args.password:
            raise UsageError(_NO_PASSWORD)
    elif args.password:
        print_notice(_VISIBLE_PASSWORD)

    def prompt() -> str:
        if not is_interactive():
            raise UsageError("--password or --token is missing, and there is no terminal to ask for it.")
        from getpass import getpass

        try:
            password = getpass(f"Password of {user} on {alias}: ")
        except EOFError:  # Ctrl-D
            print_notice("")
            password = ""
        if not password:
            raise UsageError(_NO_PASSWORD)
        return password

    return Credentials(
        user, password=args.password, token=args.token, prompt=prompt, keep_password=args.store_password
    )


def _user_settings_of(entry: ClusterEntry | None) -> dict[str, object]:
    """Settings of a replaced entry that the user chose; connection settings are detected again."""
    detected = ("token", "password", "info", "api", "rest_path", "verify_tls", "ca_file", "type")
    return {k: v for k, v in entry.raw.items() if k not in detected} if entry else {}


def _version(raw: dict[str, object]) -> str:
    info = raw.get("info")
    return str(info.get("version") or "unknown") if isinstance(info, dict) else "unknown"
