"""`paicluster restore-store`: return to an automatic backup of a cluster's database."""

from __future__ import annotations

import argparse
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from paicluster.cli.admin_api import home_option
from paicluster.cli.database_file import database_file
from paicluster.cli.terminal import output_option, print_rows
from paicluster.config import cluster_file
from paicluster.config.settings import Settings
from paicluster.engines.common import attempt_folder
from paicluster.engines.interface import Phase
from paicluster.engines.process.attempt_owner import signal_owner
from paicluster.server.home_lock import lock_home
from paicluster.store.backups import BackupFolder, return_to
from paiprotocol.errors import ConfigError, NotFound, StoreError

_LATEST = "latest"


def options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "List the automatic backups of a cluster's database, or return to one of them.\n"
        "Stop the server first. The present files are moved aside, not deleted. Jobs,\n"
        "users and tokens are then those of the backup; logs and files stay, and tasks of\n"
        "later jobs are stopped."
    )
    parser.epilog = (
        "examples:\n  paicluster restore-store --home ./cluster\n"
        "  paicluster restore-store --home ./cluster latest"
    )
    home_option(parser)
    parser.add_argument(
        "backup",
        metavar="BACKUP",
        nargs="?",
        help="its name in the list, a path, or `latest`; none: list them",
    )
    output_option(parser)


def restore_store(arguments: argparse.Namespace) -> int:
    settings = cluster_file.settings_of(cluster_file.of_options(arguments.home, arguments.config))
    if not settings.home.is_dir():
        raise ConfigError(f"There is no cluster in {settings.home}.")
    database = database_file(
        settings, "Return to a backup with PostgreSQL's own programs, while the server is stopped: pg_restore"
    )
    folder = BackupFolder(settings.backup_folder)
    if arguments.backup is None:
        _list(folder, arguments.output)
        return 0
    with lock_home(settings.home):
        backup = _find(folder, arguments.backup)
        aside = settings.home / time.strftime("replaced-%Y%m%dT%H%M%SZ", time.gmtime())
        try:
            return_to(backup, database, aside)
        except OSError as error:
            raise StoreError(f"{database} could not be replaced: {error.strerror or error}.") from error
        print(f"The database is now that of {backup}.")
        print(f"The files it replaced are in {aside}: remove them when you do not need them any more.")
        stop_unknown_tasks(settings, "backup")
    return 0


def _list(folder: BackupFolder, output: str) -> None:
    backups = folder.backups()
    if not backups and output == "table":
        print(f"There are no backups in {folder.path} yet.", file=sys.stderr)
        return
    rows = [
        {
            "name": backup.path.name,
            "path": str(backup.path),
            "taken": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(backup.taken_s)),
            "size": backup.size,
        }
        for backup in backups
    ]
    print_rows(rows, {"BACKUP": "name", "TAKEN": "taken", "BYTES": "size"}, output)


def _find(folder: BackupFolder, name: str) -> Path:
    if name == _LATEST:
        for backup in folder.backups():
            return backup.path
        raise NotFound(f"There are no backups in {folder.path}.")
    for path in (folder.path / name, Path(name).expanduser().absolute()):
        if path.is_file():
            return path
    raise NotFound(f"There is no backup {name}.", hint="paicluster restore-store --home DIR lists them.")


def stop_unknown_tasks(settings: Settings, what: str = "database") -> None:
    """Stop tasks of jobs that the database does not contain: the cluster could neither show nor stop them."""
    with closing(sqlite3.connect(settings.database_file)) as conn:
        known = {uid for (uid,) in conn.execute("SELECT uid FROM tasks")}
    stopped = 0
    for folder in (settings.home / "tasks").glob("*/*"):
        if folder.name not in known and attempt_folder.observe(folder).phase is Phase.RUNNING:
            attempt_folder.request_stop(folder, folder.name, settings.grace_s)
            signal_owner(attempt_folder.owner_of(folder) or {}, signal.SIGTERM)
            stopped += 1
    if stopped:
        print(f"Tasks of jobs that the {what} does not contain were stopped: {stopped}.")
