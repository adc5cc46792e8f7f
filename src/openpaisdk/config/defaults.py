"""Defaults of options, in layers: ``./.openpai/defaults.yaml`` over ``~/.openpai/defaults.yaml``."""

from __future__ import annotations

import os

from openpaisdk.config.paths import display_path, project_folder, user_folder
from openpaisdk.config.yaml_files import Lock, read_yaml, write_yaml
from openpaisdk.errors import ConfigError, UsageError

FILE = "defaults.yaml"

KEYS = {
    "clusters-in-local": "yes: the clusters file lies in ./.openpai, not in your home folder",
    "cluster-alias": "the cluster to use (-a)",
    "virtual-cluster": "the virtual cluster to submit to (--vc)",
    "storage-alias": "the storage to use",
    "workspace": "the folder on the storage where jobs keep their files (-w)",
    "container-sdk-branch": "the branch of the SDK that jobs install",
    "image": "the container image of a job (-i)",
    "cpu": "how many cores a task gets (--cpu)",
    "gpu": "how many GPUs a task gets (--gpu)",
    "memoryMB": "how much memory a task gets, in MB (--memoryMB)",
    "mem": "how much memory a task gets, like 4g (--mem)",
    "sources": "files and folders that travel with a job (--sources); may be set several times",
    "pip-installs": "packages a job installs first (--pip-installs); may be set several times",
    "image-list": "images to choose from; may be set several times",
    "resource-list": "resources to choose from, as gpu,cpu,memoryMB; may be set several times",
    "web-default-form": "the form the web page opens with",
    "web-default-image": "the image the web page offers",
    "web-default-resource": "the resources the web page offers, as gpu,cpu,memoryMB",
}
LISTS = frozenset({"sources", "pip-installs", "image-list", "resource-list"})
NUMBERS = frozenset({"cpu", "gpu", "memoryMB"})
_YES = frozenset({"yes", "true", "on", "1"})
_NO = frozenset({"no", "false", "off", "0"})


class Defaults:
    """What is set, merged. Lists add up over the layers; of anything else the nearest one counts."""

    __slots__ = ("layers",)

    def __init__(self, layers: list[dict[str, object]]):
        self.layers = layers

    @classmethod
    def load(cls) -> Defaults:
        return cls([_layer(path) for path in _files()])

    def get(self, key: str) -> object:
        if key in LISTS:
            return self.many(key)
        return next((layer[key] for layer in self.layers if key in layer), None)

    def text(self, key: str) -> str:
        """One value as text; empty when nothing is set."""
        value = next((layer[key] for layer in self.layers if key in layer), None)
        return "" if value is None else str(value)

    def set_in(self, key: str) -> str:
        """The file whose value counts; empty where nothing is set."""
        return next((path for path in _files() if key in _layer(path)), "")

    def number(self, key: str) -> int | None:
        value = self.text(key)
        if not value:
            return None
        try:
            return int(value)
        except ValueError:
            raise ConfigError(
                f"The default {key}={value} is not a whole number.", hint=f"Mend it with: pai set {key}=2"
            ) from None

    def yes(self, key: str) -> bool:
        value = next((layer[key] for layer in self.layers if key in layer), False)
        return value is True or str(value).lower() in _YES

    def many(self, key: str) -> list[str]:
        out: list[str] = []
        for layer in self.layers:
            value = layer.get(key)
            out.extend(str(v) for v in value) if isinstance(value, list) else out.extend(
                [] if value is None else [str(value)]
            )
        return out

    def merged(self) -> dict[str, object]:
        """Everything that is set, as it counts."""
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
    """Parse what a person typed after ``pai set``."""
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
        raise UsageError(f"{key} holds one value, so {operator} means nothing for it: write {key}={value}.")
    if key in NUMBERS and not value.isdecimal():
        raise UsageError(f"{key} takes a whole number, not {value!r}.")
    if key == "clusters-in-local" and value.lower() not in _YES | _NO:
        raise UsageError(f"clusters-in-local takes yes or no, not {value!r}.")
    return Change(key, operator, value)


def check_key(key: str) -> str:
    if key in KEYS:
        return key
    from difflib import get_close_matches

    near = get_close_matches(key, KEYS, 1)
    raise UsageError(
        f"There is no default called {key!r}." + (f" Did you mean {near[0]}?" if near else ""),
        hint="pai set --help lists them",
    )


def change_defaults(changes: list[Change], remove: list[str], *, is_global: bool) -> None:
    """Write changes into one layer, all or none."""
    path = defaults_file(is_global=is_global)
    with Lock(path):
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
        here = defaults_file(is_global=False)
    except FileNotFoundError:  # the folder was deleted under us: it has nothing to say
        here = home
    return [here, home] if here != home else [home]


def _apply(layer: dict[str, object], change: Change) -> None:
    if change.key not in LISTS:
        number = change.key in NUMBERS
        layer[change.key] = int(change.value) if number else change.value
        return
    kept = layer.get(change.key)
    values = [str(v) for v in kept] if isinstance(kept, list) else []
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
            f"{display_path(path)} must hold keys and values.",
            hint="Remove it, or write lines like image: busybox",
        )
    return {str(k): v for k, v in value.items()}
