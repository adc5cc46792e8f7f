"""No module imports another one in a circle, lazy imports and imports for types included."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import pytest

from support.source_files import source_files


@pytest.mark.xdist_group("sources")
def test_modules_import_each_other_in_no_circle() -> None:
    imports = {file.module.removesuffix(".__init__"): file.imports for file in source_files()}
    assert list(_cycles(_imported_modules(imports))) == []


def _imported_modules(imports: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    """The modules that each module imports, with the packages that this loads.

    The `__init__` of a package is loaded before its modules are. These may therefore import each other by
    `from package import module`; what `__init__` itself defines, they may not.
    """
    found: dict[str, set[str]] = {}
    for module, names in imports.items():
        found[module] = {name for name in names if name in imports}
        for package in [name for name in found[module] if _contains(name, module)]:
            imported = {name for name in names if name.rpartition(".")[0] == package}
            if imported and imported <= imports.keys():
                found[module].remove(package)
        for name in list(found[module]):
            found[module] |= {
                package
                for package in _packages_of(name)
                if package in imports and not _contains(package, module)
            }
        found[module].discard(module)
    return found


def _contains(package: str, module: str) -> bool:
    return module.startswith(f"{package}.")


def _packages_of(module: str) -> Iterator[str]:
    while module := module.rpartition(".")[0]:
        yield module


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


def test_a_cycle_by_a_package_is_found() -> None:
    """Of the names of `p`, `p.a` may import modules only: `p` takes the others from it."""
    package = {"p": {"p.a", "p.a.Name"}, "p.b": set(), "q": {"p.b"}}
    assert list(_cycles(_imported_modules({**package, "p.a": {"p", "p.Name"}}))) == [["p", "p.a"]]
    assert list(_cycles(_imported_modules({**package, "p.a": {"p", "p.b"}}))) == []
    assert list(_cycles(_imported_modules({**package, "p.a": {"q", "q.name"}}))) == [["p", "p.a", "q"]]
