"""A disk on which nothing can be written any more, under the process engine."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.engines.interface import LaunchFailed, Phase
from pairuntime.supervisor import process_tree
from support.engine_rig import Driven, appears, task
from support.process_rig import ProcessRig, serving_zygote
from support.small_disk import fill, mounted


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[ProcessRig]:
    """A home on a file system of two megabytes."""
    with mounted(tmp_path / "disk", "size=2m") as disk:
        made = ProcessRig(disk / "home", process_tree.PROC)
        yield made
        made.close()


async def test_full_disk_keeps_the_exit_record_and_leaves_a_gap_in_the_log(
    small_disk: ProcessRig, tmp_path: Path
) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    one = task(
        small_disk,
        f"echo before; until [ -e {go} ]; do sleep 0.02; done; seq 100000; touch {done}; "
        f"until [ -e {go}.2 ]; do sleep 0.02; done; echo after; exit 41",
    )
    async with Driven(small_disk) as driven:
        await driven.launch(one)
        await driven.wait_for_output(one.uid, b"before")
        filler = fill(small_disk.home)
        go.touch()
        await appears(done.exists, "output that does not fit on the disk")
        filler.unlink()
        (tmp_path / "go.2").touch()
        seen = await driven.ended(one.uid)
        assert seen.exit_code == 41
        whole = b"before\n" + b"".join(b"%d\n" % n for n in range(1, 100001)) + b"after\n"
        for stream in ("stdout", "all"):
            reader, offset, kept = driven.reader(one.uid, stream), 0, []
            while (chunk := reader.read(offset, 1 << 20)).data:
                assert whole[chunk.offset : chunk.end] == chunk.data
                kept.append(chunk)
                offset = chunk.end
            assert offset == len(whole)
            assert sum(len(chunk.data) for chunk in kept) < len(whole)
            assert kept[-1].data.endswith(b"after\n")


async def test_a_task_that_ends_on_a_full_disk_is_not_lost(small_disk: ProcessRig, tmp_path: Path) -> None:
    go = tmp_path / "go"
    one = task(small_disk, f"echo up; until [ -e {go} ]; do sleep 0.02; done; exit 42")
    async with Driven(small_disk) as driven:
        await driven.launch(one)
        await driven.wait_for_output(one.uid, b"up")
        fill(small_disk.home)
        go.touch()
        assert (await driven.ended(one.uid)).exit_code == 42


async def test_task_not_claimable_on_a_full_disk_starts_when_space_is_free(
    small_disk: ProcessRig,
) -> None:
    one = task(small_disk, "exit 44")
    async with Driven(small_disk) as driven:
        zygote = await serving_zygote()
        os.kill(zygote, signal.SIGSTOP)
        launching = asyncio.create_task(driven.launch(one))
        await appears(lambda: (small_disk.folder(one.uid) / "spec.json").exists(), "the folder")
        filler = fill(small_disk.home)
        os.kill(zygote, signal.SIGCONT)
        await launching
        (supervisor,) = process_tree.children(zygote)
        await appears(lambda: _listens(supervisor), "the supervisor to be ready")
        assert (await driven.look(one.uid)).phase is Phase.ABSENT
        filler.unlink()
        assert (await driven.ended(one.uid)).exit_code == 44


def _listens(pid: int) -> bool:
    """It handles signals, which is the last thing it prepares before it claims."""
    (caught,) = re.findall(r"SigCgt:\s+(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


async def test_a_task_can_be_stopped_on_a_full_disk(small_disk: ProcessRig) -> None:
    one = task(small_disk, "echo up; exec sleep 600")
    async with Driven(small_disk) as driven:
        await driven.launch(one)
        await driven.wait_for_output(one.uid, b"up")
        fill(small_disk.home)
        await driven.engine.stop([one.uid], 5)
        seen = await driven.ended(one.uid)
        assert (seen.stopped, seen.killed_by_us) == (True, True)


async def test_stop_that_fails_on_a_full_disk_does_not_end_a_later_launch(small_disk: ProcessRig) -> None:
    """There is room for the request, and none for the tombstone: the attempt may be launched again."""
    one = task(small_disk, "exit 45")
    async with Driven(small_disk) as driven:
        filler = fill(small_disk.home)
        os.truncate(filler, filler.stat().st_size - os.sysconf("SC_PAGE_SIZE"))
        with pytest.raises(OSError):
            await driven.engine.stop([one.uid], 0)
        filler.unlink()
        assert (await driven.run(one))[0].exit_code == 45


async def test_attempt_without_a_spec_cannot_be_stopped_on_a_full_disk(small_disk: ProcessRig) -> None:
    """The disk was full before the spec could be written: the error says that, and the stop is repeated."""
    one = task(small_disk, "true")
    async with Driven(small_disk) as driven:
        small_disk.folder(one.uid).mkdir(parents=True)
        filler = fill(small_disk.home)
        with pytest.raises(OSError, match="No space left") as refused:
            await driven.engine.stop([one.uid], 0)
        assert refused.value.errno == errno.ENOSPC
        filler.unlink()
        await driven.engine.stop([one.uid], 0)
        assert (await driven.ended(one.uid)).stopped


async def test_gang_on_a_full_disk_fails_and_leaves_no_folders(
    small_disk: ProcessRig, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    gang = [task(small_disk, f"echo $$ >> {ran} # {'x' * 50_000}") for _ in range(60)]
    async with Driven(small_disk) as driven:
        with pytest.raises(LaunchFailed):
            await driven.launch(*gang)
        assert not any(small_disk.folder(one.uid).exists() for one in gang)
        assert (await driven.run(task(small_disk, "exit 43")))[0].exit_code == 43
    assert not ran.exists()


async def test_unstarted_attempt_can_be_stopped_on_a_full_disk(
    small_disk: ProcessRig, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    one = task(small_disk, f"touch {ran}")
    async with Driven(small_disk) as driven:
        os.kill(await serving_zygote(), signal.SIGSTOP)
        launching = asyncio.create_task(driven.launch(one))
        await appears(lambda: (small_disk.folder(one.uid) / "spec.json").exists(), "the folder")
        fill(small_disk.home)
        await driven.engine.stop([one.uid], 0)
        os.kill(await serving_zygote(), signal.SIGCONT)
        await launching
        seen = await driven.ended(one.uid)
        assert (seen.started_ms, seen.stopped) == (None, True)
    assert not ran.exists()
