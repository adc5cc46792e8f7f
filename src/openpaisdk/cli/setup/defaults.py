"""``pai set`` and ``pai unset``: defaults of options."""

from __future__ import annotations

from openpaisdk.cli.parser import add_scope_option, command_parser
from openpaisdk.config.defaults import KEYS, Defaults, change_defaults, check_known_key, read_change
from openpaisdk.output import print_notice, show, table
from paiprotocol.errors import UsageError


def set_defaults(argv: list[str]) -> int:
    """``pai set [-g] [key=value ...]``"""
    keys = "\n".join(f"  {key:<22}{description}" for key, description in KEYS.items())
    parser = command_parser(
        "set",
        "pai set -g image=python:3.11\npai set cpu=4 sources+=data",
        "Without -g a default applies to this folder only. Without a key, prints the defaults. Keys:\n"
        + keys,
        cluster=False,
    )
    add_scope_option(parser)
    parser.add_argument(
        "changes",
        nargs="*",
        metavar="key=value",
        help="the new value; key+=value and key-=value change lists",
    )
    args = parser.parse(argv)
    if args.changes:
        changes = [read_change(text) for text in args.changes]
        for change in changes:
            if change.key == "mem":
                from openpaisdk.jobs.option_values import memory_mb

                memory_mb(change.value)
        change_defaults(changes, [], is_global=args.is_global)
        return 0
    merged = Defaults.load().merged()
    rows = [
        [key, ", ".join(map(str, value)) if isinstance(value, list) else str(value)]
        for key, value in merged.items()
    ]
    show(merged, args.output, lambda: table(["KEY", "VALUE"], rows) if rows else "")
    if not rows and args.output == "table":
        print_notice("No defaults are set. pai set --help lists the keys.")
    return 0


def unset_defaults(argv: list[str]) -> int:
    """``pai unset [-g] key ...``"""
    parser = command_parser("unset", "pai unset -g image", output=False, cluster=False)
    add_scope_option(parser)
    parser.add_argument("keys", nargs="*", metavar="key", help="the keys to remove")
    args = parser.parse(argv)
    if not args.keys:
        raise UsageError("pai unset needs a key.", hint="pai set lists the defaults that are set.")
    change_defaults([], [check_known_key(key) for key in args.keys], is_global=args.is_global)
    return 0
