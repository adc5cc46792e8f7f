"""Plots: what a job used, what it logged, what the cluster used; with their text for those who do not see."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from support.portal import NewPage
from support.server_fixture import job
from support.team_cluster import TeamCluster

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]

CANVAS = "document.querySelectorAll('.plot canvas').length"
# 100 MB and a core; what it logs has a name that tries to be markup.
TRAIN = f"""exec {sys.executable} -c '
from openpaisdk.runtime import log_metrics
data = bytearray(b"x") * (100 << 20)
for step in range(50):
    log_metrics(step, **{{"loss": 1 / (step + 1), "<img src=x onerror=alert(1)>": step}})
while True:
    pass
'"""


@pytest.fixture(scope="module", name="training")
def training_job(cluster: TeamCluster) -> Iterator[str]:
    name = cluster.accept(job("plotted", TRAIN, memory_mb=256, instances=2))
    cluster.wait_state(name, "RUNNING")
    yield name
    cluster.stop(name)


def caption(title: str) -> str:
    """Expression of the text beside a plot's title."""
    return (
        "[...document.querySelectorAll('.plot figcaption')].find((one) => "
        f"one.querySelector('strong').innerText === '{title}')?.querySelector('span').innerText"
    )


def test_usage_and_logged_metrics_of_a_job_are_plotted(new_page: NewPage, training: str) -> None:
    page = new_page(at=f"/jobs/alice~{training}?tab=metrics")
    # Two tasks of 100 MB and the interpreter.
    page.wait_for(f"/^(2[0-9][0-9]) MB of 512 MB, at most/.test({caption('Memory')})")
    page.wait_for(f"{CANVAS} >= 5")
    page.wait_for(f"{caption('loss')} === '0.02, at most 1'")
    page.wait_for(f"{caption('<img src=x onerror=alert(1)>')} === '49, at most 49'")
    assert page.evaluate("document.querySelector('.plot img') === null")
    page.choose("select", "main 1")
    page.wait_for(f"/^1[0-9][0-9] MB of 256 MB, at most/.test({caption('Memory')})")
    page.click(".plot summary", "loss as a table")
    rows = "document.querySelector('[aria-label=\"Values of loss\"]').innerText"
    page.wait_for(f"/Step\\s+loss/.test({rows}) && {rows}.includes('0.02')")


def test_a_job_without_samples_says_why(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.submit(job("unplotted", "true", gpu=64))
    page = new_page(at="/jobs/alice~unplotted?tab=metrics")
    page.wait_for_text("Running tasks are measured every")
    page.wait_for_text("log_metrics(step, loss=0.3)")
    cluster.stop("unplotted")


def test_usage_of_nodes_and_virtual_clusters_is_plotted(new_page: NewPage, training: str) -> None:
    page = new_page(at="/cluster")
    page.wait_for(f"{CANVAS} >= 3")
    page.wait_for(f"{caption('CPU, in cores')}?.includes(' of 64, at most ')")
    page.choose("select", "virtual-clusters/default")
    page.wait_for("location.hash.includes('of=virtual-clusters')")
    page.wait_for(f"/ of 64 GB, at most/.test({caption('Memory')})")
