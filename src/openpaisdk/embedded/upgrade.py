"""A newer command line replaces an older cluster: stopped, its database copied, started anew."""

from __future__ import annotations

import os
import shutil
import time

from openpaisdk.config.paths import display_path, make_private
from openpaisdk.embedded.handshake import Handshake
from openpaisdk.embedded.stop import terminate
from openpaisdk.errors import Unavailable

DATABASE = ("cluster.db", "cluster.db-wal", "cluster.db-shm")
BACKUPS = "backups"
KEPT = 3


def stop_for_upgrade(home: str, found: Handshake) -> None:
    """Stop the older cluster and copy its database. Tasks go on meanwhile; nobody else can start one."""
    terminate(found)
    back_up(home, found.version)


def back_up(home: str, version: str) -> str:
    """Copy the database of a cluster that does not run; the newest few copies are kept."""
    kept = "".join(c if c.isalnum() or c in ".-" else "_" for c in version)
    folder = os.path.join(home, BACKUPS, f"{time.strftime('%Y%m%d-%H%M%S')}-{kept}")
    try:
        make_private(folder)
        for name in DATABASE:
            if os.path.exists(os.path.join(home, name)):
                shutil.copy2(os.path.join(home, name), os.path.join(folder, name))
        older = sorted(os.listdir(os.path.join(home, BACKUPS)))[:-KEPT]
        for name in older:
            shutil.rmtree(os.path.join(home, BACKUPS, name), ignore_errors=True)
    except OSError as e:
        raise Unavailable(
            f"The cluster's database cannot be copied to {display_path(folder)} "
            f"before its upgrade: {e.strerror}.",
            hint="Make room there; the cluster starts with the next command.",
        ) from None
    return folder
