"""Storages that are mounted for tasks on nodes of Slurm: by which program, and where.

The runtime that travels with a job has only the standard library. What reads the storages is a Python of the
nodes that has this product installed (`mount-python`). It runs under the account of the task.
"""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path

from paicluster.engines.common import mount_specs
from paicluster.engines.interface import Mount, TaskLaunch
from paicluster.engines.slurm.options import SlurmOptions

# Not that of the folders of remote launches: those are deleted with everything in them.
_PREFIX = "paimounts-"
# For names that no other account knows beforehand: it could create the folder first, and the task would fail.
_KEY = secrets.token_bytes(32)
# By kind of storage: the module that reads it, and the extra of this product that installs it. The kernel
# mounts the others.
_PACKAGES = {"s3": ("s3fs", "s3"), "azureblob": ("adlfs", "azure"), "samba": ("smbprotocol", "samba")}
_HINT = (
    "An administrator has to install {product} for a Python of all nodes, and to name that Python as "
    "mount-python of the Slurm engine."
)
_PROGRAM = """
import os, sys
from importlib.util import find_spec
missing = [name for name in {modules!r} if find_spec(name) is None]
try:
    from openpaisdk.storage.task_mount import run
except (ImportError, SyntaxError) as e:
    missing = missing or ["openpaisdk.storage.task_mount (%s)" % e]
if missing:
    values = sys.executable, os.uname()[1], " and ".join(missing), {hint!r}
    print("The Python %s of the node %s cannot import %s. %s" % values)
    sys.exit(1)
run()
"""


def spec_of(
    task: TaskLaunch, options: SlurmOptions, attempt_folder: Path, *, in_container: bool
) -> dict[str, object] | None:
    """Mount spec of a task, with credentials; None if it has no storages to mount.

    ``attempt_folder``: as the node has it.
    """
    if not task.storage_mounts:
        return None
    packages = sorted({_PACKAGES[mount.kind] for mount in task.storage_mounts if mount.kind in _PACKAGES})
    extras = ",".join(extra for _, extra in packages)
    hint = _HINT.format(product=f"openpaisdk[{extras}]" if extras else "openpaisdk")
    modules = ("openpaisdk", *(module for module, _ in packages))
    return {
        **mount_specs.build_spec(
            task,
            [options.mount_python, "-c", _PROGRAM.format(modules=modules, hint=hint)],
            folder=folder_of(task, options),
            home=attempt_folder,
            # On a disk of the node: what tasks write need not travel twice.
            staging=options.node_folder,
            protected=[str(options.node_folder), str(attempt_folder.parents[2])],
            in_container=in_container,
            variables={},
        ),
        # Taken from the node: its paths are not the server's.
        "node_variables": list(mount_specs.MACHINE_VARIABLES),
        "hint": hint,
        "prefix": _PREFIX,
    }


def folder_of(task: TaskLaunch, options: SlurmOptions) -> Path:
    """Folder of the storages that cannot be mounted at the paths that the task requested.

    The same in each call of this process. What needs the folder later reads it from the task's files.
    """
    suffix = hmac.digest(_KEY, task.uid.encode(), "sha256").hex()[:16]
    return options.node_folder / f"{_PREFIX}{task.uid}.{suffix}"


def binds_of(task: TaskLaunch, options: SlurmOptions) -> list[Mount]:
    """How the container of a task gets what its supervisor has mounted."""
    return mount_specs.binds_of(task, folder_of(task, options))
