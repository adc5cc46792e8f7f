"""Parts from outside that tests need for real: installed once; one that is missing in CI is a failure."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

_LOCK = Path(tempfile.gettempdir()) / f"openpaisdk-outside-{os.getuid()}.lock"
_INSTALL_S = 600


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def missing(what: str) -> None:
    """In CI everything a test needs must be had; on a person's machine the test steps aside and says why."""
    if in_ci() or os.geteuid() == 0:
        pytest.fail(f"{what} is needed for this test and could not be had.")
    pytest.skip(f"{what} is needed for this test.")


def debian(packages: Sequence[str], *, commands: Sequence[str], files: Sequence[str] = ()) -> None:
    """Have these commands and files, by installing these packages of Debian or Ubuntu when one is not there.

    Several tests may ask at once, from several processes: one installs, the others wait.
    """

    def absent() -> list[str]:
        places = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        found = [command for command in commands if shutil.which(command, path=places) is None]
        return found + [file for file in files if not Path(file).exists()]

    if not absent():
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        missing(f"{', '.join(absent())} (apt-get install {' '.join(packages)})")
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not absent():
            return
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        get = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300"]
        install = [*get, "install", "--no-install-recommends", *packages]
        for command in (install, [*get, "update"], install):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_INSTALL_S, check=False
            )
            if command is install and done.returncode == 0:
                break
        if absent():
            missing(f"{', '.join(absent())} (apt-get said: {done.stderr.strip()[-300:]})")
