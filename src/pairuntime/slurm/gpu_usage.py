"""GPU usage of a task: what NVIDIA's driver reports of the GPUs that Slurm gave it.

A thread asks the driver: with a failed GPU it may not answer for minutes, and the supervisor has to relay the
task's output meanwhile.
"""

import _thread
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from pairuntime.supervisor.gpu_driver import GpuDriver, Reading

_INTERVAL_S = 5.0
# A driver that has not answered for so long reports nothing.
_MAX_AGE_S = 15.0
# Those of the largest machines; more would not fit into the usage file.
MAX_GPUS = 16


class GpuUsage:
    """Reads the GPUs in ``visible``, which is in the form of CUDA_VISIBLE_DEVICES.

    If that is empty, it reads those that the driver shows. ``count``: how many Slurm gave the task.
    """

    def __init__(self, visible: "str", count: "int") -> "None":
        self._names = dict(_numbered(visible))
        self._count = 0 if visible else count
        self._read_s = 0.0
        self._readings = {}  # type: dict[int, Reading]
        if self._names or self._count:
            try:
                _thread.start_new_thread(self._run, ())
            except RuntimeError:
                pass  # the account may not have more threads; nothing depends on this one

    def readings(self) -> "dict[int, Reading]":
        """Latest readings by number; none until the driver has answered, and where there is no driver."""
        return self._readings if time.monotonic() - self._read_s <= _MAX_AGE_S else {}

    def _run(self) -> "None":
        try:
            # The driver's library may be slow to load, and Python may have been built without `ctypes`.
            from pairuntime.supervisor.gpu_driver import GpuDriver
        except ImportError:
            return
        driver = GpuDriver.open()
        if driver is not None and self._count:
            self._names = {number: number for number in own_numbers(driver, self._count)}
        while driver is not None and self._names:
            self._readings = self._read(driver)
            self._read_s = time.monotonic()
            time.sleep(_INTERVAL_S)

    def _read(self, driver: "GpuDriver") -> "dict[int, Reading]":
        readings = ((number, driver.read(name)) for number, name in self._names.items())
        return {number: reading for number, reading in readings if reading is not None}


def own_numbers(driver: "GpuDriver", count: "int") -> "range":
    """Numbers of the ``count`` GPUs of this task; none if the node shows those of others, too."""
    return range(min(count, MAX_GPUS) if driver.count() == count else 0)


def _numbered(visible: "str") -> "Iterator[tuple[int, int | str]]":
    """Number of each GPU, and what the driver calls it: an index, or the UUID of a GPU or a part of one."""
    for position, name in enumerate(visible.split(",")[:MAX_GPUS]):
        if name.isdecimal():
            yield int(name), int(name)
        elif name.startswith(("GPU-", "MIG-")):
            yield position, name
