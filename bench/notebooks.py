"""`pai notebook-job`: from the command to the page here, against `jupyter nbconvert --execute` beside it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from bench.cli import Machine, call
from bench.table import SMOKE, Row, alternate, ms, ratio_row

RUNS = 7
CELLS = (
    "import math\nprint(math.pi)",
    "values = [n * n for n in range(1000)]\nlen(values)",
    "print(sum(values))",
)


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder:
        machine = Machine(Path(folder))
        if not SMOKE:
            install = ("-m", "pip", "install", "-q", "--disable-pip-version-check")
            call(str(machine.bin / "python"), *install, "nbclient", "nbconvert", "ipykernel")
        try:
            return [three_cells(machine)]
        finally:
            machine.close()


def three_cells(machine: Machine) -> Row:
    (machine.work / "three.ipynb").write_text(json.dumps(notebook(*CELLS)))

    def run_ours() -> float:
        return machine.timed("pai", "notebook-job", "--no-browser", "three.ipynb")

    def run_reference() -> float:
        return machine.timed("jupyter", "nbconvert", "--execute", "--to", "html", "three.ipynb")

    if not SMOKE:
        run_ours(), run_reference()  # the first one starts the cluster, and both write bytecode
    return ratio_row(
        "pai notebook-job of 3 cells, until the page is here / jupyter nbconvert --execute",
        *alternate(run_ours, run_reference, RUNS),
        at_most=1.3,
        show=ms,
    )


def notebook(*sources: str) -> dict[str, object]:
    cells = [
        {
            "cell_type": "code",
            "id": f"c{n}",
            "metadata": {},
            "source": source,
            "outputs": [],
            "execution_count": None,
        }
        for n, source in enumerate(sources)
    ]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
