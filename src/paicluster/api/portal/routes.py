"""Routes of the web portal: its page, its files, and OpenPAI's addresses of pages."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from openpaisdk.errors import NotFound
from paicluster.api.portal.bundle import INDEX, Bundle, File

_ABSENT = (
    "This cluster was installed without the web portal; its REST API and `pai` work. "
    "`make portal` in a checkout, or an installation on a machine that reaches an npm registry, adds it.\n"
)
_HEADERS = {
    # Scripts and styles come from files of ours alone, and text never becomes markup.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}
_bundle = Bundle()


async def index(request: Request) -> Response:
    file = _bundle.index()
    if file is None:
        return PlainTextResponse(_ABSENT)
    return _response(request, file, "no-cache")


async def asset(request: Request) -> Response:
    name = request.path_params["file"]
    file = _bundle.file(name) if name != INDEX else None
    if file is None:
        raise NotFound("The web portal has no such file.", hint="Reload the page.")
    # The name contains a hash of the content.
    return _response(request, file, "public, max-age=31536000, immutable")


def _response(request: Request, file: File, cache_control: str) -> Response:
    body, encoding = file.body(request.headers.get("accept-encoding", ""))
    headers = {**_HEADERS, "Cache-Control": cache_control}
    if encoding is not None:
        headers["Content-Encoding"] = encoding
    return Response(body, media_type=file.media_type, headers=headers)


async def job_detail(request: Request) -> Response:
    """OpenPAI's address of a job's page, to which its clients link."""
    get = request.query_params.get
    user, name = get("username", ""), get("jobName", "")
    framework = f"{user}~{name}" if user else name
    attempt = get("attempt")
    more = "?" + urlencode({"attempt": attempt}) if attempt else ""
    return _to(f"/jobs/{quote(framework, safe='~')}{more}" if framework else "/jobs")


async def job_list(request: Request) -> Response:
    """OpenPAI's address of the job list."""
    return _to("/jobs")


def _to(page: str) -> Response:
    # Relative: the server may be below a path of another one.
    return RedirectResponse(f"./#{page}", 302)


ROUTES = [
    ("/", ["GET"], index),
    ("/portal/{file}", ["GET"], asset),
    ("/job-detail.html", ["GET"], job_detail),
    ("/job-list.html", ["GET"], job_list),
]
