"""What a container program's complaint means for the person whose task did not start, or was lost with it."""

from __future__ import annotations

import re
from dataclasses import replace

from paicluster.engines.interface import Loss, Observation

CREATION = -1201
PERMISSION = -1202
NO_COMMAND = -1203
NO_GPU = -1205
# Gone between the look and the run, the image or who runs it: another attempt may find them.
VANISHED = -120

_NO_IMAGE = re.compile(r"no such image|image not known|unable to find image", re.I)
_NO_SHELL = re.compile(
    r"not found in \$PATH|no such file or directory.*: (OCI|unknown)|command that was not found", re.I | re.S
)
_FORBIDDEN = re.compile(r"permission denied", re.I)
_GPU = re.compile(r"nvidia|unresolvable CDI|\bgpu\b", re.I)
_NO_DAEMON = re.compile(
    r"cannot connect to the docker daemon|error during connect|error waiting for container", re.I
)


def is_missing_image(seen: Observation) -> bool:
    return bool(_NO_IMAGE.search(seen.start_error))


def classify(seen: Observation, image: str) -> Observation:
    """The same observation in words for people, with the code that says whose fault it is."""
    said = seen.start_error
    if _NO_IMAGE.search(said):
        why, code = f"The image {image} was removed from this machine before the task could start.", VANISHED
    elif _NO_DAEMON.search(said):
        why, code = f"The docker daemon does not answer: {_last(said)}.", VANISHED
    elif _GPU.search(said):
        why, code = f"The task's GPUs could not be handed to the container: {_last(said)}.", NO_GPU
    elif _NO_SHELL.search(said):
        why = f"The image {image} has no shell (sh), and without one a job's commands cannot run."
        code = NO_COMMAND
    elif _FORBIDDEN.search(said):
        why, code = f"The container could not be started: {_last(said)}.", PERMISSION
    else:
        why, code = f"The container could not be started: {_last(said)}.", CREATION
    return replace(seen, start_error=why, platform_code=code)


def lost_with_daemon(seen: Observation, said: str) -> Observation:
    """The same observation; where the daemon ended under the task, that is what took it away."""
    return replace(seen, loss=Loss.DAEMON) if _NO_DAEMON.search(said) else seen


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    text = next((line for line in lines if re.match(r"(docker: )?Error", line)), lines[-1] if lines else "")
    return re.sub(r"^(docker: )?(Error response from daemon|Error): ", "", text).rstrip(".")
