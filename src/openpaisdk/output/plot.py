"""Plot of a curve in a terminal, with dots of half a character's height."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_HALVES = {(True, True): "█", (True, False): "▀", (False, True): "▄", (False, False): " "}


def plot(steps: Sequence[int], values: Sequence[float], width: int = 60, height: int = 8) -> str:
    """The plot as text: range of values on the left, range of steps below. Omits NaN and infinity."""
    points = [(step, value) for step, value in zip(steps, values, strict=True) if math.isfinite(value)]
    if not points:
        return "(no numbers)"
    first, last = min(step for step, _ in points), max(step for step, _ in points)
    low, high = min(value for _, value in points), max(value for _, value in points)
    rows = height * 2
    grid = [[False] * width for _ in range(rows)]
    for step, value in points:
        x = round((step - first) / ((last - first) or 1) * (width - 1))
        y = round((high - value) / ((high - low) or 1) * (rows - 1))
        grid[y][x] = True
    labels = [f"{high:.4g}", *[""] * (height - 2), f"{low:.4g}"]
    margin = max(map(len, labels))
    lines = []
    for row in range(height):
        upper, lower = grid[2 * row], grid[2 * row + 1]
        cells = "".join(_HALVES[pair] for pair in zip(upper, lower, strict=True))
        lines.append(f"{labels[row]:>{margin}} │{cells.rstrip()}")
    gap = max(1, width - len(str(first)) - len(str(last)))
    lines.append(f"{'':>{margin}} └{'─' * width}")
    lines.append(f"{'':>{margin}}  {first}{' ' * gap}{last}")
    return "\n".join(lines)
