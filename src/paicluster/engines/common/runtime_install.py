"""Installation of the runtime in the cluster's home, where package upgrades do not change it."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
import zlib
from pathlib import Path

import pairuntime
from paicluster.engines.common.byte_code import with_byte_code
from pairuntime import task_stubs
from pairuntime.transport import CA_FILE
from pairuntime.zipapp_build import NAME, zipapp_bytes

# What an interpreter is started for each time: the zygote, a session in a task (half of its start would be
# compiling), a call of a function.
_COMPILED = (
    "__main__",
    "pairuntime/__",
    "pairuntime/exec_in_task",
    "pairuntime/fast_imports",
    "pairuntime/saved_environment",
    "pairuntime/session/",
    "pairuntime/supervisor/",
    "pairuntime/task/__init__",
    "pairuntime/task/delayed_call",
    "pairuntime/task/function_call",
    "pairuntime/task/function_task",
    "pairuntime/task/saved_state",
    "pairuntime/task/webhdfs",
    "pairuntime/transport/",
)


def install(runtimes: Path, ca_certificates: str = "") -> Path:
    """Install this version's runtime into the folder if it is missing or damaged; returns its path.

    The folder also has what tasks use: ``bin`` for their PATH, ``lib`` for their PYTHONPATH, ``start`` with
    the sitecustomize that configures logging, and the ``ca_certificates``, by which tasks verify the server
    where those that their system trusts may not suffice.
    """
    data = zipapp_bytes()
    folder = runtimes / hashlib.sha256(data + ca_certificates.encode()).hexdigest()[:16]
    target = folder / NAME
    if not _is_intact(target):
        staging = runtimes / f"{folder.name}.{os.getpid()}"
        shutil.rmtree(staging, ignore_errors=True)
        _write_files(staging, data, ca_certificates)
        try:
            staging.rename(folder)
        except OSError:
            # Another process installed it meanwhile, or an older version left an incomplete folder.
            shutil.rmtree(folder, ignore_errors=True)
            staging.rename(folder)
    return target


def _is_intact(archive: Path) -> bool:
    """Whether an archive is there, and a crash of the machine or its disk has not damaged it."""
    try:
        with zipfile.ZipFile(archive) as content:
            return content.testzip() is None
    except (OSError, zipfile.BadZipFile, zlib.error):
        return False


def _write_files(folder: Path, data: bytes, ca_certificates: str) -> None:
    package = Path(pairuntime.__file__).parent
    user_api = (package / "user_api.py").read_text()
    texts = {
        "bin/hdfs": task_stubs.HDFS,
        "bin/hdfs-mount": task_stubs.HDFS_MOUNT,
        "bin/pai-runtime": task_stubs.RUNTIME,
        "lib/openpaisdk/__init__.py": task_stubs.PACKAGE,
        "lib/openpaisdk/functions/__init__.py": task_stubs.FUNCTIONS,
        "lib/openpaisdk/functions/helpers.py": task_stubs.FUNCTION_HELPERS,
        "lib/openpaisdk/functions/task_errors.py": task_stubs.FUNCTION_ERRORS,
        "lib/openpaisdk/runtime.py": user_api + task_stubs.FROM_ARCHIVE,
        "start/sitecustomize.py": task_stubs.SITE,
    }
    if ca_certificates:
        texts[CA_FILE] = ca_certificates
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
