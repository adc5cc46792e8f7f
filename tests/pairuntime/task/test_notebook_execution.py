"""What the process that executes a notebook does before its first cell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from pairuntime.task.notebook_execution import complete_kernel
from support.notebooks import notebook
from support.small_disk import fill, mounted

INCOMPLETE = [
    {},
    {"language": "python"},
    {"display_name": "My Python", "language": "python"},
    {"name": "python3"},
    {"name": None, "language": None},
    None,
    "python3",
]


def test_no_grammar_is_compiled_to_read_a_notebook(tmp_path: Path) -> None:
    """jsonschema imports the package if there is one; its grammar takes seconds."""
    (tmp_path / "rfc3987_syntax.py").write_text("raise SystemExit('it was imported')")
    (tmp_path / "work.ipynb").write_text(json.dumps(notebook("1 + 1")))
    program = (
        "from pairuntime.task.notebook_execution import read_notebook; read_notebook('work.ipynb')\n"
        "import jsonschema"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_notebook_without_the_name_of_a_kernel_is_run_and_gets_its_page(tmp_path: Path) -> None:
    (tmp_path / "work.ipynb").write_text(
        json.dumps({**notebook("print(6 * 7)"), "metadata": {"kernelspec": {}}})
    )
    done = subprocess.run(
        [sys.executable, "-m", "pairuntime", "notebook", "work.ipynb"],
        cwd=tmp_path,
        env={**os.environ, "PAI_OUTPUT_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert "42" in (tmp_path / "work.html").read_text()


@pytest.mark.slow
def test_full_disk_leaves_no_folder_of_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "work.ipynb").write_text(json.dumps(notebook("print(6 * 7)")))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with mounted(tmp_path / "disk", "size=64k") as disk:
        fill(disk)
        done = subprocess.run(
            [sys.executable, "-m", "pairuntime", "notebook", "work.ipynb"],
            cwd=tmp_path,
            env={**os.environ, "PAI_OUTPUT_DIR": str(disk), "TMPDIR": str(temporary)},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    assert done.returncode != 0 and "No space left on device" in done.stderr
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_killed_notebook_leaves_one_closed_folder(tmp_path: Path) -> None:
    """With the kernel's key in it: nothing else lies in the temporary folder."""
    kill = "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"
    (tmp_path / "work.ipynb").write_text(json.dumps(notebook(kill)))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "pairuntime", "notebook", "work.ipynb"],
        cwd=tmp_path,
        env={**os.environ, "PAI_OUTPUT_DIR": str(tmp_path), "TMPDIR": str(temporary)},
        capture_output=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    (left,) = temporary.iterdir()
    assert left.name.startswith("kernel-") and left.stat().st_mode & 0o777 == 0o700
    assert (left / "connection.json").exists()


@pytest.mark.parametrize("spec", INCOMPLETE, ids=str)
def test_kernel_of_a_notebook_is_completed(spec: object) -> None:
    one = nbformat.from_dict({**notebook("1"), "metadata": {"kernelspec": spec}})
    complete_kernel(one)
    nbformat.validate(one)
    assert one.metadata.get("kernelspec", {"name": "python3"})["name"] == "python3"
    if isinstance(spec, dict) and spec.get("display_name"):
        assert one.metadata.kernelspec.display_name == "My Python"


def test_kernel_of_another_language_is_not_replaced_by_python() -> None:
    one = nbformat.from_dict({**notebook("1"), "metadata": {"kernelspec": {"language": "no-such-language"}}})
    complete_kernel(one)
    assert one.metadata.kernelspec.name == "no-such-language"
