"""``opai <scene> <action>``, the older command line, in words of ``pai``."""

from __future__ import annotations

ACTIONS = {
    "cluster": {
        "list": "list-clusters",
        "resources": "cluster-resources",
        "add": "add-cluster",
        "delete": "delete-cluster",
        "select": "select-cluster",
    },
    "job": {
        "list": "list-jobs",
        "status": "job-status",
        "stop": "stop-job",
        "submit": "submit",
        "sub": "sub",
        "connect": "connect-job",
    },
}


def translated(argv: list[str]) -> list[str]:
    """The same command line for ``pai``; what is not of the older form stays as it is."""
    if len(argv) >= 2 and argv[0] in ACTIONS:
        return [ACTIONS[argv[0]].get(argv[1], f"{argv[0]}-{argv[1]}"), *argv[2:]]
    return argv
