"""`paicluster check-store`: look for damage in a cluster's database."""

from __future__ import annotations

import argparse
import sqlite3
import sys
import time
from pathlib import Path

from paicluster.api.v2.job_summaries import render_summary
from paicluster.cli.admin_api import home_option
from paicluster.cli.database_file import database_file
from paicluster.cli.restore_store import stop_unknown_tasks
from paicluster.cli.terminal import printable
from paicluster.config import cluster_file
from paicluster.config.settings import Settings
from paicluster.server.home_lock import HomeInUse, lock_home
from paicluster.store.integrity import ShutdownMarker, check_log, problems_of
from paicluster.store.row_check import row_problems, set_aside
from paiprotocol.errors import ConfigError, StoreError

# Of rows with a problem, as many as a list can have.
_ALL = sys.maxsize


def options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check a cluster's database: every page, index, reference and row, and whether the\n"
        "changes of a killed server are complete. Without an option nothing is changed,\n"
        "and a server may keep running. The exit status is 1 if something is damaged."
    )
    parser.epilog = "example:\n  paicluster check-store --home ./cluster"
    home_option(parser)
    parser.add_argument(
        "--accept",
        action="store_true",
        help="continue without the changes that are lost; for a stopped cluster whose database is else sound",
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="move the jobs that cannot be read to a file in the home; for a stopped cluster",
    )


def check_store(arguments: argparse.Namespace) -> int:
    settings = cluster_file.settings_of(cluster_file.of_options(arguments.home, arguments.config))
    database = database_file(settings, "Check it with PostgreSQL's own program: pg_amcheck DATABASE")
    if not database.is_file():
        raise ConfigError(f"There is no cluster in {settings.home}.")
    try:
        lock = lock_home(settings.home)
    except HomeInUse:
        if arguments.accept or arguments.repair:
            raise
        _check(database)
        return 0
    with lock:
        marker = ShutdownMarker(database)
        if not arguments.accept:
            check_log(database, marker)
        if arguments.repair:
            _repair(database, settings)
        _check(database)
        if arguments.accept:
            marker.accept()
            print("The next server starts with the database as it is.")
    return 0


def _check(database: Path) -> None:
    started = time.monotonic()
    pages = problems_of(database)
    rows = [] if pages else row_problems(database, render_summary)
    for problem in [*pages, *rows]:
        print(printable(str(problem)))
    if pages or rows:
        only_jobs = not pages and all(problem.job_id for problem in rows)
        repair = "stop the server, and move these jobs aside: paicluster check-store --repair; or return"
        raise StoreError(
            f"The cluster's database {database} is damaged.",
            hint=f"{'Either ' + repair if only_jobs else 'Return'} to a backup: "
            "paicluster restore-store --home DIR lists them.",
        )
    size_mb, elapsed_s = database.stat().st_size / 1e6, time.monotonic() - started
    print(f"The database {database} is sound ({size_mb:.1f} MB, checked in {elapsed_s:.1f} s).")


def _repair(database: Path, settings: Settings) -> None:
    """Move the jobs that cannot be read to a file. Damaged pages, and rows of no job, stay unchanged."""
    if not _are_pages_sound(database):
        return
    damaged = {problem.job_id for problem in row_problems(database, render_summary, limit=_ALL)}
    job_ids = sorted(job_id for job_id in damaged if job_id is not None)
    if not job_ids:
        return
    target = settings.home / time.strftime("set-aside-%Y%m%dT%H%M%SZ.jsonl", time.gmtime())
    try:
        rows = set_aside(database, job_ids, target)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"The jobs could not be moved to {target}: {error}.") from error
    count = "1 job" if len(job_ids) == 1 else f"{len(job_ids)} jobs"
    print(f"{count} ({rows} rows) moved to {target}. Their logs and files stay.")
    stop_unknown_tasks(settings)


def _are_pages_sound(database: Path) -> bool:
    """Whether rows can be moved. Damaged indexes are rebuilt then."""
    return not problems_of(database, quick=True)
