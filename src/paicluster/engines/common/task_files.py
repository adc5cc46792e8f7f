"""Folders and variables that every task gets: outputs, metrics, runtime."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from paicluster.engines.interface import OutputUpload, TaskLaunch
from pairuntime import saved_environment
from pairuntime.task.upload_outputs import VARIABLE

# In the working folder.
PAI_FOLDER = ".pai"
OUTPUT_FOLDER = f"{PAI_FOLDER}/output"
METRICS_FILE = f"{PAI_FOLDER}/metrics.jsonl"

# In the script of a task: sessions then have the environment that the task has at this point.
SAVE_ENVIRONMENT = saved_environment.SAVE_COMMAND

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
    """Create the output folders; returns them, so that the caller can change their owner."""
    folders = (f"{work}/{PAI_FOLDER}", f"{work}/{OUTPUT_FOLDER}")
    for folder in folders:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)  # noqa: PTH102 - on the launch path of every job
    return folders


def runtime_variables(environment: Mapping[str, str], work: str, runtime: str) -> dict[str, str]:
    """Variables that name these folders. ``work`` and ``runtime`` are the paths that the task sees."""
    variables = {
        "PAI_WORK_DIR": work,
        "PAI_METRICS_FILE": f"{work}/{METRICS_FILE}",
        "PAI_RUNTIME_DIR": runtime,
        # The task's own entries come first.
        "PATH": _join_paths(environment.get("PATH", ""), f"{runtime}/bin"),
        "PYTHONPATH": _join_paths(environment.get("PYTHONPATH", ""), f"{runtime}/lib"),
    }
    if not environment.get("PAI_OUTPUT_DIR"):
        variables["PAI_OUTPUT_DIR"] = f"{work}/{OUTPUT_FOLDER}"
    return variables


def _join_paths(first: str, second: str) -> str:
    return f"{first}:{second}" if first else second


def saves_environment(task: TaskLaunch) -> bool:
    return SAVE_ENVIRONMENT in task.script


def output_upload_spec(
    task: TaskLaunch, work: Path | str, runtime: Path | str, python: str
) -> dict[str, object] | None:
    """The part of the supervisor's spec for the upload of outputs; None without one."""
    upload = task.output_upload
    if upload is None:
        return None
    folder = f"{work}/{OUTPUT_FOLDER}"
    return {
        "argv": [python, "-I", "-S", f"{runtime}/pairuntime.pyz", "upload-outputs"],
        "env": {VARIABLE: _upload_request(upload, folder), "LANG": "C.UTF-8", "HOME": str(work)},
        "cwd": str(work),
        "folder": folder,
        "has_patterns": bool(upload.patterns),
    }


def _upload_request(upload: OutputUpload, folder: str) -> str:
    return json.dumps(
        {
            "address": upload.address,
            "token": upload.token,
            "target": upload.target,
            "folder": folder,
            "patterns": list(upload.patterns),
        }
    )
