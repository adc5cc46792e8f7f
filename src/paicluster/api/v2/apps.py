"""Route that opens the web server of a task in a browser: TensorBoard, Jupyter, or any other."""

from __future__ import annotations

from urllib.parse import urlencode, urlsplit

from starlette.requests import Request

from paicluster.api.context import context
from paicluster.api.requests.own_url import own_url
from paicluster.api.routing.authority import JOBS
from paicluster.api.routing.route import Query, Routes
from paicluster.api.v2.forward import FORWARD, port_param
from paicluster.api.v2.notebook_page import notebook_page
from paicluster.api.v2.running_task import requested_task
from paicluster.api.wire.jobs import AppLink, Count
from paiprotocol.errors import PaiError

route = Routes("job")

OPEN_PATH = "/.pai/open"
"""Of the app's own address: where a ticket is exchanged for a cookie."""


@route(
    "POST /api/v2/jobs/{framework}/apps",
    authority=JOBS,
    summary="A link that opens a port of a task in a browser, once, at an address of its own",
    query=(
        Query("role"),
        Query("index", Count),
        Query("port", Count, description="Required."),
        Query("to", description="Path of the app to which the link leads."),
    ),
    errors=(409, 501),
    other_methods=405,
)
async def open_app(request: Request) -> AppLink:
    """Issue a link that opens a port of a task in a browser, once.

    The app has an address of its own, another port of the server: its pages are no pages of the portal.
    """
    identity, task = await requested_task(request, FORWARD)
    port = port_param(request)
    apps = context(request).web_apps
    if apps is None:
        raise PaiError(
            "This cluster opens no apps of jobs in a browser.",
            status=501,
            code="NoAppsError",
            hint="Use `pai forward`.",
        )
    app = await apps.open(identity, task.job, task.role, task.index, port)
    host = urlsplit(own_url(request)).hostname or "localhost"
    name = f"[{host}]" if ":" in host else host
    query = {"ticket": app.ticket}
    if to := request.query_params.get("to") or await notebook_page(context(request), task, port):
        query["to"] = to
    url = f"{app.scheme}://{name}:{app.port}{OPEN_PATH}?{urlencode(query)}"
    return AppLink(url, task.role, task.index, port)
