"""docs/python-binding.md: every block runs in order and prints what the page shows."""

import os
import re
import subprocess
import sys

from support.cli_user import BIN
from support.paths import REPOSITORY

PAGE = REPOSITORY / "docs/python-binding.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


# What each block prints, by a line that is only in it; blocks without an entry print nothing.
PRINTED = {
    "hello from $PAI_TASK_INDEX": r"SUCCEEDED\nhello from 0\n",
    "array=": r"SUCCEEDED\nrate 0\.01 seed 3\n",
    "available_resources())      # {": r"\{'default': \{'GPUs': \d+, 'vCores': \d+, 'memory': \d+\}\}\n"
    r"NAME .*",
    "ClusterList().load()": r".*local.*",
    "Cluster().alias": r"SUCCEEDED here True\n",
    "asyncio": r"\['SUCCEEDED', 'SUCCEEDED', 'SUCCEEDED'\]\n",
}


def test_code_blocks_run_and_print_what_the_page_shows(here, monkeypatch) -> None:
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")  # an activated virtual environment
    assert all(sum(mark in block for block in BLOCKS) == 1 for mark in PRINTED)
    for block in BLOCKS:
        done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, (block, done.stderr)
        expected = next((text for mark, text in PRINTED.items() if mark in block), None)
        if expected is not None:
            assert re.fullmatch(expected, done.stdout, re.DOTALL), (block, done.stdout)
