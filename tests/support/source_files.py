"""Every module of src/, parsed once: what tests look for in all of them.

A pass over all takes five seconds of processor time. Tests that use it are the group `sources`: one worker
makes the pass. What it finds is kept for the next run, by the content of each file.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import marshal
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from support.paths import REPOSITORY

SOURCE = REPOSITORY / "src"
HOLE = "…"
"""Stands for a value that is filled in, in a text of the source."""


@dataclass(frozen=True)
class SourceFile:
    """What one module contains. The tree itself would take a thousand times the memory."""

    path: Path
    text: str
    classes: tuple[str, ...]
    imports: frozenset[str]
    """Modules, and `module.name` for each imported name: it may be a module, too."""
    numbers: tuple[str, ...]
    """Names of constants of the module that are numbers."""
    texts: tuple[str, ...]
    """Every text, with a hole for each value that is filled in."""

    @property
    def name(self) -> str:
        return str(self.path.relative_to(SOURCE))

    @property
    def package(self) -> str:
        return self.path.relative_to(SOURCE).parts[0]

    @property
    def module(self) -> str:
        return ".".join(self.path.relative_to(SOURCE).with_suffix("").parts)


@cache
def source_files() -> tuple[SourceFile, ...]:
    known = _read_cache()
    found: dict[str, _Content] = {}
    files = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        key = hashlib.sha256(text.encode()).hexdigest()
        found[key] = known.get(key) or _content(text)
        files.append(SourceFile(path, text, *found[key]))
    if found.keys() != known.keys():
        _write_cache(found)
    return tuple(files)


# Classes, imports, numbers and texts of a file.
_Content = tuple[tuple[str, ...], frozenset[str], tuple[str, ...], tuple[str, ...]]


def _cache_file() -> Path:
    """Of this version of this file, and of the interpreter, whose parser it is."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openpaisdk-tests"
    own = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    return folder / f"sources-{sys.implementation.cache_tag}-{own}"


def _read_cache() -> dict[str, _Content]:
    # One that is damaged is made again.
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        found = marshal.loads(_cache_file().read_bytes())
        return found if isinstance(found, dict) else {}
    return {}


def _write_cache(found: dict[str, _Content]) -> None:
    file = _cache_file()
    with contextlib.suppress(OSError):  # a home that cannot be written
        file.parent.mkdir(parents=True, exist_ok=True)
        for former in file.parent.glob(f"sources-{sys.implementation.cache_tag}-*"):
            former.unlink(missing_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as written:
            written.write(marshal.dumps(found))
        Path(written.name).replace(file)


def _content(text: str) -> _Content:
    tree = ast.parse(text)
    classes: list[str] = []
    imports: set[str] = set()
    texts: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr):
            if found := template_of(node):
                texts.append(found)
        elif isinstance(node, ast.ClassDef):
            classes.append(node.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            imports |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
    return tuple(classes), frozenset(imports), tuple(_numbers(tree)), tuple(texts)


def template_of(node: ast.AST) -> str:
    """The text of a node, with holes; empty if it is no text."""
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else HOLE for part in node.values]
        return "".join(map(str, parts))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _numbers(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        else:
            continue
        if _is_number(node.value):
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _is_number(node: ast.expr | None) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)
