"""Byte code in the runtime's archive, so that an interpreter that starts for one task compiles nothing."""

from __future__ import annotations

import importlib.util
import io
import marshal
import zipfile
from functools import cache

# Unchecked hash-based pyc (PEP 552): the content of an archive never changes.
_UNCHECKED = (1).to_bytes(4, "little")


def with_byte_code(archive: bytes, compiled: tuple[str, ...], *, kept: tuple[str, ...] = ("",)) -> bytes:
    """An archive with the modules whose paths begin with ``kept``, and byte code of those in ``compiled``.

    It is for the version of Python that runs here; another one compiles the sources, as without it.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            if not name.endswith(".py") or not name.startswith(kept):
                continue
            source = old.read(name)
            new.writestr(zipfile.ZipInfo(name), source)
            if name.startswith(compiled):
                new.writestr(zipfile.ZipInfo(name + "c"), _pyc(source, name))
    return out.getvalue()


@cache
def _pyc(source: bytes, name: str) -> bytes:
    code = marshal.dumps(compile(source, name, "exec", dont_inherit=True, optimize=0))
    return importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(source) + code
