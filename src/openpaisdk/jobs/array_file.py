"""File with the values of an array: CSV, or a JSON object in each line. Each row is a task."""

from __future__ import annotations

import os

from openpaisdk.jobs.task_array import RowArray, add_row, checked_name, split_limit
from paiprotocol.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OPTION = "--array-file"
MAX_BYTES = 4 << 20
_JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
_EXAMPLE = "The first line names the columns, like lr,seed; each line below it is one task, like 0.1,3."


def read_array_file(option: str) -> RowArray:
    """The array of ``params.csv``, ``params.jsonl%8`` (8 tasks at a time) or ``-``, the standard input."""
    path, limit = split_limit(option, option, OPTION)
    file = "the standard input" if path == "-" else path
    text = _text(path, file)
    ending = os.path.splitext(path)[1].lower()
    is_json = ending in _JSON_ENDINGS or (ending != ".csv" and text.lstrip().startswith("{"))
    columns = _json_columns(text, file) if is_json else _csv_columns(text, file)
    return RowArray(columns, limit)


def _text(path: str, file: str) -> str:
    import sys

    try:
        if path == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with open(path, "rb") as source:
                data = source.read(MAX_BYTES + 1)
    except (OSError, ValueError) as e:
        raise UsageError(
            f"{OPTION}: {file} cannot be read: {getattr(e, 'strerror', '') or e}.",
            hint="Give a CSV file, or one with a JSON object in each line.",
        ) from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{OPTION}: {file} is larger than {MAX_BYTES >> 20} MB, which no job may be.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise UsageError(f"{OPTION}: {file}, line {line}: this is not UTF-8 text.") from None


def _csv_columns(text: str, file: str) -> dict[str, list[str]]:
    rows = _csv_rows(text, file)
    line, names = next(rows, (0, []))
    if not line:
        raise UsageError(f"{OPTION}: {file} is empty.", hint=_EXAMPLE)
    columns = _named(names, f"{OPTION}: {file}, line {line}")
    for line, values in rows:
        place = f"{OPTION}: {file}, line {line}"
        if len(values) != len(columns):
            have = "1 value" if len(values) == 1 else f"{len(values)} values"
            raise UsageError(f"{place}: the row has {have}, and there are {len(columns)} columns.")
        add_row(columns, dict(zip(columns, values, strict=True)), place)
    if not any(columns.values()):
        raise UsageError(f"{OPTION}: {file} has no rows below the names of its columns.", hint=_EXAMPLE)
    return columns


def _csv_rows(text: str, file: str) -> Iterator[tuple[int, list[str]]]:
    """The rows, each with the number of its first line. Empty lines are no rows."""
    import csv
    import io

    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
    while True:
        first = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as e:
            raise UsageError(f"{OPTION}: {file}, line {first}: this is no row of CSV: {e}.") from None
        if row:
            yield first, row


def _json_columns(text: str, file: str) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {}
    for line, source in enumerate(text.split("\n"), 1):
        if not source.strip():
            continue
        place = f"{OPTION}: {file}, line {line}"
        row = _json_row(source, place)
        if not columns:
            columns = _named(row, place)
        add_row(columns, row, place)
    if not columns:
        raise UsageError(
            f"{OPTION}: {file} is empty.",
            hint='Each line is a JSON object, and one task, like {"lr": 0.1, "seed": 3}.',
        )
    return columns


def _json_row(source: str, place: str) -> dict[str, object]:
    import json

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in pairs]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"{place}: {twice[0]} is there twice.")
        return dict(pairs)

    try:
        # Numbers stay as the file has them: 0.10 is not 0.1 for a program that makes a file name of it.
        row = json.loads(source, object_pairs_hook=unique, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise UsageError(
            f"{place}: this is no JSON object.",
            hint='Each line is one, like {"lr": 0.1, "seed": 3}; jq -c ".[]" writes a list this way.',
        )
    return row


def _named(names: Iterable[str], place: str) -> dict[str, list[str]]:
    """Empty columns of these names."""
    columns: dict[str, list[str]] = {}
    for number, name in enumerate(map(str.strip, names), 1):
        if not name:
            raise UsageError(f"{place}: column {number} has no name.", hint=_EXAMPLE)
        if name in columns:
            raise UsageError(f"{place}: the column {name} is there twice.")
        try:
            columns[checked_name(name, place)] = []
        except UsageError as error:
            raise UsageError(error.message, hint=_EXAMPLE) from None
    if not columns:
        raise UsageError(f"{place}: there are no names of columns.", hint=_EXAMPLE)
    return columns
