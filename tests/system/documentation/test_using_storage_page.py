"""docs/how-to-use-storage.md: every block runs."""

from __future__ import annotations

import re

import pytest

from support.fuse import has_fuse
from support.paths import REPOSITORY
from support.storage_fixture import StorageWorkspace

PAGE = REPOSITORY / "docs/how-to-use-storage.md"
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n)?```(bash|python)\n(.*?)```", re.DOTALL)


def test_every_block_of_the_page_runs(workspace: StorageWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(workspace.person.home))
    pytest.importorskip("pandas")
    workspace.write("data/x", b"1")
    workspace.write("table.csv", b"a,b\n1,2\n")
    workspace.write("model.pt", b"1")
    # The page is alice's.
    mine = f"/{workspace.user}"
    workspace.ok("makedir", f"pai://team/0{mine}")
    workspace.ok("copy", "table.csv", "model.pt", f"pai://team/0{mine}/")
    ran = 0
    for not_run, language, block in BLOCK.findall(PAGE.read_text()):
        if not_run or ("pai mount" in block and not has_fuse()):
            continue
        block = block.replace("/alice", mine)
        command = ["bash", "-euo", "pipefail", "-c", block] if language == "bash" else ["python", "-c", block]
        done = workspace.person.run(command)
        assert done.status == 0, (block, done)
        ran += 1
    assert ran == 3 + has_fuse()
