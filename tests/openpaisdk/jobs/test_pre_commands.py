"""Commands before a job's own, in the shells that tasks have."""

import subprocess
import sys

import pytest

from openpaisdk.jobs.job_options import JobOptions
from openpaisdk.jobs.pre_commands import PreCommands


@pytest.mark.parametrize("shell", [["bash", "-euo", "pipefail"], ["sh", "-eu"]])
def test_selected_python_in_every_shell(tmp_path, shell: list[str]) -> None:
    selection = PreCommands(JobOptions("job", [], python=sys.executable)).pre_commands()
    script = "\n".join([*selection, "python -c 'print(1)'", "pip -V"])
    done = subprocess.run([*shell, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("1\npip "), done
    assert (tmp_path / ".pai/python/python3").exists()
    missing = PreCommands(JobOptions("job", [], python="/none/python")).pre_commands()[0]
    done = subprocess.run([*shell, "-c", missing], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (127, "The task has no Python /none/python (--python).\n")
