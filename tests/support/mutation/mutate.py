"""Mutants of a source file: each differs from it in one place."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
}
_NO_BEHAVIOUR = ("__all__", "__slots__")
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}


@dataclass(frozen=True)
class Mutant:
    path: Path
    # Which node of the file, in the order of a walk, and how it is changed.
    node: int
    change: str
    line: int
    # Lines of the statement that contains the change: a test that executes none of them cannot notice it.
    lines: range
    function: str
    # Executed by the import of its file: a constant, or the default of a field.
    at_import: bool

    @property
    def name(self) -> str:
        return f"{self.path.name}:{self.line} {self.function}: {self.change}"

    def tree(self) -> ast.Module:
        changed = ast.parse(self.path.read_text())
        node = next(islice(ast.walk(changed), self.node, None))
        next(change for name, change in _changes(node) if name == self.change)()
        return ast.fix_missing_locations(changed)


def mutants_of(path: Path) -> list[Mutant]:
    """All mutants of a file."""
    sites = _Sites(ast.parse(path.read_text()))
    mutants = []
    for number, node in enumerate(sites.nodes):
        for change, _ in _changes(node):
            if not sites.is_excluded(node):
                lines = sites.lines_of(node)
                line = getattr(node, "lineno", lines.start)
                function, at_import = sites.function_of(node), not sites.is_in_function(node)
                mutants.append(Mutant(path, number, change, line, lines, function, at_import))
    return mutants


class _Sites:
    """Where each node of a file is."""

    def __init__(self, tree: ast.Module):
        self.nodes = list(ast.walk(tree))
        self._parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def _up(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self._parents:
            yield node
            node = self._parents[node]

    def lines_of(self, node: ast.AST) -> range:
        """Lines that execute the node: its statement; the whole function for a default of an argument."""
        statement = next(one for one in self._up(node) if isinstance(one, ast.stmt))
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        body = getattr(statement, "body", None)
        last = body[0].lineno - 1 if body else statement.end_lineno
        return range(statement.lineno, max(last, statement.lineno) + 1)

    def function_of(self, node: ast.AST) -> str:
        names = [
            one.name
            for one in self._up(node)
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ]
        return ".".join(reversed(names))

    def is_in_function(self, node: ast.AST) -> bool:
        return any(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in self._up(node))

    def is_excluded(self, node: ast.AST) -> bool:
        """Annotations, imports, docstrings, decorators, assertions (`strict` is one), members of Enum."""
        for one in self._up(node):
            parent = self._parents[one]
            if isinstance(one, ast.Import | ast.ImportFrom | ast.Assert):
                return True
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
                return True
            if one in (getattr(parent, "annotation", None), getattr(parent, "returns", None)):
                return True
            if one in getattr(parent, "decorator_list", ()):
                return True
            if isinstance(parent, ast.Assign) and getattr(parent.targets[0], "id", "") in _NO_BEHAVIOUR:
                return True
            if isinstance(one, ast.ClassDef) and any(getattr(base, "id", "") == "Enum" for base in one.bases):
                return True
            if isinstance(parent, ast.keyword) and parent.arg == "strict":
                return True
            if isinstance(one, ast.Call) and getattr(one.func, "id", "") == "AssertionError":
                return True
        return False


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[], object]]]:
    """Changes of one node: what is changed, and the function that does it."""
    if isinstance(node, ast.Compare):
        for place, op in enumerate(node.ops):
            for other in _COMPARISONS[type(op)]:
                name = f"{type(op).__name__} -> {other.__name__} ({place})"
                yield name, lambda place=place, other=other: node.ops.__setitem__(place, other())  # type: ignore[misc]
    elif isinstance(node, ast.BoolOp):
        other_op = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield f"{type(node.op).__name__} -> {other_op.__name__}", lambda: setattr(node, "op", other_op())
        for place in range(len(node.values)):
            yield f"operand {place} dropped", lambda place=place: _drop_operand(node, place)  # type: ignore[misc]
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATORS:
        other_operator = _OPERATORS[type(node.op)]
        name = f"{type(node.op).__name__} -> {other_operator.__name__}"
        yield name, lambda: setattr(node, "op", other_operator())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not removed", lambda: setattr(node, "operand", ast.UnaryOp(ast.Not(), node.operand))
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield "returns None", lambda: setattr(node, "value", ast.Constant(None))
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.For):
        yield "loop over nothing", lambda: setattr(node, "iter", ast.Tuple([], ast.Load()))
    elif isinstance(node, ast.comprehension):
        for place in range(len(node.ifs)):
            yield f"condition {place} dropped", lambda place=place: node.ifs.pop(place)  # type: ignore[misc]
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "condition negated", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.stmt):
        yield from _statements(node)


def _statements(node: ast.stmt) -> Iterator[tuple[str, Callable[[], object]]]:
    def become(kind: type[ast.stmt]) -> Callable[[], object]:
        return lambda: setattr(node, "__class__", kind)

    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "call removed", become(ast.Pass)
    elif isinstance(node, ast.AugAssign | ast.Raise | ast.Delete):
        yield "statement removed", become(ast.Pass)
    elif isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple):
        yield "assignment removed", become(ast.Pass)
    elif isinstance(node, ast.Continue):
        yield "continue -> break", become(ast.Break)
    elif isinstance(node, ast.Break):
        yield "break -> continue", become(ast.Continue)


def _constants(node: ast.Constant) -> Iterator[tuple[str, Callable[[], object]]]:
    value = node.value
    other: object
    if isinstance(value, bool):
        other = not value
    elif isinstance(value, int | float):
        other = value + 1
    elif isinstance(value, str):
        other = f"XX{value}"
    elif isinstance(value, bytes):
        other = b"XX" + value
    else:
        return
    yield f"{value!r} -> {other!r}"[:120], lambda: setattr(node, "value", other)


def _calls(node: ast.Call) -> Iterator[tuple[str, Callable[[], object]]]:
    if isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        function, other = node.func, _FUNCTIONS[node.func.id]
        if not (other == "list" and node.keywords):
            yield f"{function.id} -> {other}", lambda: setattr(function, "id", other)
    for place, keyword in enumerate(node.keywords):
        if keyword.arg not in (None, "strict"):
            yield f"argument {keyword.arg} dropped", lambda place=place: node.keywords.pop(place)  # type: ignore[misc]


def _drop_operand(node: ast.BoolOp, place: int) -> None:
    node.values.pop(place)
    if len(node.values) == 1:
        node.values.append(node.values[0])


__all__ = ["Mutant", "mutants_of"]
