"""Translation of OpenPAI's command line ``opai <scene> <action>`` to ``pai``."""

from __future__ import annotations

from paiprotocol.errors import UsageError

ACTIONS = {
    "cluster": {
        "list": "list-clusters",
        "resources": "cluster-resources",
        "update": "update-clusters",
        "edit": "edit-clusters",
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
        "notebook": "notebook-job",
        "connect": "connect-job",
    },
    "storage": {
        "list-storage": "list-storages",
        "list": "listdir",
        "status": "getinfo",
        "upload": "copy",
        "download": "copy",
        "delete": "remove",
    },
}
_REMOTE_ARGUMENTS = {"list": (0,), "status": (0,), "upload": (1,), "download": (0,), "delete": (0,)}
"""Positions of the arguments that are paths on the storage, by action."""
SELECTED = "0"


def translate_opai(argv: list[str]) -> list[str]:
    """The same command line for ``pai``; arguments that do not start with a scene are unchanged."""
    if not argv or argv[0] not in ACTIONS:
        return argv
    scene, action, *rest = argv if len(argv) > 1 else (argv[0], "")
    if action in ("-h", "--help"):
        return ["--help"]
    if not action:
        raise UsageError(f"opai {scene} needs an action.", hint=f"Its actions: {', '.join(ACTIONS[scene])}.")
    command = ACTIONS[scene].get(action)
    if command is None:
        raise UsageError(
            f"opai {scene} has no action {action!r}.", hint=f"Its actions: {', '.join(ACTIONS[scene])}."
        )
    if scene == "storage" and action != "list-storage":
        return [command, *_storage_arguments(action, rest)]
    if scene == "storage":
        return [command, *_without_option(rest)]
    return [command, *rest]


def _without_option(argv: list[str]) -> list[str]:
    """``list-storage -a x`` names the cluster with an option, ``list-storages x`` with an argument."""
    return [word for word in argv if word not in ("-a", "--cluster-alias")]


def _storage_arguments(action: str, argv: list[str]) -> list[str]:
    """Turn paths on the storage into ``pai://`` URLs; the options that named the storage are dropped."""
    alias = storage = ""
    plain: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        option, equals, value = word.partition("=")
        if option in ("-a", "--cluster-alias", "-s", "--storage-alias"):
            value = value if equals else (words.pop(0) if words else "")
            if option in ("-a", "--cluster-alias"):
                alias = value
            else:
                storage = value
        elif word not in ("--overwrite", "--recursive"):  # the default of copy and remove
            plain.append(word)
    if any(word in ("-h", "--help") for word in plain):
        return ["--help"]
    if not alias or not storage:
        from openpaisdk.config.clusters import ClusterRegistry

        registry = ClusterRegistry.load()
        alias = alias or registry.resolve().alias
        storage = storage or registry.defaults.text("storage-alias") or SELECTED
    for position in _REMOTE_ARGUMENTS[action]:
        if position < len(plain):
            plain[position] = f"pai://{alias}/{storage}/{plain[position].lstrip('/')}"
    return plain
