"""Printing of results (stdout) and notices (stderr)."""

from __future__ import annotations

import sys

from openpaisdk.output.suggested_commands import in_context
from openpaisdk.output.untrusted_text import is_printable, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

FORMATS = ("table", "json", "yaml")


def show(value: object, output_format: str, render: Callable[[], str]) -> None:
    """Print a result: ``value`` as JSON or YAML, or the text of ``render`` as table. Once per command."""
    if output_format == "json":
        text = _json(value)
    elif output_format == "yaml":
        text = _yaml(value)
    else:
        text = visible(render())
    if text:
        _write(text + "\n")


def show_csv(records: Sequence[Mapping[str, object]]) -> None:
    """Print records with the same keys as CSV: a line with the keys, one for each record; None is empty.

    Texts are as they are, for programs; at a terminal without the characters that control it.
    """
    if not records:
        return
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(records[0])
    writer.writerows(record.values() for record in records)
    text = out.getvalue()
    _write(visible(text) if sys.stdout.isatty() else text)


def show_all(values: Iterable[object], output_format: str, render: Callable[[], Iterable[str]]) -> None:
    """Print a list that may be long: items are produced one at a time."""
    is_empty = True
    if output_format == "json":
        for value in values:
            _write(("[\n  " if is_empty else ",\n  ") + _json(value).replace("\n", "\n  "))
            is_empty = False
        _write("[]\n" if is_empty else "\n]\n")
    elif output_format == "yaml":
        for value in values:
            _write(_yaml([value]) + "\n")
            is_empty = False
        _write("[]\n" if is_empty else "")
    else:
        for line in render():
            _write(visible(line) + "\n")


def _json(value: object) -> str:
    import json

    text = json.dumps(value, indent=2, ensure_ascii=False)
    if not text.isascii() and not is_printable(text):
        # Bytes of file names that are not UTF-8 would make the JSON invalid; others would control a terminal.
        text = json.dumps(value, indent=2)
    return text


def _yaml(value: object) -> str:
    import yaml

    def dump(allow_unicode: bool) -> str:
        text: str = yaml.safe_dump(
            value, sort_keys=False, allow_unicode=allow_unicode, default_flow_style=False
        )
        return text.rstrip("\n")

    text = dump(True)
    return text if is_printable(text) else dump(False)


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:  # the terminal's encoding lacks some characters of the result
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def print_notice(text: str) -> None:
    """Print a notice for the user. It goes to stderr, so that it never mixes with the result."""
    sys.stdout.flush()
    try:
        sys.stderr.write(visible(in_context(text)) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # stderr is closed; the result still counts
