"""docs/in-a-notebook.md: every cell runs, in a real kernel, and prints what the page shows."""

import os
import re

import pytest

from support.notebook_kernel import NotebookKernel
from support.paths import REPOSITORY
from support.python_session import DROPPED

CELL = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.slow
def test_every_cell_prints_what_the_page_shows(whose, tmp_path) -> None:
    env = {**{k: v for k, v in os.environ.items() if k not in DROPPED}, "HOME": str(whose)}
    kernel = NotebookKernel(str(tmp_path), env)
    try:
        cells = CELL.findall((REPOSITORY / "docs/in-a-notebook.md").read_text())
        assert len(cells) > 5
        for code, shown in cells:
            done = kernel.run(code)
            assert not done.error and done.out == shown, (code, done)
        kernel.updates(done, until="SUCCEEDED")  # the last cell shows a job
    finally:
        kernel.close()
