"""Tables of the routes in the documentation, generated from their declarations.

``python -m paicluster.api.route_reference docs`` writes them: all routes into `rest-api.md`, kinds of tokens
into `contributing/api.md`, bounds of bodies into `contributing/bounds.md`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from paicluster.api.routes import DESCRIBED_ROUTES, PADDLECLOUD_ROUTES, ROUTES
from paicluster.api.routing.authority import JOBS, JOBS_V1, READABLE_BY_TICKET, Authority
from paicluster.api.routing.route import Bound, Route
from paicluster.auth.tokens import TokenKind

_KINDS = (TokenKind.LOGIN, TokenKind.APPLICATION, TokenKind.JOB, TokenKind.DELEGATION)
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_UNITS = ((1 << 20, "MiB"), (1 << 10, "KiB"))


def authority_table() -> str:
    """All routes by path, one row for each authority."""
    methods_of: dict[tuple[str, Authority], list[str]] = {}
    for route in _sorted_routes():
        methods_of.setdefault((route.path, route.authority), []).extend(route.methods)
    heads = ("route", "methods", "without a token", *map(str, _KINDS))
    rows = (
        (_shown(path), ", ".join(methods), _without_token(authority), *(_cell(authority, k) for k in _KINDS))
        for (path, authority), methods in methods_of.items()
    )
    return _table(heads, rows)


def _without_token(authority: Authority) -> str:
    if authority.is_public:
        return "yes"
    if authority.takes_ticket:
        return "with a ticket"
    return "if the settings allow it" if authority.allows_anonymous else "-"


def _cell(authority: Authority, kind: TokenKind) -> str:
    if kind not in authority.kinds:
        return "-"
    if authority.admin:
        return "administrators"
    restricted = kind is TokenKind.JOB and authority in (JOBS, JOBS_V1, READABLE_BY_TICKET)
    return "of its user" if restricted else "yes"


def bounds_table() -> str:
    """All routes that read a body by path, one row for each bound."""
    methods_of: dict[tuple[str, int | Bound], list[str]] = {}
    for route in _sorted_routes():
        for method in route.methods:
            bound = route.bound(method)
            if bound is not None:
                methods_of.setdefault((route.path, bound), []).append(method)
    rows = (
        (_shown(path), ", ".join(methods), bound_text(bound)) for (path, bound), methods in methods_of.items()
    )
    return _table(("route", "methods", "body"), rows)


def bound_text(bound: int | Bound) -> str:
    """A bound for people: ``1 MiB``, ``32 MiB + 64 KiB``, ``streamed``."""
    if isinstance(bound, Bound):
        return bound.value
    parts = []
    for size, unit in _UNITS:
        count, bound = divmod(bound, size)
        parts += [f"{count} {unit}"] if count else []
    return " + ".join([*parts, f"{bound} bytes"] if bound else parts)


# Sections of docs/rest-api.md by the tag of their routes.
_SECTION_OF_TAG = {
    **dict.fromkeys(("authn", "token"), "tokens"),
    **dict.fromkeys(("job", "log", "sources"), "jobs"),
    **dict.fromkeys(("user", "group", "quota"), "users and groups"),
    **dict.fromkeys(("virtual cluster", "kubernetes", "alert", "cluster"), "virtual clusters and nodes"),
    "storage": "storages",
    **dict.fromkeys(("api", "server"), "the server"),
    "version 1": "version 1",
}
_PADDLECLOUD_SECTION = "PaddleCloud"
_SECTIONS = (*dict.fromkeys(_SECTION_OF_TAG.values()), _PADDLECLOUD_SECTION)
# The page says in words that these parts of a path have a second name.
_ALIASES = {"/user": "/users", "/group": "/groups"}


def route_table(section: str) -> str:
    """Routes of a section of docs/rest-api.md, one row for each declaration."""
    paths_of: dict[tuple[str, str, str], list[str]] = {}
    for route in DESCRIBED_ROUTES:
        if _section(route) == section:
            query = ", ".join(f"`{query.name}`" for query in route.query)
            paths_of.setdefault((", ".join(route.methods), route.summary, query), []).append(route.path)
    rows = (
        (methods, "<br>".join(map(_shown, _without_aliases(paths))), summary, query)
        for (methods, summary, query), paths in paths_of.items()
    )
    return _table(("methods", "path", "what it does", "query"), rows)


def _section(route: Route) -> str:
    if route in PADDLECLOUD_ROUTES:
        return _PADDLECLOUD_SECTION
    return "version 1" if route.path.startswith("/api/v1") else _SECTION_OF_TAG[route.tag]


def _without_aliases(paths: list[str]) -> list[str]:
    def usual(path: str) -> str:
        for alias, name in _ALIASES.items():
            path = re.sub(f"^/api/v2{alias}(?=/|$)", f"/api/v2{name}", path)
        return path

    return list(dict.fromkeys(map(usual, paths)))


def _sorted_routes() -> list[Route]:
    return sorted(ROUTES, key=lambda route: route.path)


def _shown(path: str) -> str:
    return "`" + _PARAMETER.sub(r"{\1}", path) + "`"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "".join("| " + " | ".join(row) + " |\n" for row in (heads, ("---",) * len(heads), *rows))


_TABLES: dict[str, dict[str, Callable[[], str]]] = {
    "rest-api.md": {f"routes, {section}": partial(route_table, section) for section in _SECTIONS},
    "api.md": {"token kinds": authority_table},
    "bounds.md": {"bodies": bounds_table},
}


def current_page(path: Path) -> str:
    """A page of the documentation with current tables between their markers."""
    page = path.read_text(encoding="utf-8")
    for name, table in _TABLES[path.name].items():
        begin, end = f"<!-- {name}: generated by `make docs` -->\n", f"<!-- end of {name} -->\n"
        before, _, rest = page.partition(begin)
        _, marker, after = rest.partition(end)
        if not marker:
            raise ValueError(f"{path} has no place for the table: {begin.strip()}")
        page = before + begin + table() + end + after
    return page


if __name__ == "__main__":
    for _name in ("rest-api.md", "contributing/api.md", "contributing/bounds.md"):
        _path = Path(sys.argv[1], _name)
        _path.write_text(current_page(_path), encoding="utf-8")
