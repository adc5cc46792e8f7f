"""Older version of the cluster: the last one with another schema, from this repository's history."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.paths import REPOSITORY

_MIGRATIONS = Path("src/paicluster/store/migrations/versions")


class NoHistory(Exception):
    """There is no commit before the newest migration."""


def unpack(folder: Path) -> Path:
    """Write the modules of the commit before the newest migration; returns what PYTHONPATH has to name."""
    newest = max((REPOSITORY / _MIGRATIONS).glob("0*.py")).relative_to(REPOSITORY)
    added = _git("log", "--max-count=1", "--diff-filter=A", "--format=%H", "--", str(newest)).decode().strip()
    if not added:
        raise NoHistory(f"The history of this repository does not say when {newest} was added.")
    archive = _git("archive", f"{added}^", "src")
    folder.mkdir()
    subprocess.run(["tar", "--extract", "--directory", str(folder)], input=archive, check=True)
    return folder / "src"


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(REPOSITORY), *arguments], capture_output=True, check=False)
    if done.returncode:
        raise NoHistory(f"git {arguments[0]}: {done.stderr.decode().strip()}")
    return done.stdout
