"""The runtime's own copy in the cluster's home: a package upgrade cannot pull it from under a task."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path

import pairuntime

_MAIN = "import sys\nfrom pairuntime.__main__ import main\n\nsys.exit(main(sys.argv[1:]))\n"


def zipapp_bytes() -> bytes:
    """The runtime as one file, the same bytes for the same sources."""
    root = Path(pairuntime.__file__).parent
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py"), _MAIN)
        for path in sorted(root.rglob("*.py")):
            name = "pairuntime/" + path.relative_to(root).as_posix()
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes())
    return out.getvalue()


def install(runtimes: Path) -> Path:
    """Put this version's runtime into the folder, if it is not there, and give its path."""
    data = zipapp_bytes()
    target = runtimes / hashlib.sha256(data).hexdigest()[:16] / "pairuntime.pyz"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_suffix(f".{os.getpid()}")
        aside.write_bytes(data)
        aside.rename(target)
    return target
