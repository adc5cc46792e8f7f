"""Submission of gangs whose folders are on a disk that is full."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from paicluster.engines.interface import Notice
from paicluster.engines.slurm import gang_folder
from paicluster.engines.slurm.gang_registry import SubmittedGang
from paicluster.engines.slurm.slurm_commands import SlurmCommands
from paicluster.engines.slurm.submitter import Submitter
from support.engine_rig import DEADLINE_S, appears
from support.small_disk import fill, mounted

T = TypeVar("T")


async def _inline(work: Callable[[], T]) -> T:
    return work()


async def test_full_disk_is_a_pending_reason_until_the_gang_is_submitted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notices: list[Notice] = []
    done = asyncio.Event()

    async def note_done(gang: SubmittedGang) -> None:
        done.set()

    slurm = SlurmCommands()
    submitter = Submitter(
        slurm, lambda gang: gang.job is None, lambda gang, notice: notices.append(notice), note_done, _inline
    )
    with mounted(tmp_path / "disk", "size=64k") as disk:
        gang = SubmittedGang("abc", disk / "abc", ("abc",))
        gang.folder.mkdir()
        # What sbatch prints.
        (gang.folder / gang_folder.SBATCH_COMMAND).write_text(json.dumps(["echo", "17"]))
        filler = fill(disk)
        with caplog.at_level(logging.WARNING):
            submitter.add(gang)
            await appears(lambda: notices, "the reason")
        assert [path.name for path in gang.folder.iterdir()] == [gang_folder.SBATCH_COMMAND]
        filler.unlink()
        async with asyncio.timeout(DEADLINE_S):
            await done.wait()
        assert gang.job == "17"
        await submitter.close()
    slurm.close()
    assert notices[0].pending and "cannot be written on the server: No space left" in notices[0].message
    assert "No space left" in caplog.text and "Traceback" not in caplog.text
