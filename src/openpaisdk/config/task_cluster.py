"""The cluster of the task that this process runs in, from the variables that the task's cluster sets."""

from __future__ import annotations

import os

OWN_ALIAS = "here"
"""Alias of that cluster: ``pai://here/...``. No entry of the clusters file may be given this alias."""
TASK = "task"
"""Type of its entry, where its server is this package's."""
SERVER = "PAI_REST_SERVER_URI"
TOKEN = "PAI_USER_TOKEN"
USERS = ("PAI_USER_NAME", "PAI_USERNAME")
RUNTIME = "PAI_RUNTIME_DIR"
EMBEDDED_FLAG = "PAI_EMBEDDED_CLUSTER"
"""Set in the tasks of an embedded cluster: their jobs share the machine and the programs of one user."""
_MARKS = (SERVER, "PAI_CONTAINER_ID", "PAI_JOB_NAME")
VARIABLES = frozenset({*_MARKS, TOKEN, *USERS, RUNTIME, EMBEDDED_FLAG})
"""Everything in the environment that this module reads."""


def is_inside_task() -> bool:
    """Whether this process runs in a task of a job, of any cluster."""
    return any(os.environ.get(name) for name in _MARKS)


def task_cluster_settings(taken_aliases: frozenset[str] = frozenset()) -> dict[str, object] | None:
    """Settings of the task's own cluster, like an entry of the clusters file; None outside a task.

    An entry called ``here`` from before that alias was reserved keeps it; the task's cluster then has its
    address as alias, which no entry can have.
    """
    uri = os.environ.get(SERVER, "").rstrip("/")
    if not uri:
        return None
    alias = OWN_ALIAS if OWN_ALIAS not in taken_aliases else uri.partition("://")[2].partition("/")[0] or uri
    settings: dict[str, object] = {
        "cluster_alias": alias,
        "pai_uri": uri,
        "user": next((os.environ[name] for name in USERS if os.environ.get(name)), ""),
        "token": os.environ.get(TOKEN, ""),
    }
    if runtime := os.environ.get(RUNTIME, ""):
        from pairuntime.transport import CA_FILE

        settings["type"] = TASK  # only this package's server starts tasks with the runtime
        if os.path.isfile(ca_file := os.path.join(runtime, CA_FILE)):
            settings["ca_file"] = ca_file
    if os.environ.get(EMBEDDED_FLAG):
        settings["embedded"] = True
    return settings
