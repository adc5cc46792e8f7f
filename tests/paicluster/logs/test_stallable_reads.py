"""Reads of folders that do not answer: bounded, with a timeout, and beside the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from paicluster.logs.stallable_reads import StallableReads
from paiprotocol.errors import NotFound, Unavailable
from support.server_fixture import DEADLINE_S


def test_result_and_error_of_a_read_arrive() -> None:
    async def scenario() -> None:
        reads = StallableReads()
        assert await reads.run(lambda: b"read") == b"read"

        def fail() -> None:
            raise NotFound("It is not there.")

        with pytest.raises(NotFound):
            await reads.run(fail)

    asyncio.run(scenario())


def test_folder_that_does_not_answer_holds_up_a_caller_for_the_timeout_only() -> None:
    async def scenario() -> None:
        answers = threading.Event()
        reads = StallableReads(max_reads=2, timeout_s=0.05)
        for _ in range(2):
            with pytest.raises(Unavailable, match="does not answer"):
                await reads.run(lambda: answers.wait(DEADLINE_S))
        # No thread is left for another read, until one of them returns.
        began = threading.Event()
        with pytest.raises(Unavailable):
            await reads.run(began.set)
        assert not began.is_set()
        answers.set()
        assert await reads.run(lambda: b"read", timeout_s=DEADLINE_S) == b"read"

    asyncio.run(scenario())


def test_caller_that_gives_up_leaves_its_thread_to_others() -> None:
    async def scenario() -> None:
        answers = threading.Event()
        reads = StallableReads(max_reads=1, timeout_s=DEADLINE_S)
        cancelled = asyncio.create_task(reads.run(lambda: answers.wait(DEADLINE_S)))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        answers.set()
        assert await reads.run(lambda: b"read") == b"read"

    asyncio.run(scenario())
