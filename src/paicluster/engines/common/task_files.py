"""What every task finds beside its own files: folders for results and figures, and the runtime's help."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from paicluster.engines.interface import OutputUpload, TaskLaunch
from pairuntime.task.upload_outputs import VARIABLE

# In the working folder, so that it is wherever that is.
PAI_FOLDER = ".pai"
OUTPUT_FOLDER = f"{PAI_FOLDER}/output"
METRICS_FILE = f"{PAI_FOLDER}/metrics.jsonl"

# Variables of the server's machine and account: meaningless in a container.
_ACCOUNT_VARIABLES = ("HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "PWD", "PAI_WORK_DIR")
_MACHINE_VARIABLES = (
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
)
HOST_VARIABLES = frozenset((*_ACCOUNT_VARIABLES, *_MACHINE_VARIABLES))


def create_output_folders(work: Path | str) -> tuple[str, ...]:
    """The folders a task may use; whoever gives the work to an account gives these too."""
    made = (f"{work}/{PAI_FOLDER}", f"{work}/{OUTPUT_FOLDER}")
    for folder in made:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)  # noqa: PTH102 - on the way of every job
    return made


def runtime_variables(environment: Mapping[str, str], work: str, runtime: str) -> dict[str, str]:
    """What leads a task to them. ``work`` and ``runtime`` are where the task sees them."""
    here = {
        "PAI_WORK_DIR": work,
        "PAI_METRICS_FILE": f"{work}/{METRICS_FILE}",
        "PAI_RUNTIME_DIR": runtime,
        # What the task has itself comes first.
        "PATH": _joined(environment.get("PATH", ""), f"{runtime}/bin"),
        "PYTHONPATH": _joined(environment.get("PYTHONPATH", ""), f"{runtime}/lib"),
    }
    if not environment.get("PAI_OUTPUT_DIR"):
        here["PAI_OUTPUT_DIR"] = f"{work}/{OUTPUT_FOLDER}"
    return here


def _joined(first: str, second: str) -> str:
    return f"{first}:{second}" if first else second


def output_upload_spec(
    task: TaskLaunch, work: Path | str, runtime: Path | str, python: str
) -> dict[str, object] | None:
    """How the supervisor brings results to the storage, as a part of its spec; None where there is none."""
    results = task.output_upload
    if results is None:
        return None
    folder = f"{work}/{OUTPUT_FOLDER}"
    return {
        "argv": [python, "-I", "-S", f"{runtime}/pairuntime.pyz", "keep"],
        "env": {VARIABLE: _told(results, folder), "LANG": "C.UTF-8", "HOME": str(work)},
        "cwd": str(work),
        "folder": folder,
        "named": bool(results.patterns),
    }


def _told(results: OutputUpload, folder: str) -> str:
    return json.dumps(
        {
            "address": results.address,
            "token": results.token,
            "target": results.target,
            "folder": folder,
            "named": list(results.patterns),
        }
    )
