"""Third-party OpenPAI clients, installed once outside of our own environment."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from support.external_services import debian, missing

_FOLDER = Path(tempfile.gettempdir()) / f"openpaisdk-third-party-{os.getuid()}"
_INSTALL_TIMEOUT_S = 300
_NEEDED_BY_TORCH = ("filelock", "typing_extensions", "sympy", "mpmath", "networkx", "jinja2", "markupsafe")

# With what they need, but for torch and what our environment has.
_TRAINING_FRAMEWORKS = (
    *("lightning==2.6.6", "lightning-utilities==0.15.3", "torchmetrics", "tqdm"),
    *("keras==3.15.1", "namex", "h5py", "optree", "ml-dtypes"),
    *(
        "transformers==5.23.0",
        "accelerate==1.15.0",
        "tokenizers",
        "safetensors",
        "regex",
        "huggingface-hub==2.4.0",
    ),
    *("httpx2==2.16.2", "httpcore2==2.16.2", "truststore", "typer", "shellingham", "annotated-doc"),
)


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


def optuna() -> Path:
    """Folder to put on `sys.path`: Optuna. Our environment has the larger packages that it needs."""

    def command(folder: Path) -> list[str]:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
        return [*pip, "--target", str(folder), "optuna==4.5.0", "colorlog==6.9.0", "tqdm==4.67.1"]

    return install("optuna-4.5.0", command)


def torch() -> Path:
    """Folder to put on `sys.path`: torch without the libraries for GPUs, which take gigabytes."""
    version, source = "2.5.1", list[str]()  # the last one without them on PyPI, for ARM
    if platform.machine() == "x86_64":
        # Where it cannot be reached, a minute of attempts for each package is too much.
        source = ["--extra-index-url", "https://download.pytorch.org/whl/cpu", "--retries", "1"]
        version = "2.13.0+cpu"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]

    def command(folder: Path) -> list[str]:
        return [*pip, *source, "--target", str(folder), f"torch=={version}", *_NEEDED_BY_TORCH]

    def of_debian(folder: Path) -> list[str]:
        # Only torch: the other packages there would hide those of our environment.
        packages = Path("/usr/lib/python3/dist-packages")
        binary = packages / "torch" / f"_C{sysconfig.get_config_var('EXT_SUFFIX')}"
        debian(["python3-torch"], commands=[], files=[str(binary)])
        for name in ("torch", "torchgen", "functorch"):
            with contextlib.suppress(FileExistsError):
                (folder / name).symlink_to(packages / name)
        return [*pip, "--target", str(folder), *_NEEDED_BY_TORCH]

    return install(f"torch-{version}", command, otherwise=of_debian)


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


def training_frameworks() -> Path:
    """Folder to put on `sys.path` before that of torch: Lightning, Keras and Transformers."""

    def command(folder: Path) -> list[str]:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
        return [*pip, "--target", str(folder), *_TRAINING_FRAMEWORKS]

    return install("training-frameworks", command)


def install(
    name: str,
    command: Callable[[Path], list[str]],
    environment: Mapping[str, str] | None = None,
    otherwise: Callable[[Path], list[str]] | None = None,
) -> Path:
    """Folder that a command filled once, for all tests; several may ask for it at the same time.

    ``otherwise``: for machines on which the command finds nothing.
    """
    _FOLDER.mkdir(mode=0o700, exist_ok=True)
    folder, marker = _FOLDER / name, _FOLDER / f"{name}.done"
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not marker.exists():
            folder.mkdir(exist_ok=True)
            ran = _run(command(folder), environment)
            if ran.returncode != 0 and otherwise is not None:
                ran = _run(otherwise(folder), environment)
            if ran.returncode != 0:
                missing(f"{name} ({ran.stderr.strip()[-300:]})")
            marker.touch()
    return folder


def _run(command: list[str], environment: Mapping[str, str] | None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, check=False
    )
