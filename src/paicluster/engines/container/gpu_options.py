"""GPU options of a container: the GPUs of its task and no others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from paicluster.engines.container.client import Client, mount_options
from paicluster.engines.interface import LaunchFailed, Mount

_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
# Driver libraries that must match the host's kernel module, whatever the image has.
_DRIVER_LIBRARIES = (
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-gpucomp.so",
)
_DEVICES = Path("/dev")
# Devices that every GPU program needs.
_COMMON_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
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
    """Options of `run`, and whether the driver's libraries are mounted at DRIVER_FOLDER.

    NVIDIA's toolkit is used where it has described the GPUs (CDI), or is a hook of docker. Otherwise the
    devices and driver libraries of the host are mounted one by one.
    """
    if not gpus:
        return [], False
    if client.kind == "podman" and _has_cdi():
        return [option for gpu in gpus for option in ("--device", f"nvidia.com/gpu={gpu}")], False
    if client.kind == "docker" and _has_docker_hook():
        return ["--gpus", '"device={}"'.format(",".join(map(str, gpus)))], False
    return _mount_each(gpus), True


def _has_cdi() -> bool:
    for folder in _CDI_FOLDERS:
        for path in Path(folder).glob("*.*"):
            try:
                if path.suffix in (".yaml", ".json") and "nvidia.com/gpu" in path.read_text():
                    return True
            except OSError:
                continue
    return False


def _has_docker_hook() -> bool:
    folders = ("/usr/bin", "/usr/local/bin", "/usr/sbin")
    return any(os.access(f"{folder}/nvidia-container-runtime-hook", os.X_OK) for folder in folders)


def _mount_each(gpus: Sequence[int]) -> list[str]:
    devices = [f"nvidia{gpu}" for gpu in gpus]
    absent = [name for name in devices if not (_DEVICES / name).exists()]
    if absent:
        raise LaunchFailed(f"The GPU device {_DEVICES / absent[0]} does not exist.")
    devices += [name for name in _COMMON_DEVICES if (_DEVICES / name).exists()]
    options = [option for name in devices for option in ("--device", f"{_DEVICES / name}:/dev/{name}")]
    for name in _DRIVER_LIBRARIES:
        path = _library(name)
        if path is not None:
            # A library without a version in its name is loaded by its full version.
            file_name = path.name if name.endswith(".so") else name
            options += mount_options(Mount(path, f"{DRIVER_FOLDER}/{file_name}", read_only=True))
    for tool in ("/usr/bin/nvidia-smi",):
        if Path(tool).exists():
            options += mount_options(Mount(Path(tool), tool, read_only=True))
    return options


def _library(name: str) -> Path | None:
    for folder in _LIBRARY_FOLDERS:
        for path in (Path(folder) / name, *sorted(Path(folder).glob(name + ".*"))):
            if path.exists():
                return path.resolve()
    return None
