"""The runtime where all nodes see it, with its byte code in it: a fresh interpreter is then quicker."""

from __future__ import annotations

import importlib.util
import io
import marshal
import os
import zipfile
from pathlib import Path

from paicluster.engines.process import runtime

_NAME = "compiled.pyz"
_NEEDED = ("__main__", "pairuntime/__", "pairuntime/supervisor/", "pairuntime/slurm/")
# A hash instead of a time, and nobody need check it: what is in an archive never changes.
_UNCHECKED = (1).to_bytes(4, "little")


def install(runtimes: Path) -> Path:
    """Put this version's runtime into the folder, if it is not there, and give its path."""
    plain = runtime.install(runtimes)
    target = plain.with_name(_NAME)
    if not target.exists():
        for path in (runtimes, target.parent):
            path.chmod(0o755)
        aside = target.with_suffix(f".{os.getpid()}")
        aside.write_bytes(_with_byte_code(plain.read_bytes()))
        for path in (aside, plain):
            path.chmod(0o644)
        aside.rename(target)
    return target


def _with_byte_code(data: bytes) -> bytes:
    """What a supervisor needs, with compiled files too. Another version of Python compiles it by itself."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            if not name.startswith(_NEEDED):
                continue
            source = old.read(name)
            new.writestr(zipfile.ZipInfo(name), source)
            code = marshal.dumps(compile(source, name, "exec", dont_inherit=True, optimize=0))
            header = importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(source)
            new.writestr(zipfile.ZipInfo(name + "c"), header + code)
    return out.getvalue()
