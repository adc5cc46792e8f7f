"""Index of routes by the beginning of their paths.

Starlette compares a path with one route after the other, which takes longer than many a handler: 150 µs for
the last of 240 routes. A request is compared only with routes whose path may begin as its own does. A group
of routes is compiled at its first request: all of them would be a tenth of the server's start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.routing import Route

from paicluster.api.routing.route import Responder

RouteRow = tuple[str, Sequence[str], Responder]
"""Path, methods and handler."""


class _Count(IntegerConvertor):
    """A number in a path. A longer one than the server ever issues becomes one that matches nothing."""

    def convert(self, value: str) -> int:
        return int(value) if len(value) <= 9 else 10**9


register_url_convertor("count", _Count())


class RouteIndex:
    """Applications by the first parts of a path (`/api/v2/jobs`, `/webhdfs/v1`), and one with all routes."""

    def __init__(self, rows: Sequence[RouteRow], application: Callable[[Sequence[Route]], Starlette]):
        self._rows = rows
        self._application = application
        self._beginnings = {_beginning(path) for path, _, _ in rows} - {""}
        self._groups: dict[str, Starlette] = {}

    def application_for(self, path: str) -> Starlette:
        """The application with all routes that this path may match, and few others."""
        parts = path.split("/", 4)
        for beginning in ("/".join(parts[:4]), "/".join(parts[:3])):
            if beginning in self._beginnings:
                break
        else:
            beginning = ""
        group = self._groups.get(beginning)
        if group is None:
            group = self._groups[beginning] = self._application(self._routes(beginning))
        return group

    def _routes(self, beginning: str) -> list[Route]:
        return [
            Route(path, handler, methods=list(methods))
            for path, methods, handler in self._rows
            if _may_match(path, beginning)
        ]


def _literal(path: str) -> str:
    """The part of a route's path before its first parameter."""
    return path.partition("{")[0]


def _beginning(path: str) -> str:
    """The first three parts of a route's path, or two if the third is a parameter; empty if it has fewer."""
    parts = _literal(path).rstrip("/").split("/")
    return "/".join(parts[:4]) if len(parts) > 2 else ""


def _may_match(route_path: str, beginning: str) -> bool:
    literal = _literal(route_path)
    return literal.startswith(beginning) or f"{beginning}/".startswith(literal)
