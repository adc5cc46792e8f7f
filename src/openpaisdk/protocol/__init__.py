"""Public names for scripts: jobs as data, each loaded when first used. Type checkers read `__init__.pyi`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec

from paiprotocol import jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

__all__ = jobs.__all__


class _FormerModules:
    """Finder of modules as pickles of version 0.5 name them: ``openpaisdk.protocol.problems`` and others."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        is_ours = name.rpartition(".")[0] == __name__
        return ModuleSpec(name, _FormerModules) if is_ours else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        module = import_module(f"{jobs.__name__}.{spec.name.rpartition('.')[2]}")
        spec.loader_state = module.__spec__
        return module

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        # It was executed under its present name; only the spec is another now.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


sys.meta_path.append(_FormerModules)  # type: ignore[arg-type]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(jobs, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
