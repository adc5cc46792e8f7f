"""Cheap probe for podman and docker."""

from __future__ import annotations

import os
import shutil
import socket
from urllib.parse import urlsplit

KINDS = ("podman", "docker")
_DOCKER_SOCKET = "/var/run/docker.sock"


def may_be_available(kinds: tuple[str, ...] = KINDS) -> bool:
    """Whether podman or docker may be usable; can be wrong."""
    return any(kind != "docker" or docker_listens() for kind in kinds if shutil.which(kind))


def docker_listens() -> bool:
    """Whether the docker daemon accepts connections: the client alone is useless."""
    host = os.environ.get("DOCKER_HOST", "")
    if host and urlsplit(host).scheme != "unix":
        return True
    if not host and os.environ.get("DOCKER_CONTEXT"):
        return True
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(urlsplit(host).path if host else _DOCKER_SOCKET)
        except OSError:
            return False
    return True
