"""Idle readers release their memory."""

from __future__ import annotations

import time
from pathlib import Path

from paicluster.api.v2.job_summaries import render_summary
from paicluster.store import Store
from paicluster.store.jobs import JobQuery, NewJob, insert_jobs, list_jobs
from paicluster.store.readers import Readers
from paicluster.store.sqlite_backend import SqliteBackend


def mapped(path: Path) -> bool:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return any(line.endswith(str(path)) for line in lines)


def test_idle_reader_maps_no_part_of_the_database(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    store = Store.open(path, render_summary)
    new = [NewJob("alice", f"job{n}", "default", "", "{}", n) for n in range(100)]
    store.write_sync(lambda conn: insert_jobs(conn, new))
    store.close()
    backend = SqliteBackend(path)
    backend.open().close()
    readers = Readers(backend, 1, idle_timeout_s=0.2)
    for _ in range(2):  # and again after the first idle period
        page = readers.run_and_wait(lambda conn: list_jobs(conn, JobQuery(with_total=True)))
        assert page.total == 100
        assert mapped(path)
        deadline = time.monotonic() + 90
        while mapped(path):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    readers.close()
    backend.close()
