"""Third-party OpenPAI clients, installed once outside of our own environment."""

from __future__ import annotations

import fcntl
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from support.external_services import debian, missing

_FOLDER = Path(tempfile.gettempdir()) / f"openpaisdk-third-party-{os.getuid()}"
_INSTALL_TIMEOUT_S = 300


def javascript_sdk() -> Path:
    """Folder to run node in, so that it finds Microsoft's SDK."""
    debian(["nodejs", "npm"], commands=["node", "npm"])
    package = "@microsoft/openpai-js-sdk@0.1.5"

    def install(folder: Path) -> list[str]:
        return ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), package]

    return _install("js-sdk-0.1.5", install)


def paicli() -> Path:
    """Folder to put on `sys.path`. Not in our environment: its command is called `pai`, like ours."""

    def install(folder: Path) -> list[str]:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        return [*pip, "--no-deps", "--target", str(folder), "paicli==0.5.5"]

    return _install("paicli-0.5.5", install)


def python_webhdfs() -> Path:
    """Folder to put on `sys.path`. Not in our environment: its module is called `pyhdfs`, like PyHDFS."""

    def install(folder: Path) -> list[str]:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        return [*pip, "--target", str(folder), "PythonWebHDFS==0.2.3"]

    return _install("python-webhdfs-0.2.3", install)


def readers_of_shards() -> Path:
    """Folder to put on `sys.path`: packages that read tar shards and TFRecords."""

    def install(folder: Path) -> list[str]:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        return [*pip, "--target", str(folder), "webdataset==1.0.2", "tfrecord==1.14.6"]

    return _install("readers-of-shards", install)


def torch() -> Path:
    """Folder to put on `sys.path`: torch without the libraries for GPUs, which take gigabytes."""
    version = "torch==2.5.1"  # the last one without them on PyPI, for ARM
    source = []
    if platform.machine() == "x86_64":
        version, source = version + "+cpu", ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]
    needed = ("filelock", "typing_extensions", "sympy", "mpmath", "networkx", "jinja2", "markupsafe")

    def install(folder: Path) -> list[str]:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", *source]
        return [*pip, "--no-deps", "--target", str(folder), version, *needed]

    return _install("torch-2.5.1", install)


def _install(name: str, command: Callable[[Path], list[str]]) -> Path:
    _FOLDER.mkdir(mode=0o700, exist_ok=True)
    folder, marker = _FOLDER / name, _FOLDER / f"{name}.done"
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not marker.exists():
            folder.mkdir(exist_ok=True)
            ran = subprocess.run(
                command(folder), capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, check=False
            )
            if ran.returncode != 0:
                missing(f"{name} ({ran.stderr.strip()[-300:]})")
            marker.touch()
    return folder
