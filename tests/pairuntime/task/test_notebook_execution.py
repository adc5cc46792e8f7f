"""What the process that executes a notebook does before its first cell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support.notebooks import notebook


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
