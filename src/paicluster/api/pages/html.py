"""HTML builder: text is escaped unless it is `Html` already."""

from __future__ import annotations

import html

from starlette.responses import HTMLResponse, Response

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none';"
        " frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
}
_VOID_ELEMENTS = frozenset({"br", "input", "meta"})
_STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8882}
body{font:16px/1.5 system-ui,sans-serif;margin:2.5rem auto;max-width:64rem;padding:0 1rem}
h1{font-size:1.6rem;margin:0 0 .3rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .8rem .3rem 0;
border-bottom:1px solid var(--line);vertical-align:top}th{font-weight:600}
pre{background:var(--soft);padding:.8rem;overflow:auto;border-radius:.4rem}
.state{display:inline-block;padding:.1rem .7rem;border-radius:1rem;color:#fff;background:#667}
.SUCCEEDED{background:#1a7f37}.FAILED{background:#b3261e}.RUNNING{background:#0b5fb0}.WAITING{background:#8a6100}
.quiet{opacity:.7}label{display:block;margin:.8rem 0}input{font:inherit;padding:.3rem .5rem;width:20rem}
button{font:inherit;padding:.3rem 1rem}.top{display:flex;justify-content:space-between;gap:1rem}
summary{cursor:pointer;font-weight:600;margin:1.5rem 0 .5rem}
"""


class Html(str):
    """A string that is HTML already."""

    __slots__ = ()


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """An element; children and attributes that are None are left out. A trailing _ of a name is dropped."""
    rendered = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID_ELEMENTS:
        return Html(f"<{name}{rendered}>")
    return Html(f"<{name}{rendered}>{join(*children)}</{name}>")


def join(*children: object) -> Html:
    return Html(
        "".join(
            child if isinstance(child, Html) else html.escape(str(child))
            for child in children
            if child is not None
        )
    )


def page(title: str, *body: object, status: int = 200, refresh_s: int | None = None) -> Response:
    """A whole page; with ``refresh_s`` the browser reloads it after that time."""
    refresh = None if refresh_s is None else element("meta", http_equiv="refresh", content=refresh_s)
    head = join(
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width"),
        refresh,
        element("title", title),
        # A constant of ours; the text of a style element must not be escaped.
        element("style", Html(_STYLE)),
    )
    text = f'<!DOCTYPE html><html lang="en"><head>{head}</head><body>{join(*body)}</body></html>'
    return HTMLResponse(text, status, HEADERS)
