"""Prometheus' questions, as far as they can be answered without one: what the figures are now.

Clients of the original ask at `/prometheus`. A plain selector of a figure of ours is answered with its value;
anything about figures that there are none of, with nothing, as Prometheus itself does. For the rest a
Prometheus is needed, which has `/metrics` to look at.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from paicluster.api import server_status
from paicluster.api.responses import json_response, mapping_of, read_body

_SAMPLE = re.compile(r"^(?P<name>[a-z_:]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_SELECTOR = re.compile(r"\s*(?P<name>[a-zA-Z_:][\w:]*)?\s*(?:\{(?P<matchers>.*)\})?\s*", re.DOTALL)
_MATCHER = re.compile(r"""\s*(\w+)\s*(=~|!~|!=|=)\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')\s*(?:,|$)""")
_NUMBER = re.compile(r"-?\d{1,12}(\.\d{1,9})?", re.ASCII)
_LONGEST = 10_000

Labels = dict[str, str]
Match = Callable[[Labels], bool]


class _Refused(Exception):
    """A question that gets an answer in Prometheus' own words."""

    def __init__(self, status: int, kind: str, message: str):
        super().__init__(message)
        self.status = status
        self.kind = kind


async def query(request: Request) -> Response:
    """The value of a figure now."""

    def shaped(found: list[tuple[Labels, str]], given: dict[str, str]) -> dict[str, Any]:
        at = _moment(given, "time") or time.time()
        return {
            "resultType": "vector",
            "result": [{"metric": labels, "value": [at, value]} for labels, value in found],
        }

    return await _answered(request, shaped)


async def query_range(request: Request) -> Response:
    """The same as a series, of which only the present is known."""

    def shaped(found: list[tuple[Labels, str]], given: dict[str, str]) -> dict[str, Any]:
        now = time.time()
        start, end = _moment(given, "start"), _moment(given, "end")
        if start is None or end is None:
            raise _Refused(400, "bad_data", 'invalid parameter "start" or "end": cannot parse "" to a time')
        # A client that asks up to this moment was a little earlier than we are.
        seen = found if start <= now <= end + 60 else []
        return {
            "resultType": "matrix",
            "result": [{"metric": labels, "values": [[min(now, end), value]]} for labels, value in seen],
        }

    return await _answered(request, shaped)


async def _answered(
    request: Request, shaped: Callable[[list[tuple[Labels, str]], dict[str, str]], dict[str, Any]]
) -> Response:
    try:
        lines = await server_status.metric_lines(request)
        given = dict(request.query_params)
        if request.method == "POST":
            body = await read_body(request, 1 << 20)
            given |= {key: str(value) for key, value in mapping_of(request, body).items()} if body else {}
        found = evaluate_selector(given.get("query", ""), lines)
        return json_response({"status": "success", "data": shaped(found, given)})
    except _Refused as error:
        return json_response({"status": "error", "errorType": error.kind, "error": str(error)}, error.status)


def evaluate_selector(text: str, lines: list[str]) -> list[tuple[Labels, str]]:
    if not text.strip() or len(text) > _LONGEST:
        raise _Refused(400, "bad_data", 'invalid parameter "query": unknown position: parse error')
    samples = list(_samples(lines))
    selector = _SELECTOR.fullmatch(text)
    if selector is None or not (selector["name"] or selector["matchers"]):
        if any(re.search(rf"\b{labels['__name__']}\b", text) for labels, _ in samples):
            raise _Refused(
                422,
                "execution",
                "this cluster answers plain selectors of its figures; for more, scrape /metrics",
            )
        return []
    matches = list(_matchers(selector["matchers"] or ""))
    if selector["name"]:
        matches.append(lambda labels: labels["__name__"] == selector["name"])
    return [(labels, value) for labels, value in samples if all(match(labels) for match in matches)]


def _samples(lines: list[str]) -> Iterator[tuple[Labels, str]]:
    for line in lines:
        if sample := _SAMPLE.match(line):
            labels = {name: _plain(value) for name, value in _LABEL.findall(sample["labels"] or "")}
            yield {"__name__": sample["name"], **labels}, sample["value"]


def _matchers(text: str) -> Iterator[Match]:
    at = 0
    while at < len(text.rstrip()):
        found = _MATCHER.match(text, at)
        if found is None:
            raise _Refused(
                400, "bad_data", 'invalid parameter "query": parse error: unexpected label matcher'
            )
        name, operator = found[1], found[2]
        wanted = _plain(found[3] if found[3] is not None else found[4])
        yield _matcher(name, operator, wanted)
        at = found.end()


def _matcher(name: str, operator: str, wanted: str) -> Match:
    if operator in ("=", "!="):
        return lambda labels: (labels.get(name, "") == wanted) is (operator == "=")
    # Of expressions only what every engine reads alike and in time that cannot grow: words with `|` between.
    if not re.fullmatch(r"[\w .:/{}~-]*(\.[*+])?(\|[\w .:/{}~-]*(\.[*+])?)*", wanted):
        raise _Refused(
            422, "execution", "this cluster matches labels by words with | between, and .* at their end"
        )
    parts = wanted.split("|")

    def fits(labels: Labels) -> bool:
        value = labels.get(name, "")
        return any(
            value.startswith(part[:-2]) and (part.endswith("*") or len(value) > len(part) - 2)
            if part.endswith((".*", ".+"))
            else value == part
            for part in parts
        )

    return lambda labels: fits(labels) is (operator == "=~")


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


def _moment(given: dict[str, str], name: str) -> float | None:
    text = given.get(name, "")
    if not text:
        return None
    try:
        moment = float(text) if _NUMBER.fullmatch(text) else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise _Refused(400, "bad_data", f'invalid parameter "{name}": cannot parse it to a time') from None
    return moment
