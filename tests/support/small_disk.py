"""Small file systems that a test can fill, mounted during the test."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.external_services import in_ci


@contextlib.contextmanager
def mounted(folder: Path, options: str = "size=24m") -> Iterator[Path]:
    """Mount a small tmpfs at a folder. CI must permit mounting; elsewhere the test is skipped."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(mount, check=False, capture_output=True, text=True)
    if done.returncode:
        (pytest.fail if in_ci() else pytest.skip)(f"Cannot mount a small disk: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill the folder's disk to the last byte with a file; delete the file to free it."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return filler
