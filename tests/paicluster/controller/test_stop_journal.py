"""Journal of stops that could not be written to the database."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from paicluster.controller import stop_journal
from paicluster.controller.stop_journal import StopJournal


def open_journal(path: Path) -> StopJournal:
    journal = StopJournal(path)
    journal.open()
    return journal


def test_entries_survive_a_restart_and_the_file_never_grows(tmp_path: Path) -> None:
    path = tmp_path / "pending-stops"
    journal = open_journal(path)
    size = path.stat().st_size
    for job_id in (7, 2**40, 12):
        asyncio.run(journal.add(job_id))
    asyncio.run(journal.discard(7))
    assert path.stat().st_size == size
    assert open_journal(path).jobs == {2**40, 12}


def test_stop_that_could_not_be_journaled_is_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "pending-stops"
    journal = open_journal(path)
    path.unlink()
    with pytest.raises(OSError, match="stops"):
        asyncio.run(journal.add(3))
    assert not journal.jobs


def test_concurrent_stops_are_all_journaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the thread of the second write overtakes that of the first."""
    path = tmp_path / "pending-stops"
    journal = open_journal(path)
    overtaken = threading.Event()
    overwrite = stop_journal._overwrite

    def overwrite_out_of_order(path: Path, content: bytes) -> None:
        if b"12" in content:
            overwrite(path, content)
            overtaken.set()
        else:
            overtaken.wait(0.5)
            overwrite(path, content)

    monkeypatch.setattr(stop_journal, "_overwrite", overwrite_out_of_order)

    async def both() -> None:
        await asyncio.gather(journal.add(7), journal.add(12))

    asyncio.run(both())
    assert open_journal(path).jobs == {7, 12}


def test_number_of_entries_is_bounded(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "pending-stops")
    for job_id in range(1000, 1256):
        asyncio.run(journal.add(job_id))
    with pytest.raises(OSError, match="too many"):
        asyncio.run(journal.add(1))
    assert open_journal(tmp_path / "pending-stops").jobs == journal.jobs


def test_torn_file_keeps_its_complete_entries(tmp_path: Path) -> None:
    path = tmp_path / "pending-stops"
    path.write_bytes(b"5               1")
    assert open_journal(path).jobs >= {5}


def test_uncreatable_file_does_not_prevent_the_start(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "nowhere" / "pending-stops")
    with pytest.raises(FileNotFoundError):
        asyncio.run(journal.add(3))
