"""Addresses of pages of OpenPAI's web portal, in all its versions: each leads to the page that has the same.

Users have them as bookmarks, and clients link to them. What the query selects is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from paicluster.api.routing.authority import PUBLIC
from paicluster.api.routing.route import Handler, Routes

Query = Mapping[str, str]

route = Routes(other_methods=405)

_STATES = frozenset({"WAITING", "RUNNING", "STOPPING", "SUCCEEDED", "FAILED", "STOPPED"})


def page_of(name: str, query: Query) -> str:
    """The portal's page, as behind the ``#``, for the file name of a page of OpenPAI."""
    page = _PAGES[name]
    return page if isinstance(page, str) else page(query)


def _with_query(page: str, **values: str) -> str:
    chosen = {name: value for name, value in values.items() if value}
    return f"{page}?{urlencode(chosen)}" if chosen else page


def _framework(query: Query) -> str:
    """Full name of the job that a query names; pages of OpenPAI spell the parameters in several ways."""
    name = query.get("jobName") or query.get("jobname") or ""
    user = query.get("username") or query.get("userName") or query.get("user") or ""
    return f"{user}~{name}" if user and name else name


def _job(query: Query, tab: str = "") -> str:
    framework = _framework(query)
    if not framework:
        return _jobs(query)
    return _with_query(
        f"/jobs/{quote(framework, safe='~')}",
        attempt=query.get("attempt") or query.get("jobAttemptIndex") or "",
        tab=tab,
        role=query.get("taskRoleName", ""),
        index=query.get("taskIndex", ""),
    )


def _jobs(query: Query) -> str:
    state = query.get("status", "").upper()
    return _with_query(
        "/jobs",
        vc=query.get("vcName", ""),
        state=state if state in _STATES else "",
        user=query.get("user", ""),
        keyword=query.get("keyword", ""),
    )


def _submit(query: Query) -> str:
    """The page for a new job, or for a copy of a job. Drafts of OpenPAI in the browser are not read."""
    return _with_query("/submit", clone=_framework(query))


def _login(query: Query) -> str:
    """The page that sent the user to sign in: the portal shows its form on every page without a login."""
    try:
        origin = urlsplit(query.get("origin") or query.get("from") or "")
    except ValueError:  # no address
        return "/home"
    name = origin.path.lstrip("/")
    return (
        page_of(name, dict(parse_qsl(origin.query))) if name in _PAGES and name != "login.html" else "/home"
    )


_PAGES: dict[str, str | Callable[[Query], str]] = {
    "index.html": "/home",
    "home.html": "/home",
    "login.html": _login,
    "submit.html": _submit,
    "submit_v1.html": _submit,
    "submit-v2.html": _submit,
    "submit_demo.html": _submit,
    "job-transfer.html": _submit,
    "plugin.html": _submit,
    "job-list.html": _jobs,
    "view.html": _job,
    "job-detail.html": _job,
    "job-retry.html": lambda query: _job(query, "timeline"),
    "job-event.html": lambda query: _job(query, "timeline"),
    "task-attempt.html": lambda query: _job(query, "log"),
    "virtual-clusters.html": "/cluster",
    "dashboard.html": "/cluster",
    "cluster-view/services.html": "/cluster",
    "cluster-view/hardware.html": "/cluster",
    "cluster-view/hardware/detail.html": "/cluster",
    "cluster-view/k8s.html": "/cluster",
    "user-profile.html": "/profile",
    "change-password.html": "/profile",
    "user-view.html": "/admin",
    "batch-register.html": "/admin",
    "register.html": "/admin",
    "docs.html": "/home",
}


def _redirect_from(name: str) -> Handler:
    # Relative: the server may be below a path of another one.
    root = "../" * name.count("/") or "./"

    async def redirect(request: Request) -> Response:
        return RedirectResponse(f"{root}#{page_of(name, request.query_params)}", 302)

    return redirect


for _name in _PAGES:
    route(f"GET /{_name}", authority=PUBLIC)(_redirect_from(_name))
