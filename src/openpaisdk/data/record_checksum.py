"""Checksum of a record's content: CRC-32C, which processors compute with instructions of their own."""

from __future__ import annotations

import sys
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

from paiprotocol.errors import PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def crc32c_function() -> Callable[..., int]:
    """``crc32c(data, value=0)``."""
    extension = _load_extension()
    if extension is not None:
        function: Callable[..., int] = extension.crc32c
        return function
    try:
        from crc32c import crc32c
    except ImportError:
        raise PaiError(
            "Packs need the Python package crc32c, which is not installed.", hint="pip install crc32c"
        ) from None
    return crc32c


@cache
def _load_extension() -> Any:
    """The package's C module alone; None if it is not where it is expected.

    The package itself imports importlib.metadata for its version, which takes longer than to pack a thousand
    files.
    """
    if "crc32c" in sys.modules:
        return None
    package = PathFinder.find_spec("crc32c")
    if package is None:
        return None
    spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module if hasattr(module, "crc32c") else None
