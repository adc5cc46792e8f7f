"""Notebooks for tests, and what was executed of them."""

from __future__ import annotations

import json
from pathlib import Path

PYTHON = {"name": "python3", "display_name": "Python 3", "language": "python"}


def cell(source: str, *tags: str) -> dict[str, object]:
    return {
        "cell_type": "code",
        "id": f"c{abs(hash(source)) % 10**8}",
        "metadata": {"tags": list(tags)} if tags else {},
        "source": source,
        "outputs": [],
        "execution_count": None,
    }


def notebook(*cells: str | dict[str, object], kernel: dict[str, str] = PYTHON) -> dict[str, object]:
    return {
        "cells": [cell(item) if isinstance(item, str) else item for item in cells],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def write_notebook(
    path: Path, *cells: str | dict[str, object], kernel: dict[str, str] = PYTHON
) -> dict[str, object]:
    content = notebook(*cells, kernel=kernel)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return content


def texts(path: Path) -> list[str]:
    """The text that each cell of an executed notebook has printed."""
    cells = json.loads(path.read_text())["cells"]
    return ["".join(_text(output) for output in cell.get("outputs", ())) for cell in cells]


def _text(output: dict[str, object]) -> str:
    if output["output_type"] == "error":
        return f"{output['ename']}: {output['evalue']}"
    found = output.get("text", "") or dict(output.get("data", {})).get("text/plain", "")  # type: ignore[call-overload]
    return "".join(found)
