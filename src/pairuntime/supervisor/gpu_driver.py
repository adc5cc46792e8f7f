"""GPUs as NVIDIA's driver reports them: its library NVML, called directly."""

import ctypes

LIBRARY = "libnvidia-ml.so.1"

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Share of time in which a GPU computed, 0 to 1; bytes of its memory in use, and all of them.
    Reading = tuple[float, int, int]


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class GpuDriver:
    """The opened driver."""

    def __init__(self, nvml: "ctypes.CDLL") -> "None":
        self._nvml = nvml
        # Handles are valid until the driver is closed.
        self._devices = {}  # type: dict[int | str, ctypes.c_void_p]

    @classmethod
    def open(cls, library: "str" = LIBRARY) -> "GpuDriver | None":
        """Open the driver; None on a machine without one that works."""
        try:
            nvml = ctypes.CDLL(library)
        except OSError:
            return None
        return cls(nvml) if nvml.nvmlInit_v2() == 0 else None

    def close(self) -> "None":
        self._nvml.nvmlShutdown()

    def count(self) -> "int | None":
        count = ctypes.c_uint(0)
        return count.value if self._nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 else None

    def read(self, gpu: "int | str") -> "Reading | None":
        """One GPU now, by its index or its UUID; None if it does not answer."""
        device = self._device(gpu)
        memory, utilization = _Memory(), _Utilization()
        if device is None or self._nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) != 0:
            return None
        # Unknown for a part of a GPU (MIG): then only its memory counts.
        is_known = self._nvml.nvmlDeviceGetUtilizationRates(device, ctypes.byref(utilization)) == 0
        busy = utilization.gpu / 100 if is_known else 0.0
        return busy, memory.used, memory.total

    def _device(self, gpu: "int | str") -> "ctypes.c_void_p | None":
        if gpu not in self._devices:
            device = ctypes.c_void_p()
            if isinstance(gpu, int):
                status = self._nvml.nvmlDeviceGetHandleByIndex_v2(gpu, ctypes.byref(device))
            else:
                status = self._nvml.nvmlDeviceGetHandleByUUID(gpu.encode(), ctypes.byref(device))
            if status != 0:
                return None
            self._devices[gpu] = device
        return self._devices[gpu]
