"""`paicluster check-store`: look for damage in a cluster's database."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from openpaisdk.errors import ConfigError, StoreError
from paicluster.cli.admin_api import home_option
from paicluster.cli.terminal import printable
from paicluster.config import cluster_file
from paicluster.server.home_lock import HomeInUse, lock_home
from paicluster.store.integrity import SessionMarker, check_log, problems_of


def options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check a cluster's database: every page, every index and every reference, and\n"
        "whether the changes of a killed server are complete. Nothing is changed; a\n"
        "server may keep running. The exit status is 1 if something is damaged."
    )
    parser.epilog = "example:\n  paicluster check-store --home ./cluster"
    home_option(parser)
    parser.add_argument(
        "--accept",
        action="store_true",
        help="continue without the changes that are lost; for a stopped cluster whose database is else sound",
    )


def check_store(arguments: argparse.Namespace) -> int:
    settings = cluster_file.settings_of(cluster_file.of_options(arguments.home, arguments.config))
    database = settings.database_file
    if not database.is_file():
        raise ConfigError(f"There is no cluster in {settings.home}.")
    try:
        lock = lock_home(settings.home)
    except HomeInUse:
        if arguments.accept:
            raise
        _check_pages(database)
        return 0
    with lock:
        marker = SessionMarker(database)
        if not arguments.accept:
            check_log(database, marker)
        _check_pages(database)
        if arguments.accept:
            marker.accept()
            print("The next server starts with the database as it is.")
    return 0


def _check_pages(database: Path) -> None:
    started = time.monotonic()
    problems = problems_of(database)
    for problem in problems:
        print(printable(problem))
    if problems:
        raise StoreError(
            f"The cluster's database {database} is damaged.",
            hint="Return to a backup: paicluster restore-store --home DIR lists them.",
        )
    size_mb, elapsed_s = database.stat().st_size / 1e6, time.monotonic() - started
    print(f"The database {database} is sound ({size_mb:.1f} MB, checked in {elapsed_s:.1f} s).")
