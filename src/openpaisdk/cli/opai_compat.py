"""``opai <scene> <action>``, the older command line, in words of ``pai``."""

from __future__ import annotations

from openpaisdk.errors import UsageError

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
_REMOTE = {"list": (0,), "status": (0,), "upload": (1,), "download": (0,), "delete": (0,)}
"""Which of an action's words are paths on the storage."""
SELECTED = "0"


def translate_opai(argv: list[str]) -> list[str]:
    """The same command line for ``pai``; what is not of the older form stays as it is."""
    if not argv or argv[0] not in ACTIONS:
        return argv
    scene, action, *rest = argv if len(argv) > 1 else (argv[0], "")
    if action in ("-h", "--help"):
        return ["--help"]
    if not action:
        raise UsageError(f"opai {scene} needs an action.", hint=f"It has {', '.join(ACTIONS[scene])}.")
    command = ACTIONS[scene].get(action)
    if command is None:
        raise UsageError(
            f"opai {scene} has no action {action!r}.", hint=f"It has {', '.join(ACTIONS[scene])}."
        )
    if scene == "storage" and action != "list-storage":
        return [command, *_storage_words(action, rest)]
    if scene == "storage":
        return [command, *_without_option(rest)]
    return [command, *rest]


def _without_option(words: list[str]) -> list[str]:
    """``list-storage -a x`` names the cluster as an option; ``list-storages x`` as a word."""
    return [w for w in words if w not in ("-a", "--cluster-alias")]


def _storage_words(action: str, words: list[str]) -> list[str]:
    """Paths on the storage get their address; the options that named it are gone."""
    alias = storage = ""
    plain: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        option, equals, value = word.partition("=")
        if option in ("-a", "--cluster-alias", "-s", "--storage-alias"):
            value = value if equals else (left.pop(0) if left else "")
            if option in ("-a", "--cluster-alias"):
                alias = value
            else:
                storage = value
        elif word not in ("--overwrite", "--recursive"):  # what copy and remove do anyway
            plain.append(word)
    if any(word in ("-h", "--help") for word in plain):
        return ["--help"]
    if not alias or not storage:
        from openpaisdk.config.clusters import ClusterRegistry

        book = ClusterRegistry.load()
        alias = alias or book.resolve().alias
        storage = storage or book.defaults.text("storage-alias") or SELECTED
    for place in _REMOTE[action]:
        if place < len(plain):
            plain[place] = f"pai://{alias}/{storage}/{plain[place].lstrip('/')}"
    return plain
