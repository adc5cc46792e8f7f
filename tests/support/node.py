"""Node.js of the project, the portal that it builds, and packages of npm that tests run in it."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from support.external_services import missing
from support.paths import REPOSITORY
from support.third_party_clients import install

_BUILD_TIMEOUT_S = 400


@cache
def node() -> str:
    """Path of the program."""
    return str(_tools().node)


def npm_package(name: str, version: str) -> Path:
    """Folder below which a package of npm is installed once, for all tests."""
    tools = _tools()

    def command(folder: Path) -> list[str]:
        words = ["install", "--no-audit", "--no-fund", "--prefix", str(folder), f"{name}@{version}"]
        return [*tools.npm, *words]

    return install(f"{name.replace('/', '-')}-{version}", command, tools.environment())


def build_portal() -> None:
    """The portal of this checkout with what checks it, built if its sources are newer."""
    _tools()
    with _one_at_a_time():
        if _portal_is_built():
            return
        command = [sys.executable, "portal/bundle_build.py", "--with-checks"]
        done = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False
        )
    if done.returncode:
        missing(f"The portal's build ({done.stderr.strip()[-600:]})")


def _portal_is_built() -> bool:
    built = REPOSITORY / "src/paicluster/api/portal/files/index.html.gz"
    checks = REPOSITORY / "portal/node_modules/axe-core/axe.min.js"
    if not built.exists() or not checks.exists():
        return False
    sources = [
        *(REPOSITORY / "portal/src").rglob("*"),
        *(REPOSITORY / "portal" / name for name in ("build.mjs", "package-lock.json")),
    ]
    return built.stat().st_mtime >= max(file.stat().st_mtime for file in sources)


@cache
def _tools() -> Any:
    build = _bundle_build()
    with _one_at_a_time():
        try:
            build.install_node()
            return build.node_tools()
        except build.NoBundle as error:
            missing(f"Node.js ({error})")
            raise


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    with (Path(tempfile.gettempdir()) / f"openpaisdk-node-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _bundle_build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bundle_build", REPOSITORY / "portal/bundle_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
