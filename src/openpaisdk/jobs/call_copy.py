"""Copy of a job that calls a function: it has calls and results of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from openpaisdk.jobs.call_request import ROLE, command_of, request_in, request_of
from paiprotocol.errors import Forbidden, NotFound, UsageError

if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient


class CopiedJob:
    """The copy as plain data, and the calls that it needs on the storage before it is submitted."""

    def __init__(self, data: dict[str, Any], old: Mapping[str, Any], new: Mapping[str, Any]):
        self.data = data
        self._old = old
        self._new = new

    @classmethod
    def of(
        cls, config: str, copy: dict[str, Any], *, job: str, owner: str, user: str, image: str = ""
    ) -> CopiedJob | None:
        """The copy of ``job``, whose files are still those of the job; None if it calls no function.

        ``owner`` submitted the job, and ``user`` submits the copy; ``image``: one that the copy is to have.
        """
        old = request_of(config)
        if old is None:
            return None
        if owner != user:
            raise Forbidden(
                f"{job} is a function that {owner} called: it is not copied, "
                "because loading a pickle runs code.",
                hint="Call the function yourself: openpaisdk.submit(function).",
            )
        if request_in(copy) is None:  # another command replaces the call
            return None
        if image and not old.get("library"):
            raise UsageError(
                f"The function of {job} was pickled for this machine's Python: a copy cannot have an image.",
                hint=f'Call it again from Python: openpaisdk.submit(function, image="{image}").',
            )
        folder = f"{_parent(old)}/{copy['name']}"
        new = {**old, "call": f"{folder}/calls", "results": folder}
        role = copy["taskRoles"][ROLE]
        if not old.get("array"):
            new["tasks"] = role.get("instances", 1)
        roles = {**copy["taskRoles"], ROLE: {**role, "commands": [command_of(new)]}}
        return cls({**copy, "taskRoles": roles}, old, new)

    def send_calls(self, client: ClusterClient) -> None:
        """Give the copy its calls, and its share in the values that the calls use."""
        from openpaisdk.jobs.function_files import FunctionFiles
        from openpaisdk.jobs.stored_values import StoredValues
        from openpaisdk.storage import Storage

        files = FunctionFiles(Storage.of_jobs(client))
        values = StoredValues(client, files, _parent(self._old))
        # First: a deletion of the job at this moment then keeps the values.
        is_missing = values.share(_job(self._old), _job(self._new))
        calls = files.read(self._old["call"])
        if calls is None or is_missing:
            values.delete_of([_job(self._new)])
            raise NotFound(
                f"The calls of {_job(self._old)} are no longer on the storage.",
                hint="Call the function again with openpaisdk.submit.",
            )
        files.write(self._new["call"], calls)


def _parent(request: Mapping[str, Any]) -> str:
    return str(request["results"]).rpartition("/")[0]


def _job(request: Mapping[str, Any]) -> str:
    return str(request["results"]).rpartition("/")[2]
