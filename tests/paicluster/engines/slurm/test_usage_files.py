"""Usage files of tasks: what their supervisors write, and what the server believes of it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from paicluster.engines.slurm.gang_folder import SlurmFolders
from paicluster.engines.slurm.usage_files import UsageFiles
from paicluster.metrics.usage import GpuReading, UsageCounters
from pairuntime.reports import usage_file
from pairuntime.slurm import gpu_usage
from pairuntime.supervisor import exit_record
from pairuntime.supervisor.gpu_driver import GpuDriver
from support import fake_nvml
from support.server_fixture import eventually

UID = "0d6f4cf0-4e2c-4b3e-a5f5-0a8f5bd2e111"


@pytest.fixture
def home(tmp_path: Path) -> SlurmFolders:
    folders = SlurmFolders(tmp_path)
    folders.task(UID).mkdir(parents=True)
    return folders


def test_processes_are_summed_and_reports_replace_each_other(home: SlurmFolders) -> None:
    folder, files = home.task(UID), UsageFiles(home)
    assert files.read([UID]).tasks == {}
    usage_file.write(str(folder), [os.getpid(), 1 << 22], {})  # the second one does not exist
    first = files.read([UID]).tasks[UID]
    assert first.cpu_s > 0 and first.memory_bytes > 1 << 20
    end = time.process_time() + 0.03  # more than a tick of the kernel's clock
    while time.process_time() < end:
        pass
    usage_file.write(str(folder), [os.getpid()], {})
    later = files.read([UID]).tasks[UID]
    assert later.cpu_s > first.cpu_s and (later.at_s or 0) > (first.at_s or 0)
    assert (folder / usage_file.NAME).stat().st_size == usage_file.SIZE_BYTES


def test_ended_task_has_no_usage(home: SlurmFolders) -> None:
    folder, files = home.task(UID), UsageFiles(home)
    usage_file.write(str(folder), [os.getpid()], {})
    assert UID in files.read([UID]).tasks
    (folder / exit_record.NAME).write_text("{}")
    assert files.read([UID]).tasks == {}


def test_report_that_is_not_renewed_is_forgotten(home: SlurmFolders) -> None:
    files = UsageFiles(home, max_age_s=0.2)
    usage_file.write(str(home.task(UID)), [os.getpid()], {})
    assert UID in files.read([UID]).tasks
    eventually(lambda: not files.read([UID]).tasks, "the report to be too old")
    # Nor does it count as a new one when it is read again.
    assert [files.read([UID]).tasks for _ in range(3)] == [{}, {}, {}]
    usage_file.write(str(home.task(UID)), [os.getpid()], {})
    assert UID in files.read([UID]).tasks


def test_reading_without_time_keeps_what_is_known_and_continues_later(home: SlurmFolders) -> None:
    others = [UID.replace("0d6f", f"{number:04x}") for number in range(3)]
    for uid in others:
        home.task(uid).mkdir(parents=True)
        usage_file.write(str(home.task(uid)), [os.getpid()], {})
    usage_file.write(str(home.task(UID)), [os.getpid()], {})
    files = UsageFiles(home, read_timeout_s=0.0)
    assert [len(files.read([UID, *others]).tasks) for _ in range(4)] == [1, 2, 3, 4]


def test_gpus_of_the_largest_machine_are_reported_one_by_one(home: SlurmFolders) -> None:
    gpus = dict.fromkeys(range(gpu_usage.MAX_GPUS), (0.97, 80 << 30, 96 << 30))
    usage_file.write(str(home.task(UID)), [os.getpid()], gpus)
    assert (home.task(UID) / usage_file.NAME).stat().st_size == usage_file.SIZE_BYTES
    found = UsageFiles(home).read([UID]).tasks[UID].gpus
    assert found == {number: GpuReading(0.97, 80 << 30, 96 << 30) for number in range(gpu_usage.MAX_GPUS)}


VALID = {"cpu_s": 1.5, "memory": 2, "read": 3, "written": 4, "at_s": 5.5}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{", b"\xff", b"[" * 2000,
        *(json.dumps({**VALID, "cpu_s": value}).encode() for value in (-1, None, "x", True, [], 1e300)),
        json.dumps({**VALID, "memory": float("nan")}).encode(),
    ],
)  # fmt: skip
def test_invalid_report_counts_as_none(home: SlurmFolders, content: bytes) -> None:
    (home.task(UID) / usage_file.NAME).write_bytes(content)
    assert UsageFiles(home).read([UID]).tasks == {}


def test_gpus_of_others_on_the_node_are_not_read(tmp_path: Path) -> None:
    driver = GpuDriver.open(str(fake_nvml.build(tmp_path / "driver")))
    assert driver is not None
    assert list(gpu_usage.own_numbers(driver, fake_nvml.COUNT)) == list(range(fake_nvml.COUNT))
    assert not gpu_usage.own_numbers(driver, 1)


@pytest.mark.parametrize(
    "gpus",
    [
        None, {}, "0", [0], [[0, 0.5, 1]], [["0", 0.5, 1, 2]], [[0, 1.5, 1, 2]], [[0, "x", 1, 2]],
        [[0, 0.5, -1, 2]], [[0, float("nan"), 1, 2]], [[0, 0.5, 1, 1e300]], [[-1, 0.5, 1, 2]],
    ],
)  # fmt: skip
def test_invalid_gpu_counts_as_not_reported_and_the_rest_counts(home: SlurmFolders, gpus: object) -> None:
    (home.task(UID) / usage_file.NAME).write_text(json.dumps({**VALID, "gpus": gpus}))
    assert UsageFiles(home).read([UID]).tasks == {UID: UsageCounters(1.5, 2, 3, 4, 5.5)}


def test_link_is_not_followed(home: SlurmFolders, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text(json.dumps(VALID))
    (home.task(UID) / usage_file.NAME).symlink_to(target)
    assert UsageFiles(home).read([UID]).tasks == {}
    with pytest.raises(OSError, match="symbolic"):
        usage_file.write(str(home.task(UID)), [os.getpid()], {})
    assert json.loads(target.read_text()) == VALID
