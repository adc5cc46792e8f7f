"""Installation of the runtime in the cluster's home, where package upgrades do not change it."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pairuntime
from paicluster.engines.common.byte_code import with_byte_code
from pairuntime import task_stubs
from pairuntime.task.webhdfs import CA_FILE
from pairuntime.zipapp_build import NAME, zipapp_bytes

# What runs a function: an interpreter starts for each call.
_COMPILED = (
    "__main__",
    "pairuntime/__",
    "pairuntime/task/__init__",
    "pairuntime/task/call_format",
    "pairuntime/task/delayed_call",
    "pairuntime/task/function_call",
    "pairuntime/task/function_task",
    "pairuntime/task/http_connection",
    "pairuntime/task/saved_state",
    "pairuntime/task/webhdfs",
)


def install(runtimes: Path, authority: str = "") -> Path:
    """Install this version's runtime into the folder if it is missing; returns its path.

    The folder also has what tasks use: ``bin`` for their PATH, ``lib`` for their PYTHONPATH, ``start`` with
    the sitecustomize that configures logging, and the certificates of ``authority``, by which tasks verify
    the server where those that their system trusts may not suffice.
    """
    data = zipapp_bytes()
    folder = runtimes / hashlib.sha256(data + authority.encode()).hexdigest()[:16]
    target = folder / NAME
    if not target.exists():
        staging = runtimes / f"{folder.name}.{os.getpid()}"
        shutil.rmtree(staging, ignore_errors=True)
        _write_files(staging, data, authority)
        try:
            staging.rename(folder)
        except OSError:
            # Another process installed it meanwhile, or an older version left an incomplete folder.
            shutil.rmtree(folder, ignore_errors=True)
            staging.rename(folder)
    return target


def _write_files(folder: Path, data: bytes, authority: str) -> None:
    package = Path(pairuntime.__file__).parent
    user_api = (package / "user_api.py").read_text()
    texts = {
        "bin/hdfs": task_stubs.HDFS,
        "bin/hdfs-mount": task_stubs.HDFS_MOUNT,
        "bin/pai-runtime": task_stubs.RUNTIME,
        "lib/openpaisdk/__init__.py": task_stubs.PACKAGE,
        "lib/openpaisdk/functions/__init__.py": task_stubs.FUNCTIONS,
        "lib/openpaisdk/functions/helpers.py": task_stubs.FUNCTION_HELPERS,
        "lib/openpaisdk/runtime.py": user_api + task_stubs.FROM_ARCHIVE,
        "start/sitecustomize.py": task_stubs.SITE,
    }
    if authority:
        texts[CA_FILE] = authority
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if name.startswith("bin/"):
            path.chmod(0o755)
    # Readable for every account; it has no secrets.
    (folder / NAME).write_bytes(with_byte_code(data, _COMPILED))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
