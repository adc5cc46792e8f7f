"""Disks that are full as soon as a test wants it: small file systems, mounted for the time of a test."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.external_services import in_ci


@contextlib.contextmanager
def mounted(folder: Path, options: str = "size=24m") -> Iterator[Path]:
    """A disk of its own at a folder. CI has to let us mount; elsewhere the test steps aside."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(mount, check=False, capture_output=True, text=True)
    if done.returncode:
        (pytest.fail if in_ci() else pytest.skip)(f"A small disk could not be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take the last byte of the disk that a folder is on; it is free again when this file goes."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return filler
