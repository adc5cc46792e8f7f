"""docs/training-data.md: every block runs, in order, and prints what its comments say."""

import re
import sys

import pytest

from support.paths import REPOSITORY

PAGE = REPOSITORY / "docs/training-data.md"


@pytest.mark.slow
def test_every_block_of_the_page_runs(user) -> None:
    for language, block in re.findall(r"```(bash|python)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        command = ["bash", "-euo", "pipefail", "-c"] if language == "bash" else [sys.executable, "-c"]
        done = user.run([*command, block])
        assert done.status == 0, (block, done)
        if language == "bash":
            assert "6 records in 1 shard," in done.out and "1.txt\n2.txt\n3.txt\n" in done.out
        else:
            assert done.out.splitlines() == re.findall(r"print\(.*\) {2,}# (.+)", block)
    assert (user.project / "unpacked/dogs/3.txt").read_text() == "dog 3\n"
