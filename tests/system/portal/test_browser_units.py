"""Unit tests of the portal's modules that need a page: `portal/test/browser`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.node import node
from support.paths import REPOSITORY
from support.portal import NewPage

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]

FILES = sorted(file.name.partition(".")[0] for file in REPOSITORY.glob("portal/test/browser/*.test.ts*"))


@pytest.fixture(scope="module")
def scripts(portal_files: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scripts")
    subprocess.run(
        [node(), "test.mjs", "browser", str(folder)], cwd=REPOSITORY / "portal", check=True, timeout=400
    )
    return folder


@pytest.mark.parametrize("name", FILES)
def test_unit_tests_pass_in_a_page(new_page: NewPage, scripts: Path, name: str) -> None:
    page = new_page(None, at="/")
    page.wait_for_text("Password")
    page.evaluate(f"(() => {{ {(scripts / f'{name}.test.js').read_text()} }})()")
    result = page.evaluate("globalThis.runTests()")
    assert result["failures"] == []
    assert len(result["names"]) > 3
