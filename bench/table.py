"""Result table: what, ours, reference, ratio, goal, verdict; and the switch for smoke runs."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

# A figure whose runs differ by more than this does not count.
MAX_SPREAD = 0.30
SMOKE = bool(os.environ.get("PAI_BENCH_SMOKE"))
"""Run everything once with tiny sizes: checks the benchmarks, not the product."""


def sized(full: T, smoke: T) -> T:
    """A size, count or duration of a real run, or its tiny value for a smoke run."""
    return smoke if SMOKE else full


@dataclass(frozen=True)
class Row:
    what: str
    ours: str
    reference: str
    ratio: str
    goal: str
    met: bool
    spread: float = 0.0
    is_measured: bool = True

    @property
    def verdict(self) -> str:
        if self.spread > MAX_SPREAD or not self.is_measured:
            return "not measured"
        return "met" if self.met else "NOT MET"


def alternate(
    ours: Callable[[], float], reference: Callable[[], float], runs: int = 7
) -> tuple[list[float], list[float]]:
    """Run both alternately, so that other load on the machine affects both alike. A smoke run runs once."""
    first, second = [], []
    for _ in range(sized(runs, 1)):
        first.append(ours())
        second.append(reference())
    return first, second


def spread(values: Iterable[float]) -> float:
    """Interquartile range of the runs, relative to the median."""
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
    """Row of a ratio of medians; its spread is that of the ratios of the pairs."""
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
    """Row of a figure with an absolute goal."""
    value = statistics.median(values)
    met = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
    goal = f"<= {show(at_most)}" if at_most is not None else f">= {show(at_least or 0)}"
    return Row(what, show(value), reference, "-", goal, met, spread(values))


def skipped_row(part: str, reason: str) -> Row:
    """Row of a part that cannot be measured on this machine: "not measured: podman is missing"."""
    return Row(f"{part}: not measured: {reason}", "-", "-", "-", "-", met=False, is_measured=False)


def failed_row(part: str, error: Exception) -> Row:
    """Row of a part that raised an error, with the first line of its message."""
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
