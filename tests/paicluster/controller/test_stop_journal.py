"""The file of stops that the database could not take."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from paicluster.controller import stop_journal
from paicluster.controller.stop_journal import StopJournal


def opened(path: Path) -> StopJournal:
    stops = StopJournal(path)
    stops.open()
    return stops


def test_the_next_server_knows_them_and_the_file_never_grows(tmp_path: Path) -> None:
    path = tmp_path / "stops"
    stops = opened(path)
    size = path.stat().st_size
    for job_id in (7, 2**40, 12):
        asyncio.run(stops.add(job_id))
    asyncio.run(stops.discard(7))
    assert path.stat().st_size == size
    assert opened(path).jobs == {2**40, 12}


def test_one_that_could_not_be_kept_is_not_carried_out_later(tmp_path: Path) -> None:
    path = tmp_path / "stops"
    stops = opened(path)
    path.unlink()
    with pytest.raises(OSError, match="stops"):
        asyncio.run(stops.add(3))
    assert not stops.jobs


def test_of_several_that_come_at_once_none_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the thread that writes the first one is overtaken by that of the second."""
    path = tmp_path / "stops"
    stops = opened(path)
    overtaken = threading.Event()
    honest = stop_journal._write_over

    def write_over(path: Path, content: bytes) -> None:
        if b"12" in content:
            honest(path, content)
            overtaken.set()
        else:
            overtaken.wait(0.5)
            honest(path, content)

    monkeypatch.setattr(stop_journal, "_write_over", write_over)

    async def both() -> None:
        await asyncio.gather(stops.add(7), stops.add(12))

    asyncio.run(both())
    assert opened(path).jobs == {7, 12}


def test_no_more_than_it_has_room_for(tmp_path: Path) -> None:
    stops = opened(tmp_path / "stops")
    for job_id in range(1000, 1256):
        asyncio.run(stops.add(job_id))
    with pytest.raises(OSError, match="too many"):
        asyncio.run(stops.add(1))
    assert opened(tmp_path / "stops").jobs == stops.jobs


def test_what_a_torn_file_still_says_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "stops"
    path.write_bytes(b"5               1")
    assert opened(path).jobs >= {5}


def test_where_it_cannot_be_made_the_cluster_starts_all_the_same(tmp_path: Path) -> None:
    stops = opened(tmp_path / "nowhere" / "stops")
    with pytest.raises(FileNotFoundError):
        asyncio.run(stops.add(3))
