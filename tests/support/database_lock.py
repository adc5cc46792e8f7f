"""A program that holds the write lock of a database; a spawned process imports it by this module name."""

from __future__ import annotations

import multiprocessing
import sqlite3
from pathlib import Path


def hold_write_lock(path: Path, locked: multiprocessing.synchronize.Event, release: object) -> None:
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("BEGIN IMMEDIATE")
    locked.set()
    release.wait(90)  # type: ignore[attr-defined]
    conn.execute("ROLLBACK")
