"""``pai add-cluster``, ``update-clusters`` and ``update-token``: clusters are met, and met again."""

from __future__ import annotations

from openpaisdk.cli.parser import Parser, command_parser, on_terminal
from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry, check_alias
from openpaisdk.config.defaults import Change, change_defaults
from openpaisdk.errors import UsageError
from openpaisdk.output import print_notice, show

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
        "The cluster is asked at once: its version, your virtual clusters, your storages. A password is\n"
        "exchanged for a token and not stored; without one (and without --token) you are asked for it.\n"
        "An alias you already have is replaced.",
    )
    parser.add_argument("-a", "--cluster-alias", required=True, metavar="ALIAS", help="what you will call it")
    parser.add_argument("--pai-uri", required=True, metavar="URI", help="its address, as in a browser")
    parser.add_argument("--user", required=True, metavar="USER", help="your name there")
    _login_options(parser)
    parser.add_argument("--insecure", action="store_true", help="do not check its certificate")
    parser.add_argument("--ca", default="", metavar="FILE", help="certificates to trust for it")
    args = parser.parse(argv)
    alias = check_alias(args.cluster_alias)
    book = ClusterRegistry.load()
    from openpaisdk.client.discovery import register_cluster

    raw = register_cluster(
        alias,
        args.pai_uri,
        _credentials(args, args.user, alias),
        verify=not args.insecure,
        authority_file=args.ca,
    )
    known = book.find(alias)
    usable = [entry.alias for entry in book.entries if not entry.is_storage]
    in_use = usable[0] if len(usable) == 1 and not book.selected and usable != [alias] else ""
    book.put(ClusterEntry({**_user_settings_of(known), **raw}))
    print_notice(f"{'Replaced' if known else 'Added'} {alias} ({raw['pai_uri']}, version {_version(raw)}).")
    if in_use:
        # It was used because it was the only one; a second one must not break every command.
        change_defaults([Change("cluster-alias", "=", in_use)], [], is_global=True)
        print_notice(f"Commands go on using {in_use}. Use {alias} with -a {alias}, or for every command:")
        print_notice(f"  pai select-cluster -g {alias}")
    elif len(book.entries) > 1 and not book.selected:
        print_notice(f"Use it with -a {alias}, or for every command: pai select-cluster -g {alias}")
    return 0


def update_token(argv: list[str]) -> int:
    """``pai update-token [-a ALIAS] [--token T | --password P]``"""
    parser = command_parser(
        "update-token",
        "pai update-token -a team\npai update-token -a team --token eyJhbGciOi...",
        "Tokens end, after a week on most clusters. You are asked for your password, which is exchanged\n"
        "for a new one; an application token, from your profile page there, never ends.",
        output=False,
    )
    _login_options(parser)
    args = parser.parse(argv)
    book = ClusterRegistry.load()
    entry = book.resolve(args.cluster_alias)
    if entry.is_embedded:
        raise UsageError("The cluster on this machine needs no token of yours.")
    from openpaisdk.client.discovery import register_cluster

    raw = register_cluster(
        entry.alias,
        entry.text("pai_uri"),
        _credentials(args, entry.text("user"), entry.alias),
        verify=entry.raw.get("verify_tls") is not False,
        authority_file=entry.text("ca_file"),
    )
    book.put(ClusterEntry({**_user_settings_of(entry), **raw}))
    print_notice(f"{entry.alias} accepts the new token.")
    return 0


def update_clusters(argv: list[str]) -> int:
    """``pai update-clusters [alias ...]``"""
    parser = command_parser(
        "update-clusters",
        "pai update-clusters",
        "Asks each cluster anew for its version, your virtual clusters and your storages; all at once.",
        cluster=False,
    )
    parser.add_argument("aliases", nargs="*", metavar="alias", help="only these (all)")
    args = parser.parse(argv)
    book = ClusterRegistry.load()
    for alias in args.aliases:
        if book.find(alias) is None:
            raise book.unknown(alias)
    entries = [
        e
        for e in book.entries
        if not e.is_storage and not e.is_embedded and (not args.aliases or e.alias in args.aliases)
    ]
    from openpaisdk.cli.asking import report_failures
    from openpaisdk.client.discovery import refresh
    from openpaisdk.client.fanout import ClusterCall, call_all
    from openpaisdk.connect import open_entry

    questions = [ClusterCall(e.alias, lambda e=e: refresh(open_entry(e))) for e in entries]  # type: ignore[misc]
    call_all(questions, notify=print_notice)
    done: dict[str, str] = {}
    for entry, question in zip(entries, questions, strict=True):
        if question.result is not None:
            fresh = ClusterRegistry.load().find(entry.alias) or entry  # a token may have been renewed
            book.put(ClusterEntry({**fresh.raw, **question.result}))
            done[entry.alias] = _version({**fresh.raw, **question.result})
    show(done, args.output, lambda: "\n".join(f"{alias}: version {v}" for alias, v in done.items()))
    if not entries and args.output == "table":
        print_notice("There is no cluster to ask; pai add-cluster adds one.")
    return report_failures(questions)


def _login_options(parser: Parser) -> None:
    parser.add_argument("--password", default="", help="your password there")
    parser.add_argument(
        "--token", "--authen-token", default="", help="a token of yours, instead of a password"
    )
    parser.add_argument(
        "--store-password",
        action="store_true",
        help="keep the password in the clusters file, to renew the token when it ends",
    )


def _credentials(args: argparse.Namespace, user: str, alias: str) -> Credentials:
    from openpaisdk.client.discovery import Credentials

    if args.password and args.token:
        raise UsageError("Give a password or a token, not both.")

    def ask() -> str:
        if not on_terminal():
            raise UsageError("--password or --token is missing, and there is no terminal to ask at.")
        from getpass import getpass

        try:
            password = getpass(f"Password of {user} on {alias}: ")
        except EOFError:  # Ctrl-D
            print_notice("")
            password = ""
        if not password:
            raise UsageError("No password was given, so nothing was changed.")
        return password

    return Credentials(
        user, password=args.password, token=args.token, prompt=ask, keep_password=args.store_password
    )


def _user_settings_of(entry: ClusterEntry | None) -> dict[str, object]:
    """Of an entry that is replaced, what a person chose; how it was reached is learned anew."""
    learned = ("token", "password", "info", "api", "rest_path", "verify_tls", "ca_file", "type")
    return {k: v for k, v in entry.raw.items() if k not in learned} if entry else {}


def _version(raw: dict[str, object]) -> str:
    info = raw.get("info")
    return str(info.get("version") or "unknown") if isinstance(info, dict) else "unknown"
