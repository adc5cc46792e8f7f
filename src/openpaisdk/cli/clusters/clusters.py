"""``pai list-clusters``, ``select-cluster`` and ``delete-cluster``: the clusters in the clusters file."""

from __future__ import annotations

import sys

from openpaisdk.cli.parser import add_scope_option, command_parser
from openpaisdk.config.clusters import EMBEDDED_ALIAS, ClusterEntry, ClusterRegistry, require_jobs
from openpaisdk.config.defaults import Change, change_defaults, defaults_file
from openpaisdk.config.paths import display_path
from openpaisdk.output import print_notice, show, table


def list_clusters(argv: list[str]) -> int:
    """``pai list-clusters``"""
    parser = command_parser("list-clusters", "pai list-clusters", cluster=False)
    args = parser.parse(argv)
    registry = ClusterRegistry.load()
    own = registry.own
    entries = [_public_settings(entry) for entry in ([own] if own else []) + registry.entries]
    selected = registry.selected or (registry.entries[0].alias if len(registry.entries) == 1 else "")
    if own is not None:
        selected = own.alias

    def render() -> str:
        rows = []
        for raw in entries:
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

    show(entries, args.output, render)
    if own is not None and args.output == "table":
        print_notice(f"{own.alias} is the cluster of this task; commands use it unless -a names another one.")
    if not entries and args.output == "table":
        print_notice("No clusters yet. The first command that needs one starts the embedded cluster.")
    return 0


def _public_settings(entry: ClusterEntry) -> dict[str, object]:
    raw = {k: v for k, v in entry.raw.items() if k not in ("token", "password")}
    if entry.is_embedded:
        from openpaisdk.embedded.ensure_running import find_running

        server = find_running()
        raw["pai_uri"] = server.url if server else "on this machine, not running"
        raw["user"] = server.user if server else None
        raw["virtual_clusters"] = ["default"]
    raw.setdefault("pai_uri", "-")
    return raw


def select_cluster(argv: list[str]) -> int:
    """``pai select-cluster [-g] alias``"""
    parser = command_parser(
        "select-cluster",
        "pai select-cluster -g team",
        "Without -g the selection applies to this folder only.",
        output=False,
        cluster=False,
    )
    add_scope_option(parser)
    parser.add_argument("alias", help="the cluster's alias")
    args = parser.parse(argv)
    registry = ClusterRegistry.load()
    entry = registry.find(args.alias)
    if entry is not None:
        require_jobs(entry)
    elif args.alias != EMBEDDED_ALIAS:
        raise registry.unknown(args.alias)
    change_defaults([Change("cluster-alias", "=", args.alias)], [], is_global=args.is_global)
    print_notice(f"Commands {'everywhere' if args.is_global else 'in this folder'} now use {args.alias}.")
    if (own := registry.own) is not None:
        print_notice(f"Not in this task: without -a its commands use its own cluster, {own.alias}.")
    if args.is_global and (selected_here := ClusterRegistry.load().selected) != args.alias:
        print_notice(
            f"Not in this folder: {display_path(defaults_file(is_global=False))} selects {selected_here}."
        )
    return 0


def delete_cluster(argv: list[str]) -> int:
    """``pai delete-cluster alias``"""
    parser = command_parser("delete-cluster", "pai delete-cluster team", output=False, cluster=False)
    parser.add_argument("alias", help="the cluster's alias")
    args = parser.parse(argv)
    registry = ClusterRegistry.load()
    entry = registry.find(args.alias)
    registry.delete(args.alias)
    kept = "files" if entry is not None and entry.is_storage else "jobs"
    print_notice(f"Removed {args.alias} from your clusters. Its {kept} are untouched.")
    if registry.selected == args.alias:
        path = registry.defaults.defining_file("cluster-alias")
        global_option = "-g " if path == defaults_file(is_global=True) else ""
        print_notice(
            f"{display_path(path)} still selects it. Select another: pai select-cluster {global_option}local"
        )
    sys.stdout.flush()
    return 0
