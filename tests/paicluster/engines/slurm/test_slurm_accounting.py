"""Jobs that Slurm's queue has dropped, from its accounting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.engines.interface import Loss, Phase
from paicluster.engines.slurm.engine import SlurmEngine
from paicluster.engines.slurm.options import SlurmQueue
from support.engine_rig import Driven, appears, task
from support.slurm_accounting import Accounting
from support.slurm_cluster import RealSlurm, eventually, open_folder
from support.slurm_rig import SlurmRig

pytestmark = [pytest.mark.slow, pytest.mark.service]


@pytest.fixture(scope="module")
def accounted() -> Iterator[RealSlurm]:
    """A Slurm where root has an account, without limits."""
    with open_folder("slurm-") as folder, pytest.MonkeyPatch.context() as patch:
        accounting = Accounting(folder)
        enforced = {"AccountingStorageEnforce": "associations,limits,qos"}
        made = RealSlurm(folder, {**accounting.settings, **enforced})
        patch.setenv("SLURM_CONF", str(made.conf))
        made.start_munge()
        with accounting.running(made.environment):
            try:
                made.start()
                for words in ("add account lab", "add user root account=lab"):
                    made.ask("sacctmgr", "--immediate", *words.split())
                yield made
            finally:
                made.close()


async def test_state_of_a_dropped_job_comes_from_accounting(accounted: RealSlurm, tmp_path: Path) -> None:
    rig = SlurmRig(accounted, tmp_path / "shared")
    waits = task(rig, "true", options={"slurm": ("--begin=now+1hour",)})
    runs = task(rig, "echo up; exec sleep 600")
    async with Driven(rig) as driven:
        await driven.launch(runs)
        await driven.wait_for_output(runs.uid, b"up")
        await driven.launch(waits)
        await appears((rig.gang(waits.uid) / "job").exists, "the submission")
    numbers = {one.uid: (rig.gang(one.uid) / "job").read_text() for one in (waits, runs)}
    # While no server runs, one is cancelled while pending, and the other is killed.
    accounted.ask("scancel", numbers[waits.uid])
    rig.kill_supervisor(runs.uid)

    def known() -> bool:
        said = accounted.ask("sacct", "-X", "-n", "-P", "-o", "JobID,State", "-j", ",".join(numbers.values()))
        return f"{numbers[waits.uid]}|CANCELLED" in said and f"{numbers[runs.uid]}|FAILED" in said

    eventually(known, "the accounting to know of their ends")
    accounted.kill_controller()
    accounted.start_controller("-c")
    assert not accounted.ask("squeue", "-h", "--states=all")
    async with Driven(rig) as driven:
        seen = {one.uid: await driven.until(one.uid, Phase.LOST, Phase.ENDED) for one in (waits, runs)}
        assert {one.phase for one in seen.values()} == {Phase.LOST}
        assert seen[waits.uid].loss is Loss.WITHDRAWN
        assert any("as FAILED" in remark.message for _, remark in driven.notices)
        # One call for all of them.
        assert isinstance(driven.engine, SlurmEngine) and driven.engine.calls["sacct"] <= 2
    rig.close()


@pytest.fixture
def one_job_at_a_time(accounted: RealSlurm) -> Iterator[None]:
    def allow(jobs: int) -> None:
        words = f"modify user root set maxsubmitjobs={jobs}"
        accounted.ask("sacctmgr", "--immediate", *words.split())

    allow(1)
    yield
    allow(-1)


@pytest.mark.usefixtures("one_job_at_a_time")
async def test_limit_keeps_a_job_pending_and_unknown_account_rejects_it(
    accounted: RealSlurm, tmp_path: Path
) -> None:
    rig = SlurmRig(accounted, tmp_path / "shared")
    for queue, message in (
        (SlurmQueue(account="unknown"), "Invalid account"),
        (SlurmQueue(qos="none"), "Invalid qos"),
    ):
        async with Driven(rig, default_queue=queue) as driven:
            (seen,) = await driven.run(task(rig, "true"))
            assert f"Slurm rejected the job: Batch job submission failed: {message}" in seen.rejection
    first, second = task(rig, "echo up; exec sleep 600"), task(rig, "exit 3")
    async with Driven(rig) as driven:
        await driven.launch(first)
        await driven.wait_for_output(first.uid, b"up")
        await driven.launch(second)
        said = "Slurm says: AssocMaxSubmitJobLimit"
        await appears(lambda: any(said in remark.message for _, remark in driven.notices), said)
        assert (await driven.look(second.uid)).phase is Phase.QUEUED
        await driven.engine.stop([first.uid], 0)
        assert (await driven.ended(second.uid)).exit_code == 3
    rig.close()
