"""Event of a version 1 job whose ``codeDir`` contains an entry with its own name, such as ``code/code``.

The working folder of a task has the folder, as in OpenPAI, and its contents (`pairuntime.task.fetch_code`).
Both cannot have the same name there: it is the folder's.
"""

from __future__ import annotations

import asyncio
import posixpath
import time
from urllib.parse import urlsplit

from sqlalchemy import Connection

from paicluster.api.context import Context
from paicluster.auth.tokens import Identity
from paicluster.services.file_service import storage_user
from paicluster.store import jobs
from paiprotocol.errors import PaiError
from paiprotocol.jobs import JobSpec
from paiprotocol.jobs.states import framework_name
from paiprotocol.jobs.storage_layout import path_on_cluster


async def note_code_collision(ctx: Context, identity: Identity, job: JobSpec, own_uri: str) -> None:
    """Add the event, if ``codeDir`` is on the cluster's own storage; of another one the log tells."""
    path = _code_path(job, identity.username, own_uri)
    name = posixpath.basename(path)
    if not name:
        return
    try:
        await asyncio.to_thread(ctx.files.own.storage.status, f"{path}/{name}", storage_user(identity))
    except PaiError:
        return
    message = (
        f"The folder {path} contains another {name}: in the working folder, {name} is the folder itself, as "
        f"in OpenPAI, and the other one is {name}/{name}."
    )

    def write(conn: Connection) -> None:
        row = jobs.get_job(conn, framework_name(identity.username, job.name))
        if row is not None:
            now_ms = int(time.time() * 1000)
            jobs.add_event(
                conn,
                row.id,
                type="Warning",
                reason="CodeDirCollision",
                message=message,
                now_ms=now_ms,
                source="cluster",
            )

    await ctx.store.write(write)


def _code_path(job: JobSpec, username: str, own_uri: str) -> str:
    """Path of ``codeDir`` on the cluster's own storage; empty if it is on another one, or there is none."""
    script = job.prerequisite("script", "default")
    uri = script.uri if script is not None else None
    if not isinstance(uri, str) or not uri:
        return ""
    path = path_on_cluster(uri, username, job.name, frozenset({urlsplit(own_uri).netloc}))
    return posixpath.normpath(path) if path else ""
