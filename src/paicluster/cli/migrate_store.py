"""`paicluster migrate-store`: move a cluster's database from its file to a PostgreSQL server."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from paicluster.cli.admin_api import home_option
from paicluster.cli.database_file import database_file
from paicluster.config import cluster_file
from paicluster.server.home_lock import lock_home
from paicluster.store import Store
from paicluster.store.address import DatabaseAddress
from paiprotocol.errors import ConfigError, StoreError


def options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Copy a cluster's database into an empty one of PostgreSQL, and compare both. Stop\n"
        "the server first. Keys, logs and files stay in the home. The old file is kept, and\n"
        "no server starts on it any more. An interrupted copy is simply repeated."
    )
    parser.epilog = (
        "example:\n  paicluster migrate-store --home ./cluster --to postgresql://pai@db.example.com/pai"
    )
    home_option(parser)
    parser.add_argument("--to", required=True, metavar="URL", help="address of the new database")
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        help="file with its password (default: the variable PAICLUSTER_DATABASE_PASSWORD)",
    )


def migrate_store(arguments: argparse.Namespace) -> int:
    settings = cluster_file.settings_of(cluster_file.of_options(arguments.home, arguments.config))
    source = database_file(settings, "It was moved already.")
    if not source.is_file():
        raise ConfigError(f"There is no cluster in {settings.home}.")
    for problem in cluster_file.database_url_problems(arguments.to):
        raise ConfigError(f"--to: {problem}")
    password = Path(arguments.password_file).expanduser().absolute() if arguments.password_file else None
    address = DatabaseAddress(arguments.to, password)
    try:
        from paicluster.store.postgresql.database_copy import copy_database
    except ImportError as error:
        raise StoreError(
            f"psycopg cannot be imported ({error}).", hint="Install it: pip install 'openpaisdk[postgresql]'"
        ) from None
    with lock_home(settings.home):
        # Checks the file after a crash, and upgrades it.
        Store.open(source).close()
        counts = copy_database(source, address, lambda line: print(line, file=sys.stderr))
    print(f"Copied {counts['jobs']} jobs and {counts['users']} users to {address}; all rows agree.")
    print(f"No server starts on {source} any more. Now write to cluster.yaml:\n\n  database: {arguments.to}")
    if password is not None:
        print(f"  database-password-file: {password}")
    return 0
