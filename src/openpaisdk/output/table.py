"""Text tables: aligned columns separated by two spaces, without rules, easy to copy."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: frozenset[int] = frozenset(),
    paint: Callable[[int, str], str] | None = None,
) -> str:
    """Lines of aligned cells. ``right``: right-aligned columns; ``paint`` colours a cell."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max([width(h), *(width(row[i]) for row in cells)]) for i, h in enumerate(headers)]

    def line(row: Sequence[str], is_coloured: bool) -> str:
        out = []
        for i, cell in enumerate(row):
            gap = " " * (widths[i] - width(cell))
            shown = paint(i, cell) if is_coloured and paint else cell
            out.append(gap + shown if i in right else shown + gap)
        return "  ".join(out).rstrip()

    return "\n".join([line(headers, False), *(line(row, True) for row in cells)])


def printable(text: str) -> str:
    """Escape control characters: untrusted text in a cell must not move the cursor or break the line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def width(text: str) -> int:
    """The number of terminal columns of the text."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
