"""Check of a database in a process of its own, with the lowest priority: the server goes on meanwhile.

``python -m paicluster.server.store_check FILE database|copy`` prints what is wrong, a line each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from paicluster.api.v2.job_summaries import render_summary
from paicluster.store.integrity import problems_of
from paicluster.store.row_check import row_problems
from paiprotocol.errors import StoreError

_MAX_PROBLEMS = 20
_TIMEOUT_S = 3600.0


def problems_of_copy(database: Path) -> list[str]:
    """Everything that is wrong with pages and rows of a backup. StoreError: it could not be checked."""
    return _problems_in_child(database, "copy")


def problems_of_database(database: Path) -> list[str]:
    """The same of a database that is in use, and everything that is wrong with its indexes."""
    return _problems_in_child(database, "database")


def _problems_in_child(database: Path, kind: str) -> list[str]:
    command = [sys.executable, "-m", __name__, str(database), kind]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreError(f"The database {database} could not be checked: {error}.") from error
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise StoreError(f"The database {database} could not be checked: {' '.join(last)}")
    return done.stdout.decode(errors="replace").splitlines()


def main(database: Path, *, is_copy: bool) -> int:
    os.nice(19)
    problems: Sequence[object]
    try:
        problems = problems_of(database, quick=is_copy)
        problems = problems or row_problems(database, render_summary, limit=_MAX_PROBLEMS, is_copy=is_copy)
    except StoreError as error:
        problems = [error.message]
    for problem in problems:
        print(" ".join(str(problem).splitlines()))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), is_copy=sys.argv[2] == "copy"))
