"""Parts that an installation may lack, and the commands that install them: extras, programs."""

from __future__ import annotations

import os
import re
import sys
from importlib import metadata
from importlib.util import find_spec
from shutil import which
from typing import NamedTuple

from openpaisdk.config.paths import display_path

_PACKAGE = "openpaisdk"
# Of developers.
_UNLISTED = {"dev"}
EXTRA_PURPOSES = {
    "s3": "storages on S3",
    "azure": "storages on Azure Blob",
    "samba": "shares of Samba in jobs",
    "ssh": "the SSH endpoint of a server",
    "postgresql": "a server's database in PostgreSQL",
}
_REQUIREMENT = re.compile(r"([\w.-]+)(?:.*;(?P<marker>.*))?")
_EXTRA = re.compile(r"extra *== *['\"]([\w-]+)['\"]")
_LINUX_ONLY = re.compile(r"sys_platform *== *['\"]linux['\"]")

_PACKAGE_MANAGERS = {
    "apt-get": "apt-get install",
    "dnf": "dnf install",
    "zypper": "zypper install",
    "pacman": "pacman -S",
    "apk": "apk add",
    "brew": "brew install",
}
# Where the package of a program has another name; "" is the name elsewhere.
_PACKAGE_NAMES = {
    "ssh": {
        "apt-get": "openssh-client",
        "apk": "openssh-client",
        "pacman": "openssh",
        "brew": "openssh",
        "": "openssh-clients",
    },
    "fusermount3": {"": "fuse3"},
}


class Requirements(NamedTuple):
    """What the installed package requires: its own dependencies, and those of each extra, by name."""

    always: list[str]
    extras: dict[str, list[str]]


def requirements() -> Requirements | None:
    """Of this platform, by the package's own metadata; None for a checkout that was never installed."""
    try:
        lines = metadata.requires(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    found = Requirements([], {})
    for line in lines:
        matched = _REQUIREMENT.match(line)
        if matched is None:
            continue
        marker = matched["marker"] or ""
        if _LINUX_ONLY.search(marker) and not sys.platform.startswith("linux"):
            continue
        extra = _EXTRA.search(marker)
        if extra is None:
            found.always.append(matched[1])
        elif extra[1] not in _UNLISTED:
            found.extras.setdefault(extra[1], []).append(matched[1])
    return found


def missing(packages: list[str]) -> list[str]:
    """Those of the packages that this Python does not have."""
    return [name for name in packages if not _is_installed(name)]


def _is_installed(package: str) -> bool:
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def install_packages_command(packages: list[str], extra: str = "") -> str:
    """The command that adds packages, or the extra that they belong to, to the installation that runs."""
    python = display_path(sys.executable)
    if os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json")):
        return f"pipx inject {_PACKAGE} {' '.join(packages)}"
    if os.path.exists(os.path.join(sys.prefix, "uv-receipt.toml")):
        return f"uv pip install --python {python} {' '.join(packages)}"
    wanted = f"'{_PACKAGE}[{extra}]'" if extra else " ".join(packages)
    if find_spec("pip") is None:
        return f"uv pip install --python {python} {wanted}"
    first = which("pip")
    if first and os.path.dirname(first) == os.path.dirname(sys.executable):
        return f"pip install {wanted}"
    return f"{python} -m pip install {wanted}"


def install_program_command(program: str) -> str:
    """The command of this system that installs a program; a sentence where the system is not known."""
    names = _PACKAGE_NAMES.get(program, {})
    manager = next((name for name in _PACKAGE_MANAGERS if which(name)), "")
    package = names.get(manager) or names.get("") or program
    if not manager:
        return f"Install the package {package} of this system."
    is_root = sys.platform != "win32" and os.geteuid() == 0
    sudo = "" if is_root or manager == "brew" else "sudo "
    return f"{sudo}{_PACKAGE_MANAGERS[manager]} {package}"
