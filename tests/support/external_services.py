"""Parts from outside that tests need for real: installed once; one that is missing in CI is a failure.

`.ci/bare` hides what a bare Debian does not have: PATH is one folder of links. What a test asks for here
appears in that folder, with the programs of all packages that come with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

_LOCK = Path(tempfile.gettempdir()) / f"openpaisdk-outside-{os.getuid()}.lock"
_INSTALL_S = 600
# Of .ci/bare: the folder of links, and the PATH without it.
_LINKS, _HIDDEN = "TEST_PROGRAMS", "TEST_HIDDEN_PATH"
_NOT_DEPENDENCIES = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")


@cache
def bare_programs() -> frozenset[str]:
    """Programs that every machine has on which the tests run."""
    text = Path(__file__).with_name("programs_of_bare_debian.txt").read_text()
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return frozenset(name for line in lines for name in line.split())


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def missing(what: str) -> None:
    """In CI everything a test needs must be had; on a person's machine the test steps aside and says why."""
    if in_ci() or os.geteuid() == 0:
        pytest.fail(f"{what} is needed for this test and could not be had.")
    pytest.skip(f"{what} is needed for this test.")


def debian(
    packages: Sequence[str],
    *,
    commands: Sequence[str],
    files: Sequence[str] = (),
    of_newer_releases: Sequence[str] = (),
) -> None:
    """Have these commands and files, by installing these packages of Debian or Ubuntu when one is not there.

    ``of_newer_releases``: packages that older releases do not have; a part of another package there.
    Several tests may ask at once, from several processes: one installs, the others wait.
    """

    def absent() -> list[str]:
        found = [command for command in commands if _find(command) is None]
        return found + [file for file in files if not Path(file).exists()]

    if absent():
        _install(packages, absent, of_newer_releases)
    _reveal(packages, commands)


def install_podman() -> None:
    """Have podman, with what it calls for a network of a container, and a shell for images."""
    # netavark calls one of the two filters, according to its release.
    network = ["netavark", "iptables", "nftables", "slirp4netns"]
    debian(
        ["podman", "runc", *network, "uidmap", "busybox-static"],
        commands=["podman", "runc", "iptables", "nft", "slirp4netns", "busybox"],
    )


def _search_path() -> str:
    """Where programs are looked for: also those of the administrator, and those that CI hides."""
    return f"{os.environ.get('PATH', '')}:{os.environ.get(_HIDDEN, '')}:/usr/sbin:/sbin"


def _find(command: str) -> str | None:
    return shutil.which(command, path=_search_path())


def _install(
    packages: Sequence[str], absent: Callable[[], list[str]], of_newer_releases: Sequence[str]
) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        missing(f"{', '.join(absent())} (apt-get install {' '.join(packages)})")
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not absent():
            return
        # Scripts of packages may call whatever the machine has.
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "PATH": _search_path()}
        get = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300"]
        for step in ("install", "update", "install"):
            if step == "install":
                command = [*get, step, "--no-install-recommends", *packages, *_known(of_newer_releases)]
            else:
                command = [*get, step]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_INSTALL_S, check=False
            )
            if step == "install" and done.returncode == 0 and not absent():
                break
        if absent():
            missing(f"{', '.join(absent())} (apt-get said: {done.stderr.strip()[-300:]})")


def _known(packages: Sequence[str]) -> list[str]:
    """Those that this release has."""
    return [
        name
        for name in packages
        if subprocess.run(["apt-cache", "show", name], capture_output=True, check=False).returncode == 0
    ]


def _reveal(packages: Sequence[str], commands: Sequence[str]) -> None:
    """Where CI hides programs: link these commands, and what their packages bring with them."""
    links = Path(os.environ.get(_LINKS, "/nowhere"))
    name = hashlib.sha256(repr((packages, commands)).encode()).hexdigest()[:16]
    done = links.parent / name
    if not os.access(links, os.W_OK) or done.exists():
        return
    found = [path for command in commands if (path := _find(command)) is not None]
    for path in (*found, *_programs_of(packages)):
        with contextlib.suppress(FileExistsError):
            (links / Path(path).name).symlink_to(path)
    done.touch()


def _programs_of(packages: Sequence[str]) -> list[str]:
    """Programs of installed packages and of all that they depend on, as far as the package manager knows."""
    without = [f"--no-{kind}" for kind in _NOT_DEPENDENCIES]
    listed = _output("apt-cache", "depends", "--recurse", "--installed", *without, *packages)
    installed = [line for line in listed.splitlines() if line[:1].isalnum()]
    files = _output("dpkg-query", "--listfiles", *installed) if installed else ""
    return re.findall(r"^(?:/usr)?/s?bin/[^/\n]+$", files, re.MULTILINE)


def _output(*command: str) -> str:
    """What is printed, also where some of the packages are unknown."""
    ran = subprocess.run(
        command, env={**os.environ, "PATH": _search_path()}, capture_output=True, text=True, check=False
    )
    return ran.stdout
