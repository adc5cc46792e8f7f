"""How the administrator's commands print: tables for people, JSON for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def output_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="how to print it")


def show(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], output: str) -> None:
    """``columns``: what stands above each, and the key it shows. As JSON the rows are printed whole."""
    if output == "json":
        json.dump(list(rows), sys.stdout, indent=2)
        print()
        return
    lines = [tuple(columns), *(tuple(_text(row.get(key)) for key in columns.values()) for row in rows)]
    widths = [max(len(line[number]) for line in lines) for number in range(len(columns))]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
