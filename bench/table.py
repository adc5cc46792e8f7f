"""One table: what, ours, reference, ratio, goal, met or not."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# A figure whose runs differ by more than this is not a figure.
LARGEST_SPREAD = 0.30


@dataclass(frozen=True)
class Row:
    what: str
    ours: str
    reference: str
    ratio: str
    goal: str
    met: bool
    spread: float = 0.0

    @property
    def verdict(self) -> str:
        if self.spread > LARGEST_SPREAD:
            return "not measured"
        return "met" if self.met else "NOT MET"


def alternate(
    ours: Callable[[], float], reference: Callable[[], float], runs: int = 7
) -> tuple[list[float], list[float]]:
    """Run both in turn, so that whatever else the machine does hits both alike."""
    first, second = [], []
    for _ in range(runs):
        first.append(ours())
        second.append(reference())
    return first, second


def spread(values: Iterable[float]) -> float:
    """How far the middle half of the runs lies apart, as a part of the median."""
    ordered = sorted(values)
    if len(ordered) < 4:
        return 0.0
    low, _, high = statistics.quantiles(ordered, n=4)
    return (high - low) / statistics.median(ordered)


def ratio_row(
    what: str,
    ours: list[float],
    reference: list[float],
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    show: Callable[[float], str],
) -> Row:
    """The ratio of the medians; its spread is that of the ratios of the pairs."""
    ratio = statistics.median(ours) / statistics.median(reference)
    pairs = [a / b for a, b in zip(ours, reference, strict=True)]
    met = (at_most is None or ratio <= at_most) and (at_least is None or ratio >= at_least)
    goal = f"<= {at_most:g}x" if at_most is not None else f">= {at_least:g}x"
    return Row(
        what,
        show(statistics.median(ours)),
        show(statistics.median(reference)),
        f"{ratio:.2f}x",
        goal,
        met,
        spread(pairs),
    )


def limit_row(
    what: str,
    values: list[float],
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    show: Callable[[float], str],
    reference: str = "-",
) -> Row:
    """A figure held against a number."""
    value = statistics.median(values)
    met = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
    goal = f"<= {show(at_most)}" if at_most is not None else f">= {show(at_least or 0)}"
    return Row(what, show(value), reference, "-", goal, met, spread(values))


def failed_row(part: str, error: Exception) -> Row:
    """A part that could not be measured, and why: the first line of its error."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return Row(f"{part}: failed: {reason[:100]}", "-", "-", "-", "-", met=False)


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def print_table(rows: list[Row]) -> None:
    head = ("what", "ours", "reference", "ratio", "goal", "spread", "verdict")
    cells = [
        (r.what, r.ours, r.reference, r.ratio, r.goal, f"{r.spread * 100:.0f} %", r.verdict) for r in rows
    ]
    widths = [max(len(row[i]) for row in [head, *cells]) for i in range(len(head))]
    for row in [head, tuple("-" * w for w in widths), *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
