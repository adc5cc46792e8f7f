"""Prometheus' query API over the current values of the server's own metrics.

OpenPAI clients query it at `/prometheus`. A plain selector of one of our metrics returns its current value; a
query of unknown metrics returns an empty result, as Prometheus does. Everything else needs a real Prometheus
that scrapes `/metrics`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from paicluster.api.monitoring import server_status
from paicluster.api.routing.authority import CLUSTER
from paicluster.api.routing.route import FORM, MAX_ANONYMOUS_BYTES, Body, Either, Query, Routes
from paicluster.api.wire.base import Problem
from paicluster.api.wire.request_body import mapping_of, read_body
from paicluster.api.wire.responses import json_response
from paicluster.api.wire.server import (
    InstantQueryResult,
    InstantSample,
    Matrix,
    PrometheusError,
    RangeQueryResult,
    RangeSamples,
    Vector,
)

route = Routes("server")

_QUERY_BODY = Body({FORM: dict[str, str]}, required=False, limit=MAX_ANONYMOUS_BYTES)

_SAMPLE = re.compile(r"^(?P<name>[a-z_:]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_SELECTOR = re.compile(r"\s*(?P<name>[a-zA-Z_:][\w:]*)?\s*(?:\{(?P<matchers>.*)\})?\s*", re.DOTALL)
_MATCHER = re.compile(r"""\s*(\w+)\s*(=~|!~|!=|=)\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')\s*(?:,|$)""")
_NUMBER = re.compile(r"-?\d{1,12}(\.\d{1,9})?", re.ASCII)
_MAX_QUERY_LENGTH = 10_000

Labels = dict[str, str]
Match = Callable[[Labels], bool]


class _QueryError(Exception):
    """A query that fails, with Prometheus' error type and message."""

    def __init__(self, status: int, kind: str, message: str):
        super().__init__(message)
        self.status = status
        self.kind = kind


@route(
    "GET|POST /prometheus/api/v1/query",
    authority=CLUSTER,
    summary="Current value of a metric, in Prometheus' format",
    query=(Query("query"), Query("time")),
    body=_QUERY_BODY,
    returns={200: InstantQueryResult, 400: Either(PrometheusError, Problem), 422: PrometheusError},
)
async def query(request: Request) -> Response:
    """Instant query."""

    def render(samples: list[tuple[Labels, str]], parameters: dict[str, str]) -> InstantQueryResult:
        at = _timestamp(parameters, "time") or time.time()
        vector = Vector("vector", [InstantSample(labels, (at, value)) for labels, value in samples])
        return InstantQueryResult("success", vector)

    return await _evaluate(request, render)


@route(
    "GET|POST /prometheus/api/v1/query_range",
    authority=CLUSTER,
    summary="Range query of a metric; only the current value is known",
    query=(Query("query"), Query("start"), Query("end"), Query("step")),
    body=_QUERY_BODY,
    returns={200: RangeQueryResult, 400: Either(PrometheusError, Problem), 422: PrometheusError},
)
async def query_range(request: Request) -> Response:
    """Range query. Only the current value is known, so a series has one sample at most."""

    def render(samples: list[tuple[Labels, str]], parameters: dict[str, str]) -> RangeQueryResult:
        now = time.time()
        start, end = _timestamp(parameters, "start"), _timestamp(parameters, "end")
        if start is None or end is None:
            raise _QueryError(
                400, "bad_data", 'invalid parameter "start" or "end": cannot parse "" to a time'
            )
        # A client that queries up to now sent its clock's time before this line is reached.
        current = samples if start <= now <= end + 60 else []
        series = [RangeSamples(labels, [(min(now, end), value)]) for labels, value in current]
        return RangeQueryResult("success", Matrix("matrix", series))

    return await _evaluate(request, render)


async def _evaluate(
    request: Request, render: Callable[[list[tuple[Labels, str]], dict[str, str]], msgspec.Struct]
) -> Response:
    """Result of a query, or an error in Prometheus' format: therefore these routes return responses."""
    try:
        lines = await server_status.metric_lines(request)
        parameters = dict(request.query_params)
        if request.method == "POST":
            body = await read_body(request)
            parameters |= (
                {key: str(value) for key, value in mapping_of(request, body).items()} if body else {}
            )
        samples = evaluate_selector(parameters.get("query", ""), lines)
        return json_response(render(samples, parameters))
    except _QueryError as error:
        return json_response(PrometheusError("error", error.kind, str(error)), error.status)


def evaluate_selector(text: str, lines: list[str]) -> list[tuple[Labels, str]]:
    if not text.strip() or len(text) > _MAX_QUERY_LENGTH:
        raise _QueryError(400, "bad_data", 'invalid parameter "query": unknown position: parse error')
    all_samples = list(_parse_samples(lines))
    selector = _SELECTOR.fullmatch(text)
    if selector is None or not (selector["name"] or selector["matchers"]):
        if any(re.search(rf"\b{labels['__name__']}\b", text) for labels, _ in all_samples):
            raise _QueryError(
                422,
                "execution",
                "this cluster evaluates only plain selectors of its own metrics; for more, scrape /metrics",
            )
        return []
    matches = list(_matchers(selector["matchers"] or ""))
    if selector["name"]:
        matches.append(lambda labels: labels["__name__"] == selector["name"])
    return [(labels, value) for labels, value in all_samples if all(match(labels) for match in matches)]


def _parse_samples(lines: list[str]) -> Iterator[tuple[Labels, str]]:
    for line in lines:
        if sample := _SAMPLE.match(line):
            labels = {name: _unescape(value) for name, value in _LABEL.findall(sample["labels"] or "")}
            yield {"__name__": sample["name"], **labels}, sample["value"]


def _matchers(text: str) -> Iterator[Match]:
    at = 0
    while at < len(text.rstrip()):
        match = _MATCHER.match(text, at)
        if match is None:
            raise _QueryError(
                400, "bad_data", 'invalid parameter "query": parse error: unexpected label matcher'
            )
        name, operator = match[1], match[2]
        value_pattern = _unescape(match[3] if match[3] is not None else match[4])
        yield _matcher(name, operator, value_pattern)
        at = match.end()


def _matcher(name: str, operator: str, value_pattern: str) -> Match:
    if operator in ("=", "!="):
        return lambda labels: (labels.get(name, "") == value_pattern) is (operator == "=")
    # Only the subset of regular expressions with linear matching time: words separated by `|`.
    if not re.fullmatch(r"[\w .:/{}~-]*(\.[*+])?(\|[\w .:/{}~-]*(\.[*+])?)*", value_pattern):
        raise _QueryError(
            422,
            "execution",
            "this cluster matches labels only by words separated by |, each with an optional final .* or .+",
        )
    parts = value_pattern.split("|")

    def matches(labels: Labels) -> bool:
        value = labels.get(name, "")
        return any(
            value.startswith(part[:-2]) and (part.endswith("*") or len(value) > len(part) - 2)
            if part.endswith((".*", ".+"))
            else value == part
            for part in parts
        )

    return lambda labels: matches(labels) is (operator == "=~")


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text)


def _timestamp(parameters: dict[str, str], name: str) -> float | None:
    text = parameters.get(name, "")
    if not text:
        return None
    try:
        timestamp = float(text) if _NUMBER.fullmatch(text) else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise _QueryError(400, "bad_data", f'invalid parameter "{name}": cannot parse it to a time') from None
    return timestamp
