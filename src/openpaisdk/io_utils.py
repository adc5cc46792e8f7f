"""Files of settings and of jobs, read and written by scripts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from openpaisdk.config.yaml_files import parse_yaml, replace_file
from openpaisdk.errors import ConfigError

_NONE = object()


def from_file(fname: str | os.PathLike[str], default: Any = _NONE) -> Any:
    """What a YAML or JSON file says; ``default``, where one is given, if there is none or it is empty.

    A file that is there and cannot be read is an error all the same: nobody wants it overwritten.
    """
    path = Path(fname).expanduser()
    if not path.exists():
        if default is _NONE:
            raise ConfigError(f"There is no file {path}.")
        return default
    found = parse_yaml(str(path))  # JSON is YAML
    return default if found is None and default is not _NONE else found


def to_file(obj: Any, fname: str | os.PathLike[str]) -> None:
    """Write YAML, or JSON where the name ends so: whole or not at all, readable by its owner alone."""
    path = Path(fname).expanduser().absolute()
    if path.suffix == ".json":
        text = json.dumps(obj, indent=2, ensure_ascii=False) + "\n"
    else:
        import yaml

        text = yaml.safe_dump(obj, sort_keys=False, allow_unicode=True, default_flow_style=False)
    replace_file(str(path), text.encode())
