"""Handing a job in, once: under a key, so that a lost answer and a second try make no second job."""

from __future__ import annotations

import json
import os

from openpaisdk.errors import Conflict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.client import Cluster

TRIES = 5


def hand_in(cluster: Cluster, job: dict[str, object], rename: Callable[[], str] | None = None) -> str:
    """Submit a job and give its name. A name that was made up and is taken is made up again."""
    for left in range(TRIES, 0, -1):
        try:
            cluster.submit(json.dumps(job), os.urandom(16).hex())
        except Conflict as e:
            if rename and left > 1:
                job["name"] = rename()
                continue
            raise Conflict(
                f"The cluster {cluster.alias} already has a job called {job['name']}.",
                code=e.code,
                hint="Choose another name; a $ in it becomes letters that make it unique (-j 'train_$').",
            ) from None
        break
    return str(job["name"])
