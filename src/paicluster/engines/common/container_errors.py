"""Errors of podman and docker, mapped to exit codes and to messages for the user."""

from __future__ import annotations

import re
from dataclasses import replace

from paicluster.engines.common import image_names
from paicluster.engines.common.image_rejection import ImageRejected
from paicluster.engines.interface import LaunchFailed, Loss, Observation
from pairuntime.supervisor import container_attempt

CREATION = -1201
PERMISSION = -1202
NO_COMMAND = -1203
NO_GPU = -1205
# The image, the daemon or a process of the program disappeared before the start: a retry may succeed.
VANISHED = -120

_NO_IMAGE = re.compile(r"no such image|image not known|unable to find image", re.I)
_NO_SHELL = re.compile(
    r"not found in \$PATH|no such file or directory.*: (OCI|unknown)|command that was not found", re.I | re.S
)
# The client, the container or conmon was killed. conmon starts the container for podman, and podman then
# found nothing that conmon wrote, or could not tell it what to start.
_KILLED = re.compile(
    rf"{container_attempt.CLIENT_KILLED}|{container_attempt.CONTAINER_KILLED}|"
    r"no logs from conmon|write child: broken pipe",
    re.I,
)
_FORBIDDEN = re.compile(r"permission denied", re.I)
_GPU = re.compile(r"nvidia|unresolvable CDI|\bgpu\b", re.I)
_NO_DAEMON = re.compile(
    r"cannot connect to the docker daemon|error during connect|error waiting for container", re.I
)

# A number alone may be a tag or a port.
_STATUS = r"(http|status|code)\b[\w :,]*\b"
_BAD_NAME = re.compile(
    r"invalid reference format|parsing reference|invalid repository name|must be lowercase|invalid port",
    re.I,
)
_LOGIN = re.compile(
    r"unauthorized|authentication required|invalid username/password|no basic auth credentials|"
    r"incorrect username or password|access (to the resource )?(is )?denied|denied:|"
    rf"may require 'docker login'|forbidden|{_STATUS}40[13]\b",
    re.I,
)
_MISSING = re.compile(
    rf"manifest unknown|name unknown|not found|does not exist|no such image|{_STATUS}404\b", re.I
)
_UNREACHABLE = re.compile(r"no such host|no route|network is unreachable|connection refused", re.I)
_TRANSIENT = re.compile(
    r"timeout|timed out|connection (refused|reset)|no such host|no route|network is unreachable|"
    r"temporary failure|server misbehaving|too ?many ?requests|unexpected EOF|TLS handshake|"
    rf"{_STATUS}5\d\d\b",
    re.I,
)


def is_missing_image(seen: Observation) -> bool:
    return bool(_NO_IMAGE.search(seen.start_error))


def classify(seen: Observation, image: str) -> Observation:
    """The observation with a message for the user and the exit code of the cause."""
    output = seen.start_error
    if _NO_IMAGE.search(output):
        why, code = f"The image {image} was removed from this machine before the task could start.", VANISHED
    elif _NO_DAEMON.search(output):
        why, code = f"The docker daemon does not respond: {_last_error(output)}.", VANISHED
    elif _KILLED.search(output):
        why, code = f"The container could not be started: {_last_error(output)}.", VANISHED
    elif _GPU.search(output):
        why, code = f"The container could not get the task's GPUs: {_last_error(output)}.", NO_GPU
    elif _NO_SHELL.search(output):
        why = f"The image {image} has no shell (sh), and without one a job's commands cannot run."
        code = NO_COMMAND
    elif _FORBIDDEN.search(output):
        why, code = f"The container could not be started: {_last_error(output)}.", PERMISSION
    else:
        why, code = f"The container could not be started: {_last_error(output)}.", CREATION
    return replace(seen, start_error=why, platform_code=code)


def lost_with_daemon(seen: Observation, output: str) -> Observation:
    """The observation, with the loss reason if the docker daemon ended during the task."""
    return replace(seen, loss=Loss.DAEMON) if _NO_DAEMON.search(output) else seen


def _last_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    text = next((line for line in lines if re.match(r"(docker: )?Error", line)), lines[-1] if lines else "")
    return re.sub(r"^(docker: )?(Error response from daemon|Error): ", "", text).rstrip(".")


def is_invalid_name(output: str) -> bool:
    """Whether the program says that the name is not the name of an image."""
    return bool(_BAD_NAME.search(output))


def pull_error(image: str, username: str, output: str) -> LaunchFailed:
    """The error of a failed pull. ``username``: the login that was used; empty without one."""
    registry = image_names.registry_of(image)
    last = plain_text(
        next((line for line in reversed(output.splitlines()) if line.strip()), "no reason was given")
    )
    if _BAD_NAME.search(output):
        return ImageRejected(f"{image!r} is not a valid image name: {last}.")
    # The name of the image must not match the patterns.
    output = output.replace(image_names.repository(image_names.full_name(image)), "")
    if _LOGIN.search(output):
        if username:
            return ImageRejected(
                f"The registry {registry} refuses the image {image} to the user {username!r}: the login in "
                "the job's `auth` is wrong, or has no permission, or the image does not exist."
            )
        return ImageRejected(
            f"The registry {registry} requires a login for the image {image}, or the image does not exist. "
            "Check the name, or give the image an `auth` with a username and a password."
        )
    if _MISSING.search(output) and not _TRANSIENT.search(output):
        return ImageRejected(f"There is no image {image}: the registry {registry} does not have it.")
    way_out = ""
    if _UNREACHABLE.search(output):
        way_out = (
            " Where no registry can be reached, name an image that the machine has, or `host`, which runs "
            "the task without a container."
        )
    return LaunchFailed(f"The image {image} could not be pulled: {last}.{way_out}")


def plain_text(text: str) -> str:
    return re.sub(r"^(Error( response from daemon)?|Error):\s*", "", text.strip()).rstrip(".")
