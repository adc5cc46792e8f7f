"""Checks of the portal's sources: `checks.py lint` (types, rules, style sheets), `checks.py test` (unit);
`checks.py format` formats them.

Where there is no Node.js, or no npm registry, only style sheets are checked, and a sentence says so; in CI
that is a failure.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import check_styles
from bundle_build import PORTAL, NoBundle, Tools, install, install_node

_BIN = PORTAL / "node_modules/.bin"
_FORMAT = [str(_BIN / "prettier"), "--log-level=warn", "src/**/*.{ts,tsx}", "test/**/*.{ts,tsx}", "*.mjs"]


def _commands(check: str, tools: Tools) -> list[list[str]]:
    if check == "test":
        return [[tools.node, "test.mjs"]]
    if check == "format":
        return [[*_FORMAT, "--write"]]
    tsc = [str(_BIN / "tsc"), "--noEmit"]
    return [tsc, [*tsc, "--project", "tsconfig.test.json"], [str(_BIN / "oxlint")], [*_FORMAT, "--check"]]


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the sources of the web portal.")
    parser.add_argument("check", choices=("lint", "test", "format"))
    check = parser.parse_args().check
    styles = check_styles.main() if check == "lint" else 0
    in_ci = os.environ.get("CI", "").lower() in ("1", "true", "yes")
    try:
        if in_ci:
            install_node()
        tools = install(with_checks=True)
    except NoBundle as error:
        print(f"The portal's sources are not checked: {error}.", file=sys.stderr)
        return 1 if in_ci else styles
    results = [
        subprocess.run(command, cwd=PORTAL, env=tools.environment(), check=False).returncode
        for command in _commands(check, tools)
    ]
    return max(styles, *results)


if __name__ == "__main__":
    sys.exit(main())
