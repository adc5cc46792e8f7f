"""Pickled calls: the function, its arguments, and references to what they need from the storage.

Two kinds of values are not in the pickle of a call but referred to: the result of another call (a future),
which goes from task to task and never through the client, and a large argument, which is uploaded once
however many calls use it.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle

from openpaisdk.functions.usage_errors import CallUsageError
from paiprotocol.errors import PaiError
from pairuntime.transport.call_format import RESULT_OF_CALL, STORED_VALUE

LARGE_VALUE_BYTES = 1 << 20
"""An argument whose pickle is larger is uploaded on its own, named by its hash."""

_ARRAY_MODULES = frozenset(("numpy", "torch", "jax", "jaxlib", "cupy"))

Reference = tuple[str, str]
"""Kind and path of a value on the storage."""


class ResultReference:
    """What a future is in the pickle of another call; the class that futures derive from."""

    def result_path(self) -> str:
        raise NotImplementedError


class CallPickler:
    """Pickles calls. ``store`` uploads the pickle of a large argument and returns its path."""

    def __init__(self, store: Callable[[bytes], str]):
        self._store = store
        self.dependencies: list[ResultReference] = []
        """Futures that the pickled calls refer to."""
        self.modules: set[str] = set()
        """Modules that the task imports to load the calls."""
        self._stored: dict[int, tuple[object, str]] = {}
        """Path of each large argument by identity, with the argument, so that the identity stays its own."""

    def function(self, function: Callable[..., Any]) -> bytes:
        return self._dumps(function, f"The function {_name(function)}", {})

    def arguments(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
        call = (tuple(args), dict(kwargs))
        data = self._dumps(call, "An argument of the function", self._paths())
        if len(data) <= LARGE_VALUE_BYTES:
            return data
        for value in (*args, *kwargs.values()):
            self._store_if_large(value)
        return self._dumps(call, "An argument of the function", self._paths())

    def _paths(self) -> dict[int, str]:
        return {identity: path for identity, (_, path) in self._stored.items()}

    def _store_if_large(self, value: object) -> None:
        """Store a value of any kind if its pickle is large."""
        if id(value) not in self._stored:
            pickled = self._dumps(value, "An argument of the function", self._paths())
            if len(pickled) > LARGE_VALUE_BYTES:
                self._stored[id(value)] = (value, self._store(pickled))

    def _store_value(self, value: object) -> str:
        """Store a value that is known to be large; returns its path."""
        if id(value) not in self._stored:
            pickled = self._dumps(value, "An argument of the function", {})
            self._stored[id(value)] = (value, self._store(pickled))
        return self._stored[id(value)][1]

    def _dumps(self, value: object, what: str, stored: Mapping[int, str]) -> bytes:
        buffer = io.BytesIO()
        try:
            _Pickler(buffer, value, self._refer, self._store_value, stored, self.modules).dump(value)
        except PaiError:  # of the storage, or of a call in a batch
            raise
        except Exception as e:
            raise CallUsageError(
                f"{what} cannot be sent to a job: {e}.".replace("..", "."),
                hint="Open files, connections, locks and running generators cannot be pickled: create them "
                "inside the function.",
            ) from e
        return buffer.getvalue()

    def _refer(self, future: ResultReference) -> Reference:
        path = future.result_path()
        if future not in self.dependencies:
            self.dependencies.append(future)
        return RESULT_OF_CALL, path


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(
        self,
        file: io.BytesIO,
        root: object,
        refer: Callable[[ResultReference], Reference],
        store: Callable[[object], str],
        stored: Mapping[int, str],
        modules: set[str],
    ):
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._root = root
        self._refer = refer
        self._store = store
        self._stored = stored
        self._modules = modules

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, ModuleType):
            self._modules.add(value.__name__)
        elif isinstance(value, (type, FunctionType)):
            self._modules.add(str(value.__module__))
        return super().reducer_override(value)

    def persistent_id(self, value: object) -> Reference | None:
        if isinstance(value, ResultReference):
            return self._refer(value)
        if self._stored and (path := self._stored.get(id(value))):
            return STORED_VALUE, path
        if value is not self._root and _data_bytes(value) > LARGE_VALUE_BYTES:
            return STORED_VALUE, self._store(value)
        return None


def _data_bytes(value: object) -> int:
    """Size of bytes, text and arrays; 0 for other values, whose size is not known before they are pickled."""
    kind = type(value)
    if kind is bytes or kind is str or kind is bytearray:
        return len(value)  # type: ignore[arg-type]
    if kind.__module__.partition(".")[0] in _ARRAY_MODULES:
        size = getattr(value, "nbytes", 0)
        return size if isinstance(size, int) else 0
    return 0


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)
