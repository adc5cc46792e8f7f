"""GPUs as NVIDIA's driver reports them: its library NVML, called directly."""

from __future__ import annotations

import ctypes

from paicluster.metrics.usage import GpuReading

_LIBRARY = "libnvidia-ml.so.1"


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class GpuDriver:
    """The opened driver."""

    def __init__(self, nvml: ctypes.CDLL) -> None:
        self._nvml = nvml
        # Handles are valid until the driver is closed.
        self._devices: dict[int, ctypes.c_void_p] = {}

    @classmethod
    def open(cls, library: str = _LIBRARY) -> GpuDriver | None:
        """None on a machine without a driver that works."""
        try:
            nvml = ctypes.CDLL(library)
        except OSError:
            return None
        return cls(nvml) if nvml.nvmlInit_v2() == 0 else None

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def count(self) -> int | None:
        count = ctypes.c_uint(0)
        return count.value if self._nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 else None

    def read(self, index: int) -> GpuReading | None:
        """One GPU now; None if it does not answer."""
        device = self._device(index)
        memory, utilization = _Memory(), _Utilization()
        if device is None or self._nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) != 0:
            return None
        # Unknown for a part of a GPU (MIG): then only its memory counts.
        is_known = self._nvml.nvmlDeviceGetUtilizationRates(device, ctypes.byref(utilization)) == 0
        busy = utilization.gpu / 100 if is_known else 0.0
        return GpuReading(busy, memory.used, memory.total)

    def _device(self, index: int) -> ctypes.c_void_p | None:
        if index not in self._devices:
            device = ctypes.c_void_p()
            if self._nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
                return None
            self._devices[index] = device
        return self._devices[index]
