"""Many files and folders taken away at once: a request for each takes longer than the work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from openpaisdk.errors import PaiError
from paicluster.files import Storage, StorageUser
from paicluster.files.errors import bad_path
from paicluster.files.transfer.packs import problem


def bulk_delete(storage: Storage, who: StorageUser, base: str, names: Iterable[str]) -> list[dict[str, Any]]:
    """What has these names below ``base``, folders with all in them; what is not there is fine.

    What was refused is told, one by one; the others go.
    """
    problems = []
    for name in names:
        try:
            if not name.strip("/"):
                raise bad_path(name, "it names nothing")
            storage.delete(f"{base.rstrip('/')}/{name}", who, recursive=True)
        except PaiError as error:
            if error.status != 404:
                problems.append(problem(name, error))
    return problems
