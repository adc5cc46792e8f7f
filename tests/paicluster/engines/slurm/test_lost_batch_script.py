"""Batch scripts that Slurm loses on the way to the node, or that cannot run there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from paicluster.engines.interface import Loss, Phase
from paicluster.engines.slurm.engine import SlurmEngine
from support.engine_rig import Driven, appears, task
from support.slurm_cluster import RealSlurm, open_folder, running_slurm
from support.slurm_jobs import events, make, over_slurm
from support.slurm_rig import SlurmRig

pytestmark = [pytest.mark.slow, pytest.mark.service]

# Run by Slurm before the script: removes the script once for each file in a folder.
_PROLOG = """#!/bin/sh
for word in {folder}/lose/*; do
  [ -e "$word" ] && rm "$word" && rm -f {slurm}/spool/*/job*/slurm_script
  break
done
"""


@pytest.fixture(scope="module")
def losing() -> Iterator[tuple[RealSlurm, Path]]:
    """A Slurm that loses one script for each file in this folder."""
    with open_folder("losing-") as folder:
        (folder / "lose").mkdir()
        prolog = folder / "prolog"
        with running_slurm({"TaskProlog": str(prolog)}) as slurm:
            prolog.write_text(_PROLOG.format(folder=folder, slurm=slurm.folder))
            prolog.chmod(0o755)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SLURM_CONF", str(slurm.conf))
                yield slurm, folder / "lose"


@pytest.mark.parametrize("instances", [1, 2])
def test_job_whose_script_slurm_lost_is_retried_soon(
    losing: tuple[RealSlurm, Path], tmp_path: Path, instances: int
) -> None:
    slurm, lose = losing
    cluster = make(tmp_path, slurm).start()
    try:
        ran = tmp_path / "ran"
        (lose / "one").touch()
        name = cluster.accept(over_slurm("unlucky", f"echo $PAI_TASK_INDEX >>{ran}", instances=instances))
        status = cluster.wait_over(name)
        assert (status["state"], status["retryDetails"]) == (
            "SUCCEEDED",
            {"user": 0, "platform": 1, "resource": 0},
        )
        assert sorted(ran.read_text().split()) == ["0", "1"][:instances]
        said = events(cluster, name)
        assert "slurm_script: No such file or directory" in said
        assert "Task main[0] was lost: The task never started on its node." in said
        first = cluster.get(f"/api/v2/jobs/{cluster.user}~{name}/job-attempts/0").json()
        assert first["exitCode"] == -120
    finally:
        cluster.close()


def test_job_that_its_node_cannot_start_is_retried(losing: tuple[RealSlurm, Path], tmp_path: Path) -> None:
    """Slurm cancels it by itself, as it may not be requeued: that is no `scancel` of a user."""
    slurm, _ = losing
    cluster = make(tmp_path, slurm).start()
    try:
        held = slurm.ask("sbatch", "--parsable", "--hold", "-o/dev/null", "--wrap=true").strip()
        slurm.ask("scancel", held)
        # Where each node would put the script of the next job: as on a disk that takes no more folders.
        in_the_way = [slurm.folder / "spool" / node / f"job{int(held) + 1:05}" for node in slurm.nodes]
        for path in in_the_way:
            path.touch()
        name = cluster.accept(over_slurm("unlaunched", "echo at last"))
        status = cluster.wait_over(name)
        for path in in_the_way:
            path.unlink(missing_ok=True)
        assert (status["state"], status["retryDetails"]["platform"]) == ("SUCCEEDED", 1), events(
            cluster, name
        )
        assert cluster.log_of(name) == b"at last\n"
        first = cluster.get(f"/api/v2/jobs/{cluster.user}~{name}/job-attempts/0").json()
        assert first["exitCode"] == -120
    finally:
        cluster.close()


# Interval of queries while all jobs run: too long to matter in these tests.
_SELDOM_S = 3600.0


async def test_job_running_in_slurm_that_never_starts_is_detected(
    losing: tuple[RealSlurm, Path], tmp_path: Path
) -> None:
    slurm, lose = losing
    (lose / "one").touch()
    rig = SlurmRig(slurm, tmp_path / "home")
    one = task(rig, "true")
    async with Driven(rig, steady_interval_s=_SELDOM_S) as driven:
        await driven.launch(one)
        seen = await driven.until(one.uid, Phase.LOST)
        assert seen.loss is Loss.NOT_STARTED


async def test_external_scancel_is_detected_when_the_task_ends(
    losing: tuple[RealSlurm, Path], tmp_path: Path
) -> None:
    slurm, _ = losing
    rig = SlurmRig(slurm, tmp_path / "home")
    one = task(rig, "echo up; exec sleep 60")
    # Without Slurm's reason the end would not be accepted during this test.
    async with Driven(rig, steady_interval_s=_SELDOM_S, reason_timeout_s=_SELDOM_S) as driven:
        engine = driven.engine
        assert isinstance(engine, SlurmEngine)
        await driven.launch(one)
        await driven.wait_for_output(one.uid, b"up")
        await driven.until(one.uid, Phase.RUNNING)
        await appears(lambda: engine._poller._woken._waiters, "it to be asked about, and to rest")
        await asyncio.to_thread(slurm.ask, "scancel", *slurm.jobs())
        assert (await driven.ended(one.uid)).loss is Loss.WITHDRAWN
