"""`paicluster vc`: virtual clusters, the shares of the whole."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from openpaisdk.errors import Conflict, NotFound, UsageError
from paicluster.cli.admin_api import AdminApi, path
from paicluster.cli.command_group import CommandGroup
from paicluster.cli.terminal import output_option, show

_COLUMNS = {
    "VC": "name",
    "PERCENT": "capacity",
    "AT MOST": "maxCapacity",
    "GPUS": "gpus",
    "CORES": "cpus",
    "MEMORY MB": "memory",
    "IN USE %": "usedCapacity",
}

family = CommandGroup(
    "vc",
    "Virtual clusters: shares of the cluster, of which `default` has the rest. Those\n"
    "that the file of the cluster describes are removed there. It does not matter\n"
    "whether the server runs.",
    "  paicluster vc add lab --capacity 25 --home ./cluster\n"
    "  paicluster vc set lab --capacity 50 --home ./cluster\n"
    "  paicluster vc set lab --stop --home ./cluster\n"
    "  paicluster vc list --home ./cluster -o json",
)


def _capacity(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--capacity", type=float, required=required, metavar="PERCENT", help="its part of the cluster"
    )
    parser.add_argument(
        "--most", type=float, metavar="PERCENT", help="what it may have while others leave theirs idle"
    )
    parser.set_defaults(check=_check_capacity)


def _check_capacity(arguments: argparse.Namespace) -> None:
    capacity, most = arguments.capacity, arguments.most
    if capacity is not None and not 0 <= capacity <= 100:
        raise UsageError(f"--capacity is a part of the cluster in percent, from 0 to 100, not {capacity:g}.")
    if most is not None and not (capacity or 0) <= most <= 100:
        raise UsageError(f"--most is a percentage from that of --capacity to 100, not {most:g}.")


@family.command("add", "make a virtual cluster")
def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="VC", help="letters, digits and '_'")
    _capacity(parser, required=True)


@family.handler("add")
def add(office: AdminApi, arguments: argparse.Namespace) -> None:
    if arguments.name in office.request("GET", path("virtual-clusters")):
        raise Conflict(
            f"There is a virtual cluster {arguments.name} already.", hint="`paicluster vc set` changes it."
        )
    _put(office, arguments)
    print(f"Made virtual cluster {arguments.name}.")
    _warn_of_nothing(office, arguments.name)


def _put(office: AdminApi, arguments: argparse.Namespace) -> None:
    body = {"vcCapacity": arguments.capacity}
    if arguments.most is not None:
        body["vcMaxCapacity"] = arguments.most
    office.request("PUT", path("virtual-clusters", arguments.name), body)


def _warn_of_nothing(office: AdminApi, name: str) -> None:
    """A small part of a small cluster may be no whole core, and then nothing ever runs there."""
    found: dict[str, dict[str, Any]] = office.request("GET", path("virtual-clusters"))
    for what, word in (("cpu", "core"), ("gpu", "GPU")):
        whole = round(sum(cluster["resourcesTotal"][what] for cluster in found.values()))
        if whole and not found[name]["resourcesTotal"][what]:
            so = f"no job can run in {name}" if what == "cpu" else f"no job with a GPU can run in {name}"
            print(
                f"Warning: this is less than one {word}, so that {so}. Of the cluster's {whole} {word}s "
                f"one is {100 / whole:.3g} %.",
                file=sys.stderr,
            )


@family.command("list", "show the virtual clusters")
def _list(parser: argparse.ArgumentParser) -> None:
    output_option(parser)


@family.handler("list")
def list_clusters(office: AdminApi, arguments: argparse.Namespace) -> None:
    found: dict[str, dict[str, Any]] = office.request("GET", path("virtual-clusters"))
    rows = []
    for name, cluster in found.items():
        total = cluster["resourcesTotal"]
        amounts = {"gpus": total["gpu"], "cpus": total["cpu"], "memory": total["memory"]}
        rows.append(
            {"name": name, **cluster} if arguments.output == "json" else {"name": name, **cluster, **amounts}
        )
    show(rows, _COLUMNS, arguments.output)


@family.command("set", "change a virtual cluster")
def _set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="VC")
    _capacity(parser, required=False)
    status = parser.add_mutually_exclusive_group()
    status.add_argument("--stop", action="store_const", const="stopped", dest="status", help="no new jobs")
    status.add_argument("--start", action="store_const", const="running", dest="status", help="jobs again")


@family.handler("set")
def change(office: AdminApi, arguments: argparse.Namespace) -> None:
    if arguments.capacity is None and arguments.most is None and arguments.status is None:
        raise UsageError("Say what to change: --capacity, --most, --stop or --start.")
    found = office.request("GET", path("virtual-clusters"))
    if arguments.name not in found:
        raise NotFound(
            f"There is no virtual cluster {arguments.name}.", hint="`paicluster vc list` shows them."
        )
    if arguments.capacity is not None or arguments.most is not None:
        old = found[arguments.name]
        if arguments.capacity is None:
            arguments.capacity = old["capacity"]
        if arguments.most is None and old["maxCapacity"] > old["capacity"]:
            arguments.most = max(old["maxCapacity"], arguments.capacity)
        _check_capacity(arguments)
        _put(office, arguments)
        _warn_of_nothing(office, arguments.name)
    if arguments.status is not None:
        body = {"vcStatus": arguments.status}
        office.request("PUT", path("virtual-clusters", arguments.name, "status"), body)
    print(f"Changed virtual cluster {arguments.name}.")


@family.command("remove", "remove a virtual cluster; its share goes back to default")
def _remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="VC")


@family.handler("remove")
def remove(office: AdminApi, arguments: argparse.Namespace) -> None:
    office.request("DELETE", path("virtual-clusters", arguments.name))
    print(f"Removed virtual cluster {arguments.name}.")
