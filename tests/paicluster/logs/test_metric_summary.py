"""Summaries of what programs append to their files of metrics."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from paicluster.logs.metric_summary import MAX_NAME_LENGTH, SeriesSummary, summarize

_NAMES = st.sampled_from(["loss", "val/loss", "größe"])
_VALUES = st.floats() | st.integers(-(10**6), 10**6)
_LINES = st.lists(st.tuples(st.integers(-(2**62), 2**62), st.dictionaries(_NAMES, _VALUES)), max_size=20)


def one(lines: bytes) -> dict[str, SeriesSummary]:
    return summarize(lines)[0]


def line(step: int, values: dict[str, float]) -> bytes:
    def plain(value: float) -> float | str:
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")

    return json.dumps({"step": step, "values": {k: plain(v) for k, v in values.items()}}).encode() + b"\n"


@given(_LINES)
def test_a_summary_is_that_of_the_series(lines: list[tuple[int, dict[str, float]]]) -> None:
    summaries = one(b"".join(line(*each) for each in lines))
    series: dict[str, list[tuple[int, float]]] = {}
    for step, values in lines:
        for name, value in values.items():
            series.setdefault(name, []).append((step, value))
    assert summaries.keys() == series.keys()
    for name, points in series.items():
        summary = summaries[name]
        numbers = [(step, value) for step, value in points if not math.isnan(value)]
        assert summary.count == len(points)
        assert summary.last_step == points[-1][0]
        assert summary.last == points[-1][1] or math.isnan(points[-1][1])
        if not numbers:
            assert (summary.min, summary.min_step, summary.max, summary.max_step) == (None,) * 4
            continue
        assert (summary.min_step, summary.min) == min(numbers, key=lambda point: point[1])
        assert (summary.max_step, summary.max) == max(numbers, key=lambda point: point[1])


@given(st.binary(max_size=200), _LINES)
def test_malformed_lines_are_skipped(garbage: bytes, lines: list[tuple[int, dict[str, float]]]) -> None:
    good = b"".join(line(*each) for each in lines)
    expected = one(good)
    found = one(garbage.replace(b"\n", b" ").replace(b"{", b"(") + b"\n" + good)
    assert {name: summary.count for name, summary in found.items()} == {
        name: summary.count for name, summary in expected.items()
    }


def test_what_is_no_metric_is_left_out() -> None:
    lines = [
        b'{"step": 1, "values": {"loss": NaN}}',  # a word that JSON has not
        b'{"step": 2, "values": {"loss": "0.5", "text": "abc", "nothing": null, "list": [1]}}',
        b'{"step": "x", "values": {"loss": 9}}',
        b'{"step": 1e400, "values": {"loss": 9}}',
        b'{"step": 99999999999999999999, "values": {"loss": 9}}',
        b'{"values": {"loss": 9}}',
        b'{"step": 3, "values": [1]}',
        b'{"step": 3, "values": {"loss": 1' + b"0" * 400 + b"}}",
        b"[" * 100_000,
        b"\xff\xfe",
        b"",
        b'{"step": 4, "values": {"loss": 0.25}',
    ]
    summaries = one(b"\n".join(lines) + b"\n")
    assert list(summaries) == ["loss"]
    loss = summaries["loss"]
    assert (loss.count, loss.last, loss.last_step, loss.min, loss.max) == (2, 0.5, 2, 0.5, 0.5)


def test_names_that_cannot_be_stored_are_reported() -> None:
    for name in ("x" * (MAX_NAME_LENGTH + 1), "a\\u0000b", "\\ud800"):
        summaries, is_omitted = summarize(b'{"step": 1, "values": {"%s": 1, "ok": 2}}\n' % name.encode())
        assert (list(summaries), is_omitted) == (["ok"], True)
    assert summarize(line(1, {"x" * MAX_NAME_LENGTH: 1}))[1] is False
