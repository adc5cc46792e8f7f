"""The work journal: who is blamed for the death of a server, and who is not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paicluster.services import work_journal
from paicluster.services.work_journal import Step, WorkJournal


def restarted(home: Path, **options: float) -> WorkJournal:
    """The journal as the next server opens it, whatever is in progress."""
    journal = WorkJournal(home / "work-in-progress", **options)
    journal.open()
    return journal


@pytest.fixture
def restart(tmp_path: Path) -> Callable[[], WorkJournal]:
    return lambda: restarted(tmp_path)


async def begin(journal: WorkJournal, job_id: int, step: Step) -> work_journal.Work:
    work = work_journal.Work(journal, job_id, step)
    await work.resume()
    return work


async def die(journal: WorkJournal, *entries: tuple[int, Step]) -> None:
    """Begin this work; the server then dies in the middle of it."""
    for job_id, step in entries:
        await begin(journal, job_id, step)
    journal.close()


@pytest.mark.parametrize("step", list(Step))
async def test_second_death_in_a_row_condemns(restart: Callable[[], WorkJournal], step: Step) -> None:
    await die(restart(), (7, step))
    first = restart()
    assert set(first.suspects()) == {7} and not first.verdict(7, tuple(Step))
    await die(first, (7, step))
    second = restart()
    assert "died 2 times in a row" in second.verdict(7, (step,))
    # Until it is settled, whatever happens.
    second.close()
    third = restart()
    assert third.verdict(7, (step,))
    third.settle(7, (step,))
    third.close()
    assert not restart().suspects()


async def test_deaths_in_different_steps_count_together(restart: Callable[[], WorkJournal]) -> None:
    await die(restart(), (7, Step.LAUNCH))
    await die(restart(), (7, Step.RENDER))
    assert restart().condemned() == {7}


async def test_finished_work_clears_a_suspect(restart: Callable[[], WorkJournal]) -> None:
    await die(restart(), (7, Step.LAUNCH))
    journal = restart()
    async with journal.work(7, Step.RENDER) as work:
        work.advance(Step.LAUNCH)
    assert not journal.suspects()
    await die(journal, (7, Step.LAUNCH))
    assert not restart().condemned()


async def test_rendering_alone_does_not_clear_a_launch(restart: Callable[[], WorkJournal]) -> None:
    await die(restart(), (7, Step.LAUNCH))
    journal = restart()
    work = await begin(journal, 7, Step.RENDER)
    work.advance(Step.LAUNCH)
    journal.close()
    assert restart().condemned() == {7}


async def test_orderly_shutdown_suspects_nobody(restart: Callable[[], WorkJournal]) -> None:
    journal = restart()
    with pytest.raises(RuntimeError):
        async with journal.work(7, Step.LAUNCH):
            raise RuntimeError
    with journal.short_work(8, Step.LOAD):
        pass
    journal.close()
    assert not restart().suspects()


async def test_waiting_is_no_work(restart: Callable[[], WorkJournal]) -> None:
    journal = restart()
    never: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    async with journal.work(7, Step.LAUNCH) as work:
        waiting = asyncio.ensure_future(work.outside(never))
        await asyncio.sleep(0)
        assert not restart().suspects()
        never.set_result(True)
        assert await waiting
        # It may be awaited again, as any future.
        assert await work.outside(never)
        assert set(restart().suspects()) == {7}


async def test_work_beside_uninterrupted_work_is_not_blamed(restart: Callable[[], WorkJournal]) -> None:
    await die(restart(), (1, Step.LAUNCH), (2, Step.LAUNCH))
    journal = restart()
    await begin(journal, 1, Step.LAUNCH)
    with journal.short_work(3, Step.LOAD):
        following = restart()
    assert set(following.suspects()) == {3}


async def test_thread_beside_uninterrupted_work_is_blamed_as_well(restart: Callable[[], WorkJournal]) -> None:
    journal = restart()
    await begin(journal, 1, Step.LAUNCH)
    await begin(journal, 2, Step.UNPACK)
    with journal.short_work(3, Step.LOAD):
        following = restart()
    assert set(following.suspects()) == {2, 3}


async def test_death_over_no_suspect_clears_all(restart: Callable[[], WorkJournal]) -> None:
    await die(restart(), (1, Step.LAUNCH))
    await die(restart(), (2, Step.LAUNCH))
    assert set(restart().suspects()) == {2}


async def test_death_over_one_suspect_keeps_the_others(restart: Callable[[], WorkJournal]) -> None:
    await die(restart(), (1, Step.LAUNCH), (2, Step.LAUNCH))
    await die(restart(), (1, Step.LAUNCH))
    journal = restart()
    assert set(journal.suspects()) == {1, 2} and journal.condemned() == {1}
    await die(journal, (2, Step.LAUNCH))
    assert restart().condemned() == {1, 2}


async def test_suspects_work_alone_one_after_the_other(restart: Callable[[], WorkJournal]) -> None:
    await die(restart(), (1, Step.LAUNCH), (2, Step.LAUNCH))
    journal = restart()
    at_work: set[int] = set()
    seen: list[set[int]] = []

    async def launch(job_id: int) -> None:
        async with journal.work(job_id, Step.LAUNCH):
            at_work.add(job_id)
            seen.append(set(at_work))
            await asyncio.sleep(0.01)
            at_work.discard(job_id)

    await asyncio.wait_for(asyncio.gather(*(launch(job_id) for job_id in (5, 1, 6, 2, 7))), 90)
    assert all(len(jobs) == 1 for jobs in seen if jobs & {1, 2})
    assert {5, 6, 7} <= set().union(*seen)
    assert not journal.suspects()


async def test_suspect_does_not_wait_for_ever(tmp_path: Path) -> None:
    await die(restarted(tmp_path), (1, Step.LAUNCH))
    journal = restarted(tmp_path, isolation_timeout_s=0.05)
    await begin(journal, 2, Step.UNPACK)  # and does not end
    await asyncio.wait_for(begin(journal, 1, Step.LAUNCH), 90)
    await asyncio.wait_for(begin(journal, 3, Step.LAUNCH), 90)
    assert {1, 2, 3} <= set(restarted(tmp_path).suspects())


async def test_crash_of_the_machine_is_held_against_no_job(
    restart: Callable[[], WorkJournal], monkeypatch: pytest.MonkeyPatch
) -> None:
    await die(restart(), (7, Step.LAUNCH))
    monkeypatch.setattr(work_journal, "_boot_id", lambda: b"another-boot")
    assert not restart().suspects()


@pytest.mark.parametrize("content", [b"", b"\0" * 300_000, b"7 launch 9\n" * 30, b"\xff" * 100])
def test_damaged_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "journal").write_bytes(content)
    journal = WorkJournal(tmp_path / "journal")
    journal.open()
    assert not journal.suspects()


def test_journal_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    journal = WorkJournal(tmp_path / "missing" / "journal")
    journal.open()
    done = []
    with journal.short_work(1, Step.LOAD):
        done.append(1)
    assert done == [1] and not journal.suspects()


def test_more_work_than_entries_goes_on(restart: Callable[[], WorkJournal]) -> None:
    journal = restart()

    async def begin_all() -> list[work_journal.Work]:
        return [await begin(journal, job_id, Step.LAUNCH) for job_id in range(5000)]

    assert len(asyncio.run(begin_all())) == 5000
    journal.close()
    # The first ones have entries; the others are not journalled, and not blamed.
    suspects = restart().suspects()
    assert 0 in suspects and 4999 not in suspects


async def test_launch_of_a_job_is_five_small_writes(
    restart: Callable[[], WorkJournal], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = restart()
    sizes: list[int] = []
    write = os.pwrite

    def counted(fd: int, data: bytes, offset: int) -> int:
        sizes.append(len(data))
        return write(fd, data, offset)

    monkeypatch.setattr(work_journal.os, "pwrite", counted)
    with journal.short_work(7, Step.LOAD):
        pass
    async with journal.work(7, Step.RENDER) as work:
        work.advance(Step.LAUNCH)
    assert sizes == [32] * 5
