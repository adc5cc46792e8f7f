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

    def command(folder: Path) -> list[str]:
        return ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), package]

    return install("js-sdk-0.1.5", command)


def paicli() -> Path:
    """Folder to put on `sys.path`. Not in our environment: its command is called `pai`, like ours."""

    def command(folder: Path) -> list[str]:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        return [*pip, "--no-deps", "--target", str(folder), "paicli==0.5.5"]

    return install("paicli-0.5.5", command)


def python_webhdfs() -> Path:
    """Folder to put on `sys.path`. Not in our environment: its module is called `pyhdfs`, like PyHDFS."""

    def command(folder: Path) -> list[str]:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        return [*pip, "--target", str(folder), "PythonWebHDFS==0.2.3"]

    return install("python-webhdfs-0.2.3", command)


def readers_of_shards() -> Path:
    """Folder to put on `sys.path`: packages that read tar shards and TFRecords."""

    def command(folder: Path) -> list[str]:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        return [*pip, "--target", str(folder), "webdataset==1.0.2", "tfrecord==1.14.6"]

    return install("readers-of-shards", command)


def torch() -> Path:
    """Folder to put on `sys.path`: torch without the libraries for GPUs, which take gigabytes."""
    version = "torch==2.5.1"  # the last one without them on PyPI, for ARM
    source = []
    if platform.machine() == "x86_64":
        version, source = version + "+cpu", ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]
    needed = ("filelock", "typing_extensions", "sympy", "mpmath", "networkx", "jinja2", "markupsafe")

    def command(folder: Path) -> list[str]:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", *source]
        return [*pip, "--no-deps", "--target", str(folder), version, *needed]

    return install("torch-2.5.1", command)


def aws_command() -> Path:
    """Folder to put on `sys.path` of a process of its own: `python -m awscli`, with its own botocore."""

    def command(folder: Path) -> list[str]:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        return [*pip, "--target", str(folder), "awscli==1.46.2"]

    return install("awscli-1.46.2", command)


def torchdata() -> Path:
    """Folder to put on `sys.path` beside torch: data loaders whose position can be saved."""

    def command(folder: Path) -> list[str]:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        return [*pip, "--no-deps", "--target", str(folder), "torchdata==0.10.1"]

    return install("torchdata-0.10.1", command)


def install(name: str, command: Callable[[Path], list[str]]) -> Path:
    """Folder that a command filled once, for all tests; several may ask for it at the same time."""
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
