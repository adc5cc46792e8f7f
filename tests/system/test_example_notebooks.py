"""The notebooks of examples/notebooks, executed by a real kernel on an embedded cluster."""

import os
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from support.cli_user import BIN
from support.paths import REPOSITORY
from support.python_session import DROPPED, whose_fixture  # noqa: F401

NOTEBOOKS = REPOSITORY / "examples/notebooks"
SHOWN = {
    "1-submit-and-query-via-command-line": ("hello from a job\n", "SUCCEEDED", "Python 3\n", "Deleted"),
    "2-submit-and-query-via-python": (
        *("SUCCEEDED\n49\n", "rate 0.1\nrate 0.01\n", "three\n", "found 8\n"),
        "[2, 3, 5, 7, 11, 13, 17, 19]\n",
    ),
    "3-run-a-notebook-as-a-job": (
        "step 0\nstep 1\nstep 2\n",
        "['small.executed.ipynb', 'small.html', 'small.ipynb']\n",
        "SUCCEEDED\nstep 0\nstep 1\n",
    ),
    "4-resubmit-on-other-hardware": (
        *("local 10\n", "trained with 64 MB\n", "trained with 256 MB\n", "trained with 128 MB\n"),
        "SUCCEEDED\nTrue\n",
    ),
}


def test_every_notebook_is_executed_here_and_kept_without_outputs() -> None:
    files = sorted(NOTEBOOKS.glob("*.ipynb"))
    assert [path.stem for path in files] == list(SHOWN)
    for path in files:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert not [cell for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")]
        assert f"({path.name})" in (NOTEBOOKS / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_notebook_shows_what_it_promises(whose: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(NOTEBOOKS, tmp_path / "notebooks")
    env = {k: v for k, v in os.environ.items() if k not in DROPPED}
    env.update(HOME=str(whose), PATH=f"{BIN}:{os.environ['PATH']}")
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    folder = {"metadata": {"path": str(tmp_path / "notebooks")}}
    # The kernel of the tests' own Python, whatever is registered as python3.
    client = NotebookClient(notebook, timeout=120, resources=folder, kernel_name="python3")
    client.create_kernel_manager().kernel_spec.argv[0] = sys.executable
    client.execute(env=env)
    printed = "".join(
        output.text
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.output_type == "stream"
    )
    missing = [text for text in SHOWN[name] if text not in printed]
    assert not missing, printed
