"""docs/python-binding.md: every block runs in order and prints what the page shows."""

import re
import subprocess
import sys

from support.paths import REPOSITORY

PAGE = REPOSITORY / "docs/python-binding.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_code_blocks_run_and_print_what_the_page_shows(here) -> None:
    assert len(BLOCKS) == 5
    said = []
    for block in BLOCKS:
        done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (block, done.stderr)
        said.append(done.stdout)
    assert said[0] == "SUCCEEDED\nhello from 0\n"
    assert re.match(r"\{'default': \{'GPUs': \d+, 'vCores': \d+, 'memory': \d+\}\}\nNAME ", said[1])
    assert "local" in said[2] and said[4] == "['SUCCEEDED', 'SUCCEEDED', 'SUCCEEDED']\n"
