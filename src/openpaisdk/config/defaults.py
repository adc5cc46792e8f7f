"""Defaults of options, in layers: ``./.openpai/defaults.yaml`` over ``~/.openpai/defaults.yaml``."""

from __future__ import annotations

import os

from openpaisdk.config.paths import display_path, project_folder, user_folder
from openpaisdk.config.yaml_files import FileLock, read_yaml, write_yaml
from paiprotocol.errors import ConfigError, UsageError

FILE = "defaults.yaml"

KEYS = {
    "clusters-in-local": "yes: the clusters file is in ./.openpai, not in your home folder",
    "cluster-alias": "the cluster to use (-a)",
    "virtual-cluster": "the virtual cluster to submit to (--vc)",
    "storage-alias": "the storage to use",
    "workspace": "the folder on the storage for the files of jobs, relative to /<user> (-w)",
    "container-sdk-branch": "the SDK that jobs install: a version, branch, path or URL (default: none)",
    "image": "the container image of a job (-i)",
    "cpu": "cores per task (--cpu)",
    "gpu": "GPUs per task (--gpu)",
    "memoryMB": "memory per task in MB (--memoryMB)",
    "mem": "memory per task with a unit, like 4g (--mem)",
    "notebook-token": "the token of Jupyter servers (--token of pai notebook-job --interactive)",
    "sources": "files and folders uploaded with a job (--sources); may be set several times",
    "pip-installs": "Python packages a job installs (--pip-installs); may be set several times",
}
UNREAD_KEYS = frozenset(
    {"image-list", "resource-list", "web-default-form", "web-default-image", "web-default-resource"}
)
"""Keys of OpenPAI's SDK for pages that are not part of this package. A file may have them; nothing reads
them."""
LISTS = frozenset({"sources", "pip-installs"})
NUMBERS = frozenset({"cpu", "gpu", "memoryMB"})
_YES = frozenset({"yes", "true", "on", "1"})
_NO = frozenset({"no", "false", "off", "0"})


class Defaults:
    """Merged defaults. Lists are concatenated over the layers; other values come from the nearest layer."""

    __slots__ = ("layers",)

    def __init__(self, layers: list[dict[str, object]]):
        self.layers = layers

    @classmethod
    def load(cls) -> Defaults:
        return cls([_layer(path) for path in _files()])

    def get(self, key: str) -> object:
        if key in LISTS:
            return self.values(key)
        return next((layer[key] for layer in self.layers if key in layer), None)

    def text(self, key: str) -> str:
        """One value as text; empty if it is not set."""
        value = next((layer[key] for layer in self.layers if key in layer), None)
        return "" if value is None else str(value)

    def defining_file(self, key: str) -> str:
        """The file that defines the effective value; empty if it is not set."""
        return next((path for path in _files() if key in _layer(path)), "")

    def number(self, key: str) -> int | None:
        value = self.text(key)
        if not value:
            return None
        try:
            return int(value)
        except ValueError:
            raise ConfigError(
                f"The default {key}={value} is not a whole number.", hint=f"Fix it with: pai set {key}=2"
            ) from None

    def is_enabled(self, key: str) -> bool:
        value = next((layer[key] for layer in self.layers if key in layer), False)
        return value is True or str(value).lower() in _YES

    def values(self, key: str) -> list[str]:
        out: list[str] = []
        for layer in self.layers:
            value = layer.get(key)
            out.extend(str(v) for v in value) if isinstance(value, list) else out.extend(
                [] if value is None else [str(value)]
            )
        return out

    def merged(self) -> dict[str, object]:
        """All effective values."""
        names = dict.fromkeys(name for layer in self.layers for name in layer)
        return {name: self.get(name) for name in names}


class Change:
    """One ``key=value``, ``key+=value`` or ``key-=value``."""

    __slots__ = ("key", "operator", "value")

    def __init__(self, key: str, operator: str, value: str):
        self.key = key
        self.operator = operator
        self.value = value


def read_change(text: str) -> Change:
    """Parse an argument of ``pai set``."""
    key, equals, value = text.partition("=")
    operator = "="
    if key.endswith(("+", "-")):
        operator, key = key[-1] + "=", key[:-1]
    key = check_key(key.strip())
    if not equals or not value.strip():
        raise UsageError(
            f"{text!r} sets nothing: write {key}=<value>.", hint=f"Remove a default with: pai unset {key}"
        )
    value = value.strip()
    if operator != "=" and key not in LISTS:
        raise UsageError(f"{key} is not a list, so {operator} is not possible: write {key}={value}.")
    if key in NUMBERS and not value.isdecimal():
        raise UsageError(f"{key} takes a whole number, not {value!r}.")
    if key == "clusters-in-local" and value.lower() not in _YES | _NO:
        raise UsageError(f"clusters-in-local takes yes or no, not {value!r}.")
    return Change(key, operator, value)


def check_key(key: str) -> str:
    """Check a key that is set."""
    if key in KEYS:
        return key
    if key in UNREAD_KEYS:
        raise UsageError(
            f"Nothing reads the default {key!r}.", hint="pai set --help lists those that are read"
        )
    from difflib import get_close_matches

    near = get_close_matches(key, KEYS, 1)
    raise UsageError(
        f"There is no default called {key!r}." + (f" Did you mean {near[0]}?" if near else ""),
        hint="pai set --help lists them",
    )


def check_known_key(key: str) -> str:
    """Check a key that is removed."""
    return key if key in UNREAD_KEYS else check_key(key)


def change_defaults(changes: list[Change], remove: list[str], *, is_global: bool) -> None:
    """Write changes to one layer, atomically."""
    path = defaults_file(is_global=is_global)
    with FileLock(path):
        layer = dict(_layer(path))
        for change in changes:
            _apply(layer, change)
        for key in remove:
            if key not in layer:
                scope = "globally" if is_global else "in this folder"
                raise UsageError(
                    f"{key} is not set {scope}.",
                    hint="" if is_global else f"If it is set globally, use: pai unset -g {key}",
                )
            del layer[key]
        write_yaml(path, layer)


def defaults_file(*, is_global: bool) -> str:
    return os.path.join(user_folder() if is_global else project_folder(), FILE)


def _files() -> list[str]:
    """The files of the layers, the nearest first."""
    home = defaults_file(is_global=True)
    try:
        project = defaults_file(is_global=False)
    except FileNotFoundError:  # the current folder was deleted: it has no settings
        project = home
    return [project, home] if project != home else [home]


def _apply(layer: dict[str, object], change: Change) -> None:
    if change.key not in LISTS:
        number = change.key in NUMBERS
        layer[change.key] = int(change.value) if number else change.value
        return
    old = layer.get(change.key)
    values = [str(v) for v in old] if isinstance(old, list) else []
    if change.operator == "-=":
        if change.value not in values:
            raise UsageError(f"{change.value!r} is not among {change.key}.")
        values.remove(change.value)
    elif change.value not in values:
        values.append(change.value)
    layer[change.key] = values


def _layer(path: str) -> dict[str, object]:
    value = read_yaml(path)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(
            f"{display_path(path)} must contain keys and values.",
            hint="Remove it, or write lines like image: busybox",
        )
    return {str(k): v for k, v in value.items()}
