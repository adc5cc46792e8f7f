"""Text tables: aligned columns separated by two spaces, without rules, easy to copy."""

from __future__ import annotations

from openpaisdk.output.untrusted_text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

GAP = 2
ELLIPSIS = "..."


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: frozenset[int] = frozenset(),
    paint: Callable[[int, str], str] | None = None,
    hide: Collection[int] = (),
    columns: int | None = None,
    fit: Sequence[tuple[int, int]] = (),
    keep_ends: frozenset[int] = frozenset(),
) -> str:
    """Lines of aligned cells. ``right``: right-aligned columns; ``paint`` colours a cell; ``hide``: columns
    that are left out.

    ``fit`` is what to do, in this order, while the table is wider than ``columns``: (column, width) shortens
    the cells of a column, down to that width; (column, 0) leaves it out. The cells of ``keep_ends`` are
    shortened in the middle, the others at their end.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max([width(h), *(width(row[i]) for row in cells)]) for i, h in enumerate(headers)]
    shown = [i for i in range(len(headers)) if i not in hide]
    if columns is not None:
        _fit(shown, widths, [width(h) for h in headers], columns, fit)

    def line(row: Sequence[str], is_coloured: bool) -> str:
        out = []
        for i in shown:
            cell = shorten(row[i], widths[i], keep_end=i in keep_ends)
            gap = " " * (widths[i] - width(cell))
            painted = paint(i, cell) if is_coloured and paint else cell
            out.append(gap + painted if i in right else painted + gap)
        return (" " * GAP).join(out).rstrip()

    return "\n".join([line(headers, False), *(line(row, True) for row in cells)])


def _fit(
    shown: list[int], widths: list[int], headers: list[int], columns: int, steps: Sequence[tuple[int, int]]
) -> None:
    """Leave columns out of ``shown`` and reduce ``widths`` until the table fits, or no step is left."""
    for column, least in steps:
        excess = sum(widths[i] + GAP for i in shown) - GAP - columns
        if excess <= 0:
            return
        if column not in shown:
            continue
        if least == 0:
            shown.remove(column)
        else:
            widths[column] = min(widths[column], max(widths[column] - excess, least, headers[column]))


def shorten(text: str, columns: int, *, keep_end: bool = False) -> str:
    """The text in at most ``columns`` columns, with an ellipsis for what is missing."""
    if width(text) <= columns:
        return text
    space = max(0, columns - len(ELLIPSIS))
    end = space // 2 if keep_end else 0
    tail = text[len(text) - end :] if end else ""
    head = text
    while head and width(head) + width(tail) > space:
        head = head[: -max(1, (width(head) + width(tail) - space) // 2)]
    return head.rstrip() + ELLIPSIS[: columns - width(head)] + tail


def width(text: str) -> int:
    """The number of terminal columns of the text."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
