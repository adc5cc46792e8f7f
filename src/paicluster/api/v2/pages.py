"""The addresses of the original's web pages that clients hand to people."""

from __future__ import annotations

import html
import shlex

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from paicluster.api.v2.fields import USERNAME

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
_STYLE = "body{font:16px/1.5 sans-serif;margin:3em auto;max-width:42em}pre{background:#eee;padding:1em}"


async def job_detail(request: Request) -> Response:
    """Where a person can see a job: for now at the command line, which this tells."""
    get = request.query_params.get
    user, name = get("username", ""), get("jobName", "")
    if "~" in name and not user:
        user, _, name = name.partition("~")
    if not (USERNAME.fullmatch(user) and USERNAME.fullmatch(name)):
        return _page("Job", "<p>The address names no job: it needs a username and a jobName.</p>", 400)
    job = shlex.quote(f"{user}~{name}")
    base = str(request.base_url).rstrip("/")
    return _page(
        f"Job {name} of {user}",
        "<p>See it from a shell:</p>"
        f"<pre>pai job-status {job}\npai logs {job}</pre>"
        "<p>or ask the cluster for it:</p>"
        f"<pre>curl -H 'Authorization: Bearer &lt;token&gt;' {html.escape(base)}/api/v2/jobs/{job}</pre>",
    )


def _page(title: str, body: str, status: int = 200) -> Response:
    title = html.escape(title)
    text = (
        f"<!DOCTYPE html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
        f"<h1>{title}</h1>{body}</html>"
    )
    return HTMLResponse(text, status, _HEADERS)
