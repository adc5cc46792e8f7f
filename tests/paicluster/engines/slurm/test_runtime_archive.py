"""Archive of the runtime that starts tasks on the nodes of Slurm."""

from __future__ import annotations

import ast
import zipfile
from pathlib import Path

from paicluster.engines.slurm import runtime_archive


def test_archive_has_every_module_that_its_modules_import(tmp_path: Path) -> None:
    with zipfile.ZipFile(runtime_archive.install(tmp_path)) as archive:
        sources = {name: archive.read(name) for name in archive.namelist() if name.endswith(".py")}
    missing = {
        f"{name}: {module}"
        for name, source in sources.items()
        for module in imported_modules(source)
        if not is_in(module, sources)
    }
    assert not missing


def imported_modules(source: bytes) -> set[str]:
    """Modules of the runtime that a module imports, also within functions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            # What is imported may be a module itself.
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name for name in found if name.startswith("pairuntime")}


def is_in(module: str, sources: dict[str, bytes]) -> bool:
    """Whether the archive has a module, or the module that has this name."""
    path = module.replace(".", "/")
    package = path.rpartition("/")[0]
    return any(
        name in sources for name in (f"{path}.py", f"{path}/__init__.py", f"{package}.py")
    ) or is_name_of_package(module, sources)


def is_name_of_package(module: str, sources: dict[str, bytes]) -> bool:
    package, _, name = module.rpartition(".")
    source = sources.get(f"{package.replace('.', '/')}/__init__.py", b"")
    defined = {
        getattr(target, "id", getattr(target, "name", ""))
        for node in ast.parse(source).body
        for target in getattr(node, "targets", [node])
    }
    return name in defined
