"""Runs as Python objects: records of parameters and metrics, and a table in a REPL or a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from openpaisdk.jobs.runs import Run, RunTable
from paiprotocol.errors import PaiError


class Runs(Sequence[Run]):
    """Runs of jobs: tasks of arrays, and jobs without one. The methods return others and change nothing.

    ``cluster.runs("sweep").filter("lr<0.01").sort("loss").to_pandas()``
    """

    def __init__(self, table: RunTable):
        self._table = table

    @property
    def metrics(self) -> list[str]:
        """Names of all metrics."""
        return self._table.metrics

    @property
    def parameters(self) -> list[str]:
        """Names of all parameters."""
        return self._table.parameters

    @property
    def unread(self) -> list[str]:
        """Jobs whose metrics the cluster is still reading."""
        return self._table.unread

    def filter(self, text: str) -> Runs:
        """The runs that fit, as with ``pai runs --filter``: ``"lr<0.01 and not state=FAILED"``."""
        return Runs(self._table.filtered(text))

    def sort(self, name: str) -> Runs:
        """Sorted by a value, ascending; ``NAME:desc`` descending. Runs without it are last."""
        return Runs(self._table.sorted(name))

    def best(self, metric: str) -> Run | None:
        """The run with the lowest value of a metric; ``NAME:max``: the highest. None if no run has it."""
        return next(iter(self._table.best(metric).runs), None)

    def records(self) -> list[dict[str, Any]]:
        """A mapping for each run, all with the same keys; None is what a run has not."""
        return self._table.records()

    def to_pandas(self) -> Any:
        """The records as a ``pandas.DataFrame``; pandas must be installed."""
        try:
            import pandas  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            raise PaiError(
                "to_pandas needs pandas, which is not installed.",
                hint="Install it with: pip install pandas; or use records().",
            ) from None
        return pandas.DataFrame(self.records())

    def __len__(self) -> int:
        return len(self._table.runs)

    @overload
    def __getitem__(self, at: int) -> Run: ...

    @overload
    def __getitem__(self, at: slice) -> Runs: ...

    def __getitem__(self, at: int | slice) -> Run | Runs:
        runs = self._table.runs
        return Runs(self._table.with_runs(runs[at])) if isinstance(at, slice) else runs[at]

    def __repr__(self) -> str:
        if not len(self):
            return "<no runs>"
        from openpaisdk.output import table

        return table(*self._cells())

    def _repr_html_(self) -> str:
        if not len(self):
            return "<p>no runs</p>"
        from openpaisdk.output.html import html_table

        return html_table(*self._cells())

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        records = self.records()
        return list(records[0]), [[_text(value) for value in record.values()] for record in records]


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
