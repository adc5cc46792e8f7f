"""``pai quota``: quotas of a user and of the user's groups, and what is used of them."""

from __future__ import annotations

from openpaisdk.cli.parser import command_parser
from openpaisdk.connect import open_cluster
from openpaisdk.output import print_notice, show, table

_NAMES = {
    "tasks": "running tasks",
    "cpu": "cores",
    "memoryMB": "memory (MB)",
    "gpu": "GPUs",
    "storageBytes": "storage",
}


def quota(argv: list[str]) -> int:
    """``pai quota [-a ALIAS]``"""
    parser = command_parser(
        "quota",
        "pai quota\npai quota -o json",
        "A job that exceeds a quota waits until enough of it is free. An administrator sets quotas with "
        "paicluster user set-quota and paicluster group set-quota; members of a group share its quota.",
    )
    args = parser.parse(argv)
    quotas = open_cluster(args.cluster_alias, notify=print_notice).quotas()
    show(quotas, args.output, lambda: _table(quotas))
    return 0


def _table(quotas: list[dict[str, object]]) -> str:
    cells = []
    for quota in quotas:
        resources = quota.get("resources")
        for name, amounts in resources.items() if isinstance(resources, dict) else ():
            if not isinstance(amounts, dict):
                continue
            used, limit = amounts.get("used"), amounts.get("limit")
            owner = f"{quota.get('kind')} {quota.get('name')}"
            cells.append([owner, _NAMES.get(name, str(name)), _amount(name, used), _amount(name, limit)])
    return table(["QUOTA OF", "RESOURCE", "USED", "LIMIT"], cells, right=frozenset({2, 3}))


def _amount(resource: str, amount: object) -> str:
    if not isinstance(amount, int):
        return "-"
    if resource != "storageBytes":
        return str(amount)
    from paiprotocol.transfer.sizes import format_size

    return format_size(amount)
