"""No module imports another one in a circle, lazy imports and imports for types included."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from support.paths import REPOSITORY

SOURCE = REPOSITORY / "src"
# `bootstrap` travels to nodes as text and starts the uploader only after it has downloaded it.
DELIBERATE = {("pairuntime.slurm.bootstrap", "pairuntime.slurm.report_uploader")}


def test_modules_import_each_other_in_no_circle() -> None:
    assert list(_cycles(_imports())) == []


def _imports() -> dict[str, set[str]]:
    """Module-to-module imports. Packages count by their modules: an `__init__` re-exports lazily."""
    files = {}
    for path in SOURCE.rglob("*.py"):
        if path.name != "__init__.py":
            files[".".join(path.relative_to(SOURCE).with_suffix("").parts)] = path
    found: dict[str, set[str]] = {}
    for module, path in files.items():
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
        found[module] = {name for name in names if name in files and (module, name) not in DELIBERATE} - {
            module
        }
    return found


def _cycles(imports: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Groups of modules that reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> Iterator[list[str]]:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(imports[module]):
            if other not in index:
                yield from visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            group = []
            while not group or group[-1] != module:
                group.append(stack.pop())
            if len(group) > 1:
                yield sorted(group)

    for module in sorted(imports):
        if module not in index:
            yield from visit(module)


def test_a_cycle_is_found() -> None:
    assert list(_cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()})) == [["b", "c"]]
