"""A library with the functions of NVIDIA's NVML that we call, and GPUs that it makes up."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pairuntime.supervisor.gpu_driver import LIBRARY
from support.external_services import debian

COUNT = 4
# Without a share of busy time, as a part of a GPU.
PART = 3
_GIB = 1 << 30

_SOURCE = """
#include <string.h>

static int numbers[] = {0, 1, 2, 3};

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 4; return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= 4) return 2;
    *device = &numbers[index];
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    if (strncmp(uuid, "GPU-", 4) && strncmp(uuid, "MIG-", 4)) return 6;
    return nvmlDeviceGetHandleByIndex_v2(uuid[strlen(uuid) - 1] - '0', device);
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    unsigned long long used = (*(int *) device + 1ULL) << 30;
    memory[0] = 16ULL << 30;
    memory[1] = memory[0] - used;
    memory[2] = used;
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *shares) {
    int number = *(int *) device;
    if (number == 3) return 3;
    shares[0] = 25 * (number + 1);
    return 0;
}
"""


def build(folder: Path) -> Path:
    """Compile the library into a folder, under the name of the real one."""
    debian(["gcc", "libc6-dev"], commands=["gcc", "cc"])
    folder.mkdir(parents=True)
    (folder / "nvml.c").write_text(_SOURCE)
    library = folder / LIBRARY
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "nvml.c"], check=True)
    return library


def reading(number: int) -> tuple[float, int, int]:
    """What a driver with this library reads of a GPU."""
    return 0.0 if number == PART else (number + 1) / 4, (number + 1) * _GIB, 16 * _GIB
