"""Storages that are mounted for tasks: what the supervisor needs for them, and what it leaves if killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from paicluster.engines.interface import Mount, TaskLaunch
from pairuntime.supervisor import storage_mounts

_FOLDER = "mounts"
# Variables of the server's account that a connection may need. None with credentials: those of the server
# are not for its users.
_PASSED_VARIABLES = (
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "AWS_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PAI_TRANSFER_RETRY_S",
    *(name for base in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY") for name in (base, base.lower())),
)


def folder_of(attempt_folder: Path) -> Path:
    """Where the storages of an attempt are mounted that has no mount namespace of its own.

    In the cluster's home, and not in the attempt's folder: that is deleted with everything in it.
    """
    return attempt_folder.parents[2] / _FOLDER / attempt_folder.name


def spec_of(task: TaskLaunch, attempt_folder: Path, *, in_container: bool) -> dict[str, object] | None:
    """What the supervisor needs to mount the storages of a task; None if it has none. It has credentials."""
    if not task.storage_mounts:
        return None
    folder = folder_of(attempt_folder)
    passed = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    return {
        "argv": [sys.executable, "-m", "openpaisdk.storage.task_mount"],
        "env": {
            **passed,
            "LANG": "C.UTF-8",
            # What tasks write is staged with their other files. No profile of the server's account is read.
            "HOME": str(attempt_folder),
            "TMPDIR": str(attempt_folder),
            "AWS_EC2_METADATA_DISABLED": "true",
        },
        "folder": str(folder),
        "in_container": in_container,
        "mounts": [
            {
                "target": mount.target,
                "folder": str(folder / str(number)),
                "variable": mount.variable,
                "request": {
                    "name": mount.name,
                    "kind": mount.kind,
                    "data": dict(mount.data),
                    "sub_folder": mount.sub_folder,
                    "read_only": mount.read_only,
                },
            }
            for number, mount in enumerate(task.storage_mounts)
        ],
    }


def binds_of(task: TaskLaunch, attempt_folder: Path) -> list[Mount]:
    """How the container of a task gets what its supervisor has mounted."""
    return [
        Mount(folder_of(attempt_folder) / str(number), mount.target, mount.read_only)
        for number, mount in enumerate(task.storage_mounts)
    ]


def remove_leftovers(attempt_folder: Path) -> None:
    """Unmount what a killed supervisor and its mounts have left."""
    folder = folder_of(attempt_folder)
    if folder.exists():
        storage_mounts.remove_leftovers(str(folder))


def remove_all_leftovers(home: Path, is_finished: Callable[[str], bool]) -> None:
    """The same for all attempts that have finished, at the start of a server."""
    if (home / _FOLDER).is_dir():
        for folder in list((home / _FOLDER).iterdir()):
            if is_finished(folder.name):
                storage_mounts.remove_leftovers(str(folder))
