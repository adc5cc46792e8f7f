"""YAML and JSON files, for scripts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from openpaisdk.config.yaml_files import parse_yaml, replace_file
from paiprotocol.errors import ConfigError

_NO_DEFAULT = object()


def from_file(fname: str | os.PathLike[str], default: Any = _NO_DEFAULT) -> Any:
    """The content of a YAML or JSON file; ``default``, if given, for a missing or empty file.

    A file that exists but cannot be read is always an error, so that it is not overwritten.
    """
    path = Path(fname).expanduser()
    if not path.exists():
        if default is _NO_DEFAULT:
            raise ConfigError(f"There is no file {path}.")
        return default
    content = parse_yaml(str(path))  # JSON is YAML
    return default if content is None and default is not _NO_DEFAULT else content


def to_file(obj: Any, fname: str | os.PathLike[str]) -> None:
    """Write YAML, or JSON if the name ends in ``.json``: atomically, readable only by its owner."""
    path = Path(fname).expanduser().absolute()
    if path.suffix == ".json":
        text = json.dumps(obj, indent=2, ensure_ascii=False) + "\n"
    else:
        import yaml

        text = yaml.safe_dump(_plain(obj), sort_keys=False, allow_unicode=True, default_flow_style=False)
    replace_file(str(path), text.encode())


def _plain(value: Any) -> Any:
    """The value with plain mappings and lists: YAML knows no classes derived from them."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
