"""Packages of the user that are not in the current folder: editable installs, modules beside the project.

A function travels by the name of its module. If that is neither installed nor in the current folder, a task
on another machine could not import it, so its files go along, with those of other local modules that it uses.
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from openpaisdk.functions.task_python import is_installed
from openpaisdk.functions.usage_errors import CallUsageError

MAX_BYTES = 64 << 20
"""Of the files of all packages: more is data, which belongs on a storage."""
_IN_EVERY_TASK = frozenset(
    ("__main__", "__mp_main__", "cloudpickle", "openpaisdk", "paiprotocol", "pairuntime")
)
_IGNORED = frozenset(("__pycache__", "node_modules"))


def local_packages(modules: Iterable[str]) -> bytes:
    """The packages of these modules that are local and not in the current folder, as a zip file; or none."""
    roots = [(name, root) for name in sorted(_closure(modules)) for root in _roots(name)]
    if not roots:
        return b""
    out = io.BytesIO()
    size = 0
    with zipfile.ZipFile(out, "w") as archive:
        for name, root in roots:
            for path in _files(root):
                content = path.read_bytes()
                size += len(content)
                if size > MAX_BYTES:
                    raise CallUsageError(
                        f"The package {name} in {root} is too large to travel with a function: over 64 MiB.",
                        hint="Move its data to the storage, or install the package in the image of the job.",
                    )
                # Without a time: the same bytes each time, so that they are uploaded once.
                archive.writestr(zipfile.ZipInfo(str(path.relative_to(root.parent))), content)
    return out.getvalue()


def _closure(modules: Iterable[str]) -> set[str]:
    """Names of the packages of these modules, and of those that their loaded modules use."""
    names: set[str] = set()
    pending = {name.partition(".")[0] for name in modules}
    while pending:
        name = pending.pop()
        if name in names or name in _IN_EVERY_TASK or not _roots(name):
            continue
        names.add(name)
        for loaded, module in list(sys.modules.items()):
            if loaded == name or loaded.startswith(name + "."):
                pending.update(_used_by(module))
    return names


def _used_by(module: ModuleType) -> Iterator[str]:
    for value in list(vars(module).values()):
        used = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(used, str):
            yield used.partition(".")[0]


def _roots(name: str) -> list[Path]:
    """Folders or file of a package that is neither installed nor in the current folder."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        path = Path(file)
        roots = [path.parent if path.name == "__init__.py" else path]
    else:  # a package without __init__.py, whose modules may be in several folders; or a part of Python
        roots = [Path(folder) for folder in getattr(module, "__path__", ())]
    here = Path.cwd()
    return [
        root for root in roots if root.exists() and not is_installed(root) and not root.is_relative_to(here)
    ]


def _files(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    for path in sorted(root.rglob("*")):
        if path.is_file() and not _IGNORED & set(path.relative_to(root).parts):
            yield path
