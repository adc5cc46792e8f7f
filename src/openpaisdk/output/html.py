"""HTML tables for notebooks. Every cell is escaped: names and commands are not HTML."""

from __future__ import annotations

from html import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_LINES = "text-align: left; white-space: pre-wrap"


def html_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a header row."""
    head = "".join(f"<th>{escape(name)}</th>" for name in headers)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def html_progress(done: int, total: int) -> str:
    """A bar with what is done of a total."""
    return f'<progress value="{done}" max="{total}" style="width: 20em"></progress>'


def html_fields(fields: Mapping[str, str]) -> str:
    """A table of one object: its fields by name. Empty ones are left out; lines stay lines."""
    rows = "".join(
        f'<tr><th>{escape(name)}</th><td style="{_LINES}">{escape(value)}</td></tr>'
        for name, value in fields.items()
        if value
    )
    return f"<table>{rows}</table>"
