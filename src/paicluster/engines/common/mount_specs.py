"""Mount specs: what a supervisor needs to mount storages for its task, and what it leaves if killed."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from paicluster.engines.interface import Mount, TaskLaunch
from pairuntime.supervisor import storage_mounts

log = logging.getLogger(__name__)

_FOLDER = "mounts"
_NOT_IN_CONTAINER = (
    "The storage {} is not in the container: the program that starts containers does not see what the "
    "cluster mounts. An administrator has to run both in the same mount namespace."
)
# Variables of the server's account that a connection may need. None with credentials: those of the server
# are not for its users.
_PASSED_VARIABLES = (
    "PAI_TRANSFER_RETRY_S",
    *(name for base in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY") for name in (base, base.lower())),
)
MACHINE_VARIABLES = (
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "AWS_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
)
"""Others that it may need, with paths: they hold on one machine only."""


def folder_of(attempt_folder: Path) -> Path:
    """Folder in which the storages of an attempt without its own mount namespace are mounted.

    In the cluster's home, and not in the attempt's folder: that is deleted with everything in it.
    """
    return attempt_folder.parents[2] / _FOLDER / attempt_folder.name


def spec_of(task: TaskLaunch, attempt_folder: Path, *, in_container: bool) -> dict[str, object] | None:
    """Mount spec of a task, with credentials; None if it has no storages to mount."""
    if not task.storage_mounts:
        return None
    return build_spec(
        task,
        [sys.executable, "-m", "openpaisdk.storage.task_mount"],
        folder=folder_of(attempt_folder),
        home=attempt_folder,
        # With the other files of the task.
        staging=attempt_folder,
        # The programs of the server, and its home.
        protected=[*storage_mounts.program_paths(), str(attempt_folder.parents[2])],
        in_container=in_container,
        variables=_set_variables(MACHINE_VARIABLES),
    )


def build_spec(
    task: TaskLaunch,
    argv: Sequence[str],
    *,
    folder: Path,
    home: Path,
    staging: Path,
    protected: Sequence[str],
    in_container: bool,
    variables: Mapping[str, str],
) -> dict[str, object]:
    """Mount spec of a task with storages. ``argv`` starts the process of a mount.

    ``folder``: for storages that cannot be mounted at the paths that the task requested. ``staging``: for
    content until it is complete. ``protected``: over these paths no storage is mounted. ``variables``: of the
    process, in addition to those that hold on every machine.
    """
    return {
        "argv": list(argv),
        "env": {
            **_set_variables(_PASSED_VARIABLES),
            **variables,
            "LANG": "C.UTF-8",
            # No profile of the server's account is read.
            "HOME": str(home),
            "TMPDIR": str(staging),
            "AWS_EC2_METADATA_DISABLED": "true",
        },
        "folder": str(folder),
        "in_container": in_container,
        # Nor over other storages.
        "protected": [*protected, *(str(mount.source) for mount in task.mounts)],
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


def _set_variables(names: Sequence[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def binds_of(task: TaskLaunch, folder: Path) -> list[Mount]:
    """How the container of a task gets what its supervisor has mounted in this folder."""
    return [
        Mount(folder / str(number), mount.target, mount.read_only)
        for number, mount in enumerate(task.storage_mounts)
    ]


def check_script(task: TaskLaunch, attempt: str) -> str:
    """Shell commands that end the container of a task which does not see what its supervisor has mounted.

    The program that starts containers may be in another mount namespace. Then the folders below the mounts
    are in the container: what the task writes there would be lost.
    """
    return "".join(
        f"[ ! -e {shlex.quote(f'{mount.target}/{storage_mounts.marker_of(attempt)}')} ] || "
        f"{{ echo {shlex.quote(_NOT_IN_CONTAINER.format(mount.name))} >&2; exit 127; }}\n"
        for mount in task.storage_mounts
    )


def remove_leftovers(attempt_folder: Path) -> None:
    """Unmount what a killed supervisor and its mounts have left."""
    folder = folder_of(attempt_folder)
    if folder.exists():
        _remove(folder)


def remove_all_leftovers(home: Path, is_finished: Callable[[str], bool]) -> None:
    """Unmount the leftovers of all finished attempts, at the start of a server."""
    if (home / _FOLDER).is_dir():
        for folder in list((home / _FOLDER).iterdir()):
            if is_finished(folder.name):
                _remove(folder)


def _remove(folder: Path) -> None:
    for place in storage_mounts.remove_leftovers(str(folder), storage_mounts.marker_of(folder.name)):
        log.warning("Files that a task wrote are in %s and not on its storage; they stay there.", place)
