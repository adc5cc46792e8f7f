"""docs/functions.md and docs/coming-from-submitit.md: every block prints what its comments say."""

import re
import subprocess
import sys

import pytest

from support.paths import REPOSITORY

BLOCKS = {
    f"{page}, block {number}": block
    for page in ("functions", "coming-from-submitit")
    for number, block in enumerate(
        re.findall(r"```python\n(.*?)```", (REPOSITORY / f"docs/{page}.md").read_text(), re.DOTALL)
    )
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_block_prints_what_the_page_shows(here, name) -> None:
    program = here / "main.py"
    program.write_text(BLOCKS[name])
    done = subprocess.run([sys.executable, program.name], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    # A comment after a line that prints is what it prints.
    shown = re.findall(r"print\(.*\) {2,}# (.+)", BLOCKS[name])
    assert shown and done.stdout.splitlines() == shown
