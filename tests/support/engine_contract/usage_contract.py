"""Usage of running tasks, of engines that measure it."""

from __future__ import annotations

import asyncio
import time

import pytest

from paicluster.engines.interface import MeasuresUsage, SelfScheduling
from paicluster.metrics.usage import UsageCounters
from support.engine_rig import DEADLINE_S, Driven, Rig, task


class UsageContract:
    async def test_usage_of_a_task_that_computes_grows_and_of_one_that_waits_does_not(self, rig: Rig) -> None:
        busy = task(rig, "echo up; while :; do :; done")
        idle = task(rig, "echo up; exec sleep 600")
        # Processes that end count, too: each of these shells runs for some milliseconds.
        short = task(
            rig, "echo up; while :; do sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'; done"
        )
        async with Driven(rig) as driven:
            engine = driven.engine
            if not isinstance(engine, MeasuresUsage):
                pytest.skip("this engine does not measure usage")
            tasks = (busy, idle, short)
            uids = [one.uid for one in tasks]
            for one in tasks:
                await driven.launch(one)
                await driven.wait_for_output(one.uid, b"up")

            async def reach(cpu_s: dict[str, float]) -> dict[str, UsageCounters]:
                end = time.monotonic() + DEADLINE_S
                while True:
                    found = dict((await engine.usage(uids)).tasks)
                    if all(uid in found and found[uid].cpu_s >= least for uid, least in cpu_s.items()):
                        return found
                    assert time.monotonic() < end, (found, cpu_s)
                    await asyncio.sleep(0.1)

            first = await reach({busy.uid: 0.1, short.uid: 0.1, idle.uid: 0.0})
            later = await reach({uid: first[uid].cpu_s + 0.2 for uid in (busy.uid, short.uid)})
            assert later[idle.uid].cpu_s - first[idle.uid].cpu_s < 0.1
            assert all(counters.memory_bytes > 10_000 for counters in later.values())
            nodes = (await engine.usage(uids)).nodes.values()
            # Machines of another scheduler are not measured.
            assert len(nodes) == (0 if isinstance(engine, SelfScheduling) else 1)
            assert all(node.counters.cpu_s > later[busy.uid].cpu_s for node in nodes)
            await driven.engine.stop(uids, 0)
            await driven.all_ended(uids)
            end = time.monotonic() + DEADLINE_S
            while (left := (await engine.usage(uids)).tasks) and time.monotonic() < end:
                await asyncio.sleep(0.05)  # supervisors that have written their record are exiting
            assert left == {}
