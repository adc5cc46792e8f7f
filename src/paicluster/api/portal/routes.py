"""Routes of the web portal: its page, its files, and OpenPAI's addresses of pages."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from paicluster.api.portal.bundle import INDEX, Bundle, File
from paicluster.api.routing.authority import PUBLIC
from paicluster.api.routing.route import Routes
from paiprotocol.errors import NotFound

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

route = Routes(other_methods=405)


@route("GET /", authority=PUBLIC)
async def index(request: Request) -> Response:
    file = _bundle.index()
    if file is None:
        return PlainTextResponse(_ABSENT)
    return _response(request, file, "no-cache")


@route("GET /portal/{file}", authority=PUBLIC)
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
