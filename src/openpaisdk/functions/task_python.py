"""What the Python of a task needs to load a function: folders to import from, and the pickle library."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import cloudpickle


def python_version() -> tuple[int, int]:
    """The version that the task's Python must have: a pickle of a function is for this one only."""
    return sys.version_info[:2]


def import_paths(on_this_machine: bool) -> list[str]:
    """Folders of Python's path that the task has, too: those in the current folder, relative to it.

    A task on this machine also has the others, by their absolute paths.
    """
    here = Path.cwd()
    paths = []
    for entry in sys.path:
        path = here / entry
        if not path.is_dir() or is_installed(path):
            continue
        if path.is_relative_to(here):
            paths.append(str(path.relative_to(here)))
        elif on_this_machine:
            paths.append(str(path))
    return list(dict.fromkeys(paths)) or ["."]


def is_installed(path: Path) -> bool:
    """Whether a folder belongs to a Python installation, not to the user's project."""
    prefixes = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    return any(path.resolve().is_relative_to(prefix) for prefix in prefixes)


def library() -> bytes:
    """The library that functions are pickled with, as a zip file that Python imports from."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for file in sorted(Path(cloudpickle.__file__).parent.glob("*.py")):
            # Without a time: the same bytes each time, so that they are uploaded once.
            archive.writestr(zipfile.ZipInfo(f"cloudpickle/{file.name}"), file.read_bytes())
    return out.getvalue()
