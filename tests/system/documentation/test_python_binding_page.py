"""Every block of the page on Python runs, one after the other, and prints what it says it prints."""

import re
import subprocess
import sys

from support.paths import REPOSITORY

PAGE = REPOSITORY / "docs/python-binding.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_blocks_do_what_they_say(here) -> None:
    assert len(BLOCKS) == 5
    said = []
    for block in BLOCKS:
        done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (block, done.stderr)
        said.append(done.stdout)
    assert said[0] == "SUCCEEDED\nhello from 0\n"
    assert re.match(r"\{'default': \{'GPUs': \d+, 'vCores': \d+, 'memory': \d+\}\}\nNAME ", said[1])
    assert "local" in said[2] and said[4] == "['SUCCEEDED', 'SUCCEEDED', 'SUCCEEDED']\n"
