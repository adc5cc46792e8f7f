"""`paicluster vc`: virtual clusters, the quotas of a cluster."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from paicluster.cli.admin_api import AdminApi, path
from paicluster.cli.command_group import CommandGroup
from paicluster.cli.terminal import output_option, print_rows
from paiprotocol.errors import Conflict, NotFound, UsageError

_COLUMNS = {
    "VC": "name",
    "PERCENT": "capacity",
    "MAX PERCENT": "maxCapacity",
    "GPUS": "gpus",
    "CORES": "cpus",
    "MEMORY MB": "memory",
    "IN USE %": "usedCapacity",
}

group = CommandGroup(
    "vc",
    "Virtual clusters: quotas of the cluster; `default` has the rest. Those defined\n"
    "in the cluster's file are removed there. Works whether or not the server runs.",
    "  paicluster vc add lab --capacity 25 --home ./cluster\n"
    "  paicluster vc set lab --capacity 50 --home ./cluster\n"
    "  paicluster vc set lab --stop --home ./cluster\n"
    "  paicluster vc list --home ./cluster -o json",
)


def _capacity(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--capacity", type=float, required=required, metavar="PERCENT", help="guaranteed share of the cluster"
    )
    parser.add_argument(
        "--max-capacity",
        type=float,
        metavar="PERCENT",
        help="limit up to which it may borrow idle resources of others",
    )
    parser.set_defaults(check=_check_capacity)


def _check_capacity(arguments: argparse.Namespace) -> None:
    capacity, max_capacity = arguments.capacity, arguments.max_capacity
    if capacity is not None and not 0 <= capacity <= 100:
        raise UsageError(f"--capacity is a share of the cluster in percent, from 0 to 100, not {capacity:g}.")
    if max_capacity is not None and not (capacity or 0) <= max_capacity <= 100:
        raise UsageError(f"--max-capacity is a percentage from --capacity to 100, not {max_capacity:g}.")


@group.command("add", "create a virtual cluster")
def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="VC", help="letters, digits and '_'")
    _capacity(parser, required=True)


@group.handler("add")
def add(api: AdminApi, arguments: argparse.Namespace) -> None:
    if arguments.name in api.request("GET", path("virtual-clusters")):
        raise Conflict(
            f"The virtual cluster {arguments.name} already exists.", hint="`paicluster vc set` changes it."
        )
    _put(api, arguments)
    print(f"Created virtual cluster {arguments.name}.")
    _warn_if_too_small(api, arguments.name)


def _put(api: AdminApi, arguments: argparse.Namespace) -> None:
    body = {"vcCapacity": arguments.capacity}
    if arguments.max_capacity is not None:
        body["vcMaxCapacity"] = arguments.max_capacity
    api.request("PUT", path("virtual-clusters", arguments.name), body)


def _warn_if_too_small(api: AdminApi, name: str) -> None:
    """Warn when the share is less than one core or GPU, so that no job can ever run there."""
    clusters: dict[str, dict[str, Any]] = api.request("GET", path("virtual-clusters"))
    for resource, unit in (("cpu", "core"), ("gpu", "GPU")):
        total = round(sum(cluster["resourcesTotal"][resource] for cluster in clusters.values()))
        if total and not clusters[name]["resourcesTotal"][resource]:
            jobs = "no job" if resource == "cpu" else "no job with a GPU"
            print(
                f"Warning: this is less than one {unit}, so {jobs} can run in {name}. "
                f"One of the cluster's {total} {unit}s is {100 / total:.3g} %.",
                file=sys.stderr,
            )


@group.command("list", "list virtual clusters")
def _list(parser: argparse.ArgumentParser) -> None:
    output_option(parser)


@group.handler("list")
def list_clusters(api: AdminApi, arguments: argparse.Namespace) -> None:
    clusters: dict[str, dict[str, Any]] = api.request("GET", path("virtual-clusters"))
    rows = []
    for name, cluster in clusters.items():
        total = cluster["resourcesTotal"]
        amounts = {"gpus": total["gpu"], "cpus": total["cpu"], "memory": total["memory"]}
        rows.append(
            {"name": name, **cluster} if arguments.output == "json" else {"name": name, **cluster, **amounts}
        )
    print_rows(rows, _COLUMNS, arguments.output)


@group.command("set", "change a virtual cluster")
def _set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="VC")
    _capacity(parser, required=False)
    status = parser.add_mutually_exclusive_group()
    status.add_argument(
        "--stop", action="store_const", const="stopped", dest="status", help="accept no new jobs"
    )
    status.add_argument(
        "--start", action="store_const", const="running", dest="status", help="accept jobs again"
    )


@group.handler("set")
def change(api: AdminApi, arguments: argparse.Namespace) -> None:
    if arguments.capacity is None and arguments.max_capacity is None and arguments.status is None:
        raise UsageError("There is nothing to change: use --capacity, --max-capacity, --stop or --start.")
    clusters = api.request("GET", path("virtual-clusters"))
    if arguments.name not in clusters:
        raise NotFound(
            f"There is no virtual cluster {arguments.name}.", hint="`paicluster vc list` shows them."
        )
    if arguments.capacity is not None or arguments.max_capacity is not None:
        old = clusters[arguments.name]
        if arguments.capacity is None:
            arguments.capacity = old["capacity"]
        if arguments.max_capacity is None and old["maxCapacity"] > old["capacity"]:
            arguments.max_capacity = max(old["maxCapacity"], arguments.capacity)
        _check_capacity(arguments)
        _put(api, arguments)
        _warn_if_too_small(api, arguments.name)
    if arguments.status is not None:
        body = {"vcStatus": arguments.status}
        api.request("PUT", path("virtual-clusters", arguments.name, "status"), body)
    print(f"Changed virtual cluster {arguments.name}.")


@group.command("remove", "remove a virtual cluster; its share returns to default")
def _remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="VC")


@group.handler("remove")
def remove(api: AdminApi, arguments: argparse.Namespace) -> None:
    api.request("DELETE", path("virtual-clusters", arguments.name))
    print(f"Removed virtual cluster {arguments.name}.")
