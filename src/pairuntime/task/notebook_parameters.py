"""Parameters of a notebook, by papermill's convention.

A cell with the tag ``parameters`` sets the defaults; a cell after it, with the tag ``injected-parameters``,
sets the values that were given. Without the first one, the second is the notebook's first cell.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any

DEFAULTS_TAG = "parameters"
VALUES_TAG = "injected-parameters"
_CONSTANTS = {"True": True, "False": False, "None": None}


class ParameterError(Exception):
    """Parameters cannot be passed to this notebook."""


def parse(text: "str") -> "tuple[str, Any]":
    """``NAME=VALUE``: numbers, True, False and None are values, everything else is text."""
    name, _, value = text.partition("=")
    if value in _CONSTANTS:
        return name, _CONSTANTS[value]
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def with_parameters(notebook: "Any", values: "dict[str, Any]") -> "Any":
    """The notebook with a cell that sets these values; unchanged without any."""
    if not values:
        return notebook
    language = notebook.metadata.get("kernelspec", {}).get("language", "python")
    if language != "python":
        raise ParameterError(
            "Parameters (-p) can be passed to Python notebooks only; this one is in %s." % language
        )
    from nbformat.v4 import new_code_cell

    lines = ["# Parameters"] + ["%s = %s" % (name, _literal(value)) for name, value in values.items()]
    cell = new_code_cell("\n".join(lines), metadata={"tags": [VALUES_TAG]})
    if notebook.nbformat_minor < 5:  # cells had no ids before
        cell.pop("id", None)
    # A notebook that was executed with parameters has a cell of them already.
    cells = [cell for cell in notebook.cells if VALUES_TAG not in _tags(cell)]
    defaults = [index for index, cell in enumerate(cells) if DEFAULTS_TAG in _tags(cell)]
    cells.insert(defaults[0] + 1 if defaults else 0, cell)
    notebook.cells = cells
    return notebook


def _tags(cell: "Any") -> "list[str]":
    return list(cell.metadata.get("tags", []))


def _literal(value: "Any") -> "str":
    """A value of JSON as Python. Numbers that no literal has are written as calls."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "float(%r)" % str(value)
    if isinstance(value, list):
        return "[%s]" % ", ".join(_literal(item) for item in value)
    if isinstance(value, dict):
        return "{%s}" % ", ".join("%r: %s" % (key, _literal(item)) for key, item in value.items())
    return repr(value)
