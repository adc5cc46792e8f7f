"""Upgrade of an older server by a newer command line: stop, back up the database, start again."""

from __future__ import annotations

import os
import shutil
import time

from openpaisdk.config.paths import display_path, make_private
from openpaisdk.embedded.handshake import Handshake
from openpaisdk.embedded.stop import terminate
from paiprotocol.errors import Unavailable

DATABASE = ("cluster.db", "cluster.db-wal", "cluster.db-shm")
BACKUPS = "backups"
MAX_BACKUPS = 3


def stop_for_upgrade(home: str, handshake: Handshake) -> None:
    """Stop the older server and back up its database. Tasks continue; the start lock keeps others out."""
    terminate(handshake)
    back_up(home, handshake.version)


def back_up(home: str, version: str) -> str:
    """Back up the database of a stopped server; the newest ``MAX_BACKUPS`` backups are kept."""
    safe_version = "".join(c if c.isalnum() or c in ".-" else "_" for c in version)
    folder = os.path.join(home, BACKUPS, f"{time.strftime('%Y%m%d-%H%M%S')}-{safe_version}")
    try:
        make_private(folder)
        for name in DATABASE:
            if os.path.exists(os.path.join(home, name)):
                shutil.copy2(os.path.join(home, name), os.path.join(folder, name))
        older = sorted(os.listdir(os.path.join(home, BACKUPS)))[:-MAX_BACKUPS]
        for name in older:
            shutil.rmtree(os.path.join(home, BACKUPS, name), ignore_errors=True)
    except OSError as e:
        raise Unavailable(
            f"The cluster's database cannot be backed up to {display_path(folder)} "
            f"before its upgrade: {e.strerror}.",
            hint="Free some space there; the next command starts the cluster.",
        ) from None
    return folder
