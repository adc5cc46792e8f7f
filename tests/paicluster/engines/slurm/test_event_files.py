"""Event files: every account may create entries in their folder."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from paicluster.engines.slurm.event_files import EventFileWatcher
from paicluster.engines.slurm.gang_folder import SlurmFolders
from paicluster.engines.slurm.gang_registry import GangRegistry
from support.engine_rig import DEADLINE_S

ENTRIES = 5_000


def has_entries(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is not None


async def test_flood_of_entries_neither_blocks_the_loop_nor_stays(tmp_path: Path) -> None:
    home = SlurmFolders(tmp_path)
    home.events.mkdir()
    for number in range(ENTRIES):
        (home.events / f"flood{number}.started").touch()
    for number in range(10):
        (home.events / f"folder{number}" / "inner").mkdir(parents=True)
    (home.events / "link").symlink_to(tmp_path)
    (home.events / "honest.ended").touch()
    gangs = GangRegistry(home)
    gangs.new("honest", ("honest",), os.geteuid())
    hints: set[str] = set()
    most = 0

    def hint(uid: str) -> None:
        nonlocal since_last_turn
        hints.add(uid)
        since_last_turn += 1

    since_last_turn = 0
    with ThreadPoolExecutor(1) as files:
        watcher = EventFileWatcher(home, gangs, files, hint)
        watcher.wake()
        reading = asyncio.create_task(watcher.read())
        async with asyncio.timeout(DEADLINE_S):
            while has_entries(home.events):
                most, since_last_turn = max(most, since_last_turn), 0
                await asyncio.sleep(0.001)
            while "honest" not in hints:
                await asyncio.sleep(0.01)
        reading.cancel()
    assert most < ENTRIES / 2
    assert tmp_path.is_dir()
