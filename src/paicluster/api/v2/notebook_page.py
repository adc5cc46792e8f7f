"""Page of an interactive notebook: it opens in a browser with the token that its Jupyter server expects."""

from __future__ import annotations

import json
import re
from urllib.parse import urlencode

from paicluster.api.context import Context
from paicluster.api.v2.running_task import ReachableTask
from paicluster.store import jobs
from paicluster.store.rows import JobSpecRow

# As `pai notebook-job --interactive` submits it.
_PORT_LABEL = "jupyter"
_TOKEN = "JUPYTER_TOKEN"
_EXPORTED_TOKEN = re.compile(rf"export {_TOKEN}=([\w.~-]+)")


async def notebook_page(ctx: Context, task: ReachableTask, port: int) -> str:
    """Path with the token, if this port is that of a notebook's Jupyter server; else empty.

    Who may open a port of a task may run commands in it, too, where the token is a variable.
    """
    if port not in json.loads(task.ports).get(_PORT_LABEL, ()):
        return ""
    spec = await ctx.store.read(lambda conn: jobs.job_spec(conn, task.job.id))
    token = "" if spec is None else _token(ctx, task.job.framework, spec)
    return f"/?{urlencode({'token': token})}" if token else ""


def _token(ctx: Context, framework: str, spec: JobSpecRow) -> str:
    if spec.sealed is not None:
        secrets = json.loads(ctx.identity.sealer.unseal(spec.sealed, framework))
        if isinstance(secrets.get(_TOKEN), str):
            return str(secrets[_TOKEN])
    exported = _EXPORTED_TOKEN.search(spec.job)
    return exported[1] if exported else ""
