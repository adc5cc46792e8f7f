"""Unit tests of the portal's own modules, in Node.js."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.paths import REPOSITORY

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]


def test_unit_tests_pass(portal_files: None) -> None:
    command = [sys.executable, "portal/checks.py", "test"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert "# fail 0" in done.stdout and "# pass 0" not in done.stdout, done.stdout[-4000:] + done.stderr
