"""How a container gets the GPUs its task was given, and no others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from paicluster.engines.container.client import Client, mount_options
from paicluster.engines.interface import LaunchFailed, Mount

_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
# The driver's half that must be the host's own, whatever the image brings.
_DRIVER = (
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-gpucomp.so",
)
_DEVICES = Path("/dev")
# Devices that every user of a GPU needs.
_FOR_ALL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
DRIVER_FOLDER = "/usr/local/pai/driver"
_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
)


def gpu_options(client: Client, gpus: Sequence[int]) -> tuple[list[str], bool]:
    """What `run` must be told, and whether the driver's libraries then are in a folder of their own.

    Where NVIDIA's toolkit has described the GPUs (CDI), or docker has it as a hook, it knows best. Else the
    devices and the driver's libraries of the host are handed in one by one.
    """
    if not gpus:
        return [], False
    if client.kind == "podman" and _described():
        return [word for gpu in gpus for word in ("--device", f"nvidia.com/gpu={gpu}")], False
    if client.kind == "docker" and _hooked():
        return ["--gpus", '"device={}"'.format(",".join(map(str, gpus)))], False
    return _by_hand(gpus), True


def _described() -> bool:
    for folder in _CDI_FOLDERS:
        for path in Path(folder).glob("*.*"):
            try:
                if path.suffix in (".yaml", ".json") and "nvidia.com/gpu" in path.read_text():
                    return True
            except OSError:
                continue
    return False


def _hooked() -> bool:
    folders = ("/usr/bin", "/usr/local/bin", "/usr/sbin")
    return any(os.access(f"{folder}/nvidia-container-runtime-hook", os.X_OK) for folder in folders)


def _by_hand(gpus: Sequence[int]) -> list[str]:
    devices = [f"nvidia{gpu}" for gpu in gpus]
    absent = [name for name in devices if not (_DEVICES / name).exists()]
    if absent:
        raise LaunchFailed(f"The GPU {_DEVICES / absent[0]} is not there to be handed to a container.")
    devices += [name for name in _FOR_ALL if (_DEVICES / name).exists()]
    words = [word for name in devices for word in ("--device", f"{_DEVICES / name}:/dev/{name}")]
    for name in _DRIVER:
        path = _library(name)
        if path is not None:
            # Those without a number in the name are looked for by the whole version.
            called = path.name if name.endswith(".so") else name
            words += mount_options(Mount(path, f"{DRIVER_FOLDER}/{called}", read_only=True))
    for tool in ("/usr/bin/nvidia-smi",):
        if Path(tool).exists():
            words += mount_options(Mount(Path(tool), tool, read_only=True))
    return words


def _library(name: str) -> Path | None:
    for folder in _LIBRARY_FOLDERS:
        for path in (Path(folder) / name, *sorted(Path(folder).glob(name + ".*"))):
            if path.exists():
                return path.resolve()
    return None
