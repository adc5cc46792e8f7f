"""Modules that a job misses and the user has on this machine: where they are, and how they reach the task.

A private name may be that of a stranger's package in a public index. For a module that is here, the advice
is therefore to bring this one, not to install a package of the same name.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import Distribution

_FIND_PROGRAM = """
import importlib.util, sys
spec = importlib.util.find_spec(sys.argv[1])
if spec is not None:
    print((spec.submodule_search_locations and list(spec.submodule_search_locations)[0]) or spec.origin)
"""
_FIND_TIMEOUT_S = 10
_PACKAGE_FOLDERS = frozenset(("site-packages", "dist-packages"))
_MODULE_SUFFIXES = (".py", ".so", ".pyd")


def local_advice(module: str) -> str:
    """How a task gets the module that this machine has; empty if it has none of this name."""
    name = module.partition(".")[0]
    # A module of Python itself is no file to send: the Python of the task lacks it, or has another version.
    path = "" if name == "__main__" or name in sys.stdlib_module_names else _find(name)
    if not path:
        return ""
    here = f"{name} is on this machine, at {path}"
    folder = os.path.dirname(path)
    if os.path.basename(folder) not in _PACKAGE_FOLDERS:
        return f"{here}: {_send(path)}."
    distribution = _distribution(name, folder)
    if distribution is None:
        return f"{here}: install it where the task runs as it was installed here."
    text = distribution.read_text("direct_url.json")
    if text:
        return f"{here}, installed from {_source_url(text)}: install it from there where the task runs."
    package = f"{distribution.metadata['Name']}=={distribution.version}"
    return (
        f"{here}: --pip-installs {package} installs this version, from the package index that the task uses."
    )


def _send(path: str) -> str:
    """Advice on how to send a module that is no installed package."""
    try:
        relative = os.path.relpath(path, os.getcwd())
    except ValueError:  # on another drive of Windows
        relative = os.pardir
    if relative.startswith(os.pardir):
        return (
            "copy it into the folder that you submit from, which travels with the job, or build a wheel of "
            "it there and add --pip-installs ./WHEEL"
        )
    folder = os.path.dirname(relative)
    return f"add --sources {relative}" + (f" --env PYTHONPATH={folder}" if folder else "")


def _find(name: str) -> str:
    """Path of a module that this Python finds, or else ``python`` or ``python3``; empty if none does."""
    from shutil import which

    pythons = [path for command in ("python", "python3") if (path := which(command))]
    path = _find_here(name)
    for python in dict.fromkeys(pythons):
        if path:
            break
        if os.path.abspath(python) != sys.executable:
            path = _find_with(python, name)
    return path


def _find_here(name: str) -> str:
    from importlib.util import find_spec

    for path in (os.path.join(os.getcwd(), name), os.path.join(os.getcwd(), name + ".py")):
        if found := _existing(path):
            return found
    try:
        spec = find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return ""
    if spec is None:
        return ""
    folders = list(spec.submodule_search_locations or ())
    return _existing(folders[0] if folders else spec.origin or "")


def _find_with(python: str, name: str) -> str:
    import subprocess

    try:
        done = subprocess.run(
            [python, "-c", _FIND_PROGRAM, name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_FIND_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    lines = done.stdout.splitlines()
    return _existing(lines[-1]) if lines else ""


def _existing(path: str) -> str:
    """The path, if a module is there: built-in modules have a word instead.

    A folder without modules may be one of data or logs (``datasets``, ``wandb``), or one that several
    packages share (``google``).
    """
    if not os.path.isabs(path):
        return ""
    try:
        is_module = any(name.endswith(_MODULE_SUFFIXES) for name in os.listdir(path))
    except OSError:  # a file, or nothing
        is_module = path.endswith(_MODULE_SUFFIXES) and os.path.isfile(path)
    return os.path.abspath(path) if is_module else ""


def _distribution(name: str, folder: str) -> Distribution | None:
    """The installed package that a module of this folder belongs to."""
    from importlib.metadata import distributions

    for distribution in distributions(path=[folder]):
        for file in distribution.files or ():
            first, *rest = file.parts
            if (
                first == name
                if rest
                else first.partition(".")[0] == name and first.endswith(_MODULE_SUFFIXES)
            ):
                return distribution
    return None


def _source_url(direct_url: str) -> str:
    """Where an installed package came from; without a password that may be in the address."""
    import json
    from urllib.parse import urlsplit

    try:
        url = str(json.loads(direct_url)["url"])
    except (ValueError, KeyError, TypeError):
        return "a path or URL"
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
