"""Which GPUs this machine has: asked of the driver's own library, else counted from its device files."""

from __future__ import annotations

import ctypes
import os
import re


def gpu_indexes() -> tuple[int, ...]:
    """The indexes by which CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES name them."""
    count = _ask_driver()
    if count is not None:
        return tuple(range(count))
    found = (re.fullmatch(r"nvidia(\d+)", name) for name in os.listdir("/dev"))
    return tuple(sorted(int(match[1]) for match in found if match))


def _ask_driver() -> int | None:
    """How many the driver has in service; None without a driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    try:
        count = ctypes.c_uint(0)
        return count.value if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 else None
    finally:
        nvml.nvmlShutdown()
