"""Image names as docker parses them: the defaults are Docker Hub and `latest`."""

from __future__ import annotations

import base64
import ipaddress
import json
from urllib.parse import urlsplit

from paicluster.engines.interface import RegistryLogin

HUB = "docker.io"
# Its key in docker's login file.
_HUB_KEY = "https://index.docker.io/v1/"


def registry_of(image: str) -> str:
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else HUB


def full_name(image: str) -> str:
    """The name with registry and tag, so that the client does not guess a registry."""
    registry = registry_of(image)
    rest = image.removeprefix(registry + "/") if registry != HUB or image.startswith(HUB + "/") else image
    if registry == HUB and "/" not in rest:
        rest = f"library/{rest}"
    if "@" not in rest and ":" not in rest.rpartition("/")[2]:
        rest += ":latest"
    return f"{registry}/{rest}"


def repository(image: str) -> str:
    """A name without tag and digest."""
    name = image.partition("@")[0]
    folders, slash, last = name.rpartition("/")
    return folders + slash + last.partition(":")[0]


def is_local_registry(registry: str) -> bool:
    """Whether a registry is on this machine: it needs no TLS, as in docker."""
    host = registry.rpartition(":")[0] if ":" in registry and not registry.endswith("]") else registry
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def login_file(image: str, login: RegistryLogin) -> str:
    """Content of the login file that podman and docker read."""
    registry = login.registry.strip()
    if "//" in registry:
        registry = urlsplit(registry).netloc
    registry = registry.partition("/")[0] or registry_of(image)
    if registry in ("index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"):
        registry = HUB
    credentials = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
    keys = (HUB, _HUB_KEY) if registry == HUB else (registry,)
    return json.dumps({"auths": {key: {"auth": credentials} for key in keys}})
