"""The runtime's own copy in the cluster's home: a package upgrade cannot pull it from under a task."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pairuntime
from pairuntime import task_stubs
from pairuntime.task.webhdfs import CA_FILE
from pairuntime.zipapp_build import NAME, zipapp_bytes


def install(runtimes: Path, authority: str = "") -> Path:
    """Put this version's runtime into the folder, if it is not there, and give its path.

    Beside it lies what tasks use: ``bin`` for their PATH, ``lib`` for their Python, and ``start``, with
    which every Python of a task logs as the cluster likes it; and ``authority``, the certificates by which
    tasks know the server, where those that their system trusts may not do.
    """
    data = zipapp_bytes()
    folder = runtimes / hashlib.sha256(data + authority.encode()).hexdigest()[:16]
    target = folder / NAME
    if not target.exists():
        aside = runtimes / f"{folder.name}.{os.getpid()}"
        shutil.rmtree(aside, ignore_errors=True)
        _write_files(aside, data, authority)
        try:
            aside.rename(folder)
        except OSError:
            # Somebody was as quick, or an older version made the folder without all of this.
            shutil.rmtree(folder, ignore_errors=True)
            aside.rename(folder)
    return target


def _write_files(folder: Path, data: bytes, authority: str) -> None:
    root = Path(pairuntime.__file__).parent
    user = (root / "user_api.py").read_text()
    texts = {
        "bin/hdfs": task_stubs.HDFS,
        "bin/pai-runtime": task_stubs.RUNTIME,
        "lib/openpaisdk/__init__.py": task_stubs.PACKAGE,
        "lib/openpaisdk/runtime.py": user,
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
    # Every account may use it; it tells nothing.
    (folder / NAME).write_bytes(data)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
