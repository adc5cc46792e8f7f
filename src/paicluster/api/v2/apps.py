"""Route that opens the web server of a task in a browser: TensorBoard, Jupyter, or any other."""

from __future__ import annotations

from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from openpaisdk.errors import PaiError
from paicluster.api.context import context, own_url
from paicluster.api.responses import json_response
from paicluster.api.v2.forward import FORWARD, port_param
from paicluster.api.v2.running_task import requested_task

OPEN_PATH = "/.pai/open"
"""Of the app's own address: where a ticket is exchanged for a cookie."""


async def open_app(request: Request) -> Response:
    """Issue a link that opens a port of a task in a browser, once.

    The app has an address of its own, another port of the server: its pages are no pages of the portal.
    """
    identity, task = await requested_task(request, FORWARD)
    port = port_param(request)
    apps = context(request).web_apps()
    if apps is None:
        raise PaiError(
            "This cluster opens no apps of jobs in a browser.",
            status=501,
            code="NoAppsError",
            hint="Use `pai forward`.",
        )
    found = await apps.open(identity, task.job, task.role, task.index, port)
    host = urlsplit(own_url(request)).hostname or "localhost"
    name = f"[{host}]" if ":" in host else host
    query = {"ticket": found.ticket}
    if to := request.query_params.get("to"):
        query["to"] = to
    url = f"{found.scheme}://{name}:{found.port}{OPEN_PATH}?{urlencode(query)}"
    return json_response({"url": url, "role": task.role, "index": task.index, "port": port})
