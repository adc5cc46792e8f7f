"""Deletion of a job together with what its function left on the storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openpaisdk.jobs.call_request import request_of
from paiprotocol.errors import PaiError

if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient


def delete_job(client: ClusterClient, name: str, user: str = "") -> None:
    """Delete a finished job. Calls, results and values of a function go with it, if it is the user's own."""
    own_name = name.rpartition("~")[2]
    owner = user or name.rpartition("~")[0] or client.user
    folder = _folder(client, name) if owner == client.user else ""
    client.delete(name, user)
    if folder:
        # Imported for jobs that call functions only: other commands need not wait for it.
        from openpaisdk.jobs.function_files import FunctionFiles
        from openpaisdk.jobs.stored_values import StoredValues
        from openpaisdk.storage import Storage

        StoredValues(client, FunctionFiles(Storage.of_jobs(client)), folder).delete_of([own_name])


def _folder(client: ClusterClient, name: str) -> str:
    try:
        request = request_of(client.job_config(name))
    except PaiError:  # the deletion then says what is wrong
        return ""
    return "" if request is None else str(request["results"]).rpartition("/")[0]
