"""Run a program, write the calls of its framework: ``recorder.py CLASS FILE PROGRAM [ARGUMENT...]``."""

from __future__ import annotations

import functools
import json
import numbers
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpaisdk.runtime

_METHODS = ("on_", "log_", "save", "finalize", "after_save_checkpoint")


def _plain(value: Any) -> Any:
    """What JSON can hold of an argument; of Trainer's state what a callback reads."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if hasattr(value, "is_world_process_zero"):
        names = ("global_step", "is_world_process_zero")
        return {"state": {name: getattr(value, name) for name in names}}
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return value if isinstance(value, str) else None


def _recorded(original: type, calls: list[Any]) -> type:
    class Recorded(original):
        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            return _wrapper(name, value) if name.startswith(_METHODS) and callable(value) else value

    def _wrapper(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*arguments: Any, **named: Any) -> Any:
            calls.append([name, [_plain(value) for value in arguments], _plain(named)])
            return method(*arguments, **named)

        return call

    return Recorded


def main() -> None:
    name, file, *sys.argv = sys.argv[1:]
    calls: list[Any] = []
    setattr(openpaisdk.runtime, name, _recorded(getattr(openpaisdk.runtime, name), calls))
    runpy.run_path(sys.argv[0], run_name="__main__")
    # What objects of the framework are beside metrics and state does not matter to a callback.
    for call in calls:
        call[2] = {key: value for key, value in call[2].items() if value is not None}
    Path(file).write_text("[\n" + ",\n".join(json.dumps(call) for call in calls) + "\n]\n")


main()
