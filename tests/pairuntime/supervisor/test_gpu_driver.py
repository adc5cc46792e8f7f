"""NVIDIA's driver, with a library that has its functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from pairuntime.supervisor.gpu_driver import GpuDriver
from support import fake_nvml


@pytest.fixture
def driver(tmp_path: Path) -> GpuDriver:
    opened = GpuDriver.open(str(fake_nvml.build(tmp_path / "driver")))
    assert opened is not None
    return opened


def test_gpus_are_read_by_index_and_by_uuid(driver: GpuDriver) -> None:
    assert driver.count() == fake_nvml.COUNT
    for number in range(fake_nvml.COUNT):
        assert driver.read(number) == driver.read(f"GPU-00-{number}") == fake_nvml.reading(number)


def test_part_of_a_gpu_has_memory_alone(driver: GpuDriver) -> None:
    assert driver.read(f"MIG-00-{fake_nvml.PART}") == (0.0, 4 << 30, 16 << 30)


def test_gpu_that_does_not_exist_is_not_read(driver: GpuDriver) -> None:
    assert driver.read(fake_nvml.COUNT) is None
    assert driver.read("no UUID") is None


def test_machine_without_the_library_has_no_driver(tmp_path: Path) -> None:
    assert GpuDriver.open(str(tmp_path / "libnvidia-ml.so.1")) is None
