"""Parameters of a notebook, as papermill passes them."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest

from pairuntime.task.notebook_parameters import ParameterError, parse, with_parameters
from support.notebooks import cell, notebook


def injected(values: dict[str, Any], *cells: Any) -> list[str]:
    """The sources of the cells after the injection."""
    return [c.source for c in with_parameters(nbformat.from_dict(notebook(*cells)), values).cells]


def test_values_come_after_the_defaults() -> None:
    assert injected({"a": 1}, "x", cell("a = 0", "parameters"), "y") == [
        "x",
        "a = 0",
        "# Parameters\na = 1",
        "y",
    ]


def test_values_come_first_without_defaults() -> None:
    assert injected({"a": 1}, "x") == ["# Parameters\na = 1", "x"]


def test_values_of_an_earlier_run_are_replaced() -> None:
    assert injected({"a": 2}, cell("a = 1", "injected-parameters"), "x") == ["# Parameters\na = 2", "x"]


def test_notebook_without_parameters_is_unchanged() -> None:
    assert injected({}, cell("a = 1", "injected-parameters")) == ["a = 1"]


def test_values_are_python_literals() -> None:
    values = {"t": True, "n": None, "s": "it's \n", "l": [1.5, {"k": False}], "i": float("inf")}
    (source, _) = injected(values, "x")
    names: dict[str, Any] = {}
    exec(source, names)
    assert {name: names[name] for name in values} == values


def test_text_is_parsed_as_papermill_does() -> None:
    texts = ["i=-3", "f=1e-3", "t=True", "n=None", "s=it is", "e=", "q=a=b", "l=[1]"]
    values = {"i": -3, "f": 0.001, "t": True, "n": None, "s": "it is", "e": "", "q": "a=b", "l": "[1]"}
    assert dict(map(parse, texts)) == values


def test_cells_of_old_formats_have_no_ids() -> None:
    old = nbformat.from_dict({**notebook(), "nbformat_minor": 4})
    assert "id" not in with_parameters(old, {"a": 1}).cells[0]


def test_other_languages_are_refused() -> None:
    other = nbformat.from_dict(notebook("1", kernel={"name": "ir", "display_name": "R", "language": "R"}))
    with pytest.raises(ParameterError, match="Python notebooks only; this one is in R"):
        with_parameters(other, {"a": 1})
