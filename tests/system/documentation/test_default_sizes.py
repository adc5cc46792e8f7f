"""docs/how-to.md: the table of default sizes, retries and limits has the numbers of the code."""

from __future__ import annotations

from openpaisdk.jobs.job_options import CLUSTER_RESOURCES, EMBEDDED_RESOURCES
from paicluster.config.sections import RequestLimits
from paiprotocol.jobs.limits import MAX_TASKS
from paiprotocol.jobs.log_end import SEARCHED_BYTES
from paiprotocol.jobs.retries import BACKOFF_MAX_S, COUNTED_BACKOFF_MAX_S, MAX_PLATFORM_STREAK
from support.paths import REPOSITORY

PAGE = (REPOSITORY / "docs/how-to.md").read_text()


def row(what: str) -> str:
    return next(line for line in PAGE.splitlines() if line.startswith(f"| {what} |"))


def test_default_sizes_are_those_of_the_code() -> None:
    here, there = EMBEDDED_RESOURCES, CLUSTER_RESOURCES
    assert f"{here.cpu} on the embedded cluster, {there.cpu} on others" in row("cores per task")
    sizes = f"{here.memory_mb} MB on the embedded cluster, {there.memory_mb} MB on others"
    assert sizes in row("memory per task")
    assert here.gpu == there.gpu == 0 and "| 0 |" in row("GPUs per task")
    assert f"at most {MAX_TASKS} per job" in row("tasks")


def test_retries_and_limits_are_those_of_the_code() -> None:
    assert f"... {COUNTED_BACKOFF_MAX_S:.0f} seconds" in row("retries of a failed job")
    platform = row("retries of what the platform ended")
    assert f"at most {MAX_PLATFORM_STREAK} in a row" in platform
    assert f"to {BACKOFF_MAX_S / 60:.0f} minutes" in platform
    searched = row("end of the log that is read for the cause of a failure")
    assert f"{SEARCHED_BYTES >> 10} KiB" in searched
    assert f"{RequestLimits().sources_mb} MB" in row("files that travel with a job")
