"""Cell of a notebook, called in a task: ``%%pai`` sends this function with the cell and its variables."""

import ast
import linecache
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # Python 3.6 runs this too
    from typing import Any

FILE = "<cell>"


def run_cell(source: "str", variables: "dict[str, Any]", names: "list[str]") -> "dict[str, Any]":
    """Run the lines of a cell; returns the variables ``names`` that it leaves.

    As in a notebook, the value of a last line that is an expression is shown.
    """
    namespace = {"__name__": "__main__", "__builtins__": __builtins__}  # type: dict[str, Any]
    namespace.update(variables)
    # A traceback shows the lines. Without a time, the entry is kept although there is no such file.
    linecache.cache[FILE] = (len(source), None, source.splitlines(True), FILE)
    tree = ast.parse(source, FILE)
    shown = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";"):
        shown = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
    exec(compile(tree, FILE, "exec"), namespace)
    if shown is not None:
        value = eval(compile(shown, FILE, "eval"), namespace)
        if value is not None:
            print(repr(value))
    sys.stdout.flush()
    missing = [name for name in names if name not in namespace]
    if missing:
        raise NameError("the cell leaves no variable %r, which --out names" % missing[0])
    return {name: namespace[name] for name in names}
