"""The runtime that an engine installs into its home, installed once and copied from then on."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path


def copy_runtime(home: Path, install: Callable[[Path], object], mode: int = 0o711) -> None:
    """Copy what ``install`` puts into a folder: compiling it takes longer than many tests.

    ``mode``: of the home, if it does not exist.
    """
    if not (home / "runtime").exists():
        home.mkdir(mode, parents=True, exist_ok=True)
        shutil.copytree(_installed(install, os.getpid()), home / "runtime")


@cache
def _installed(install: Callable[[Path], object], _pid: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="pai-runtime-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    install(folder / "runtime")
    return folder / "runtime"
