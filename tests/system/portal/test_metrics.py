"""Plots: what a job used, what it logged, what the cluster used; with their text for those who do not see."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.event_files import event, simple
from support.portal import NewPage
from support.server_fixture import job
from support.team_cluster import TeamCluster

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]

# Of `compareDocumentPosition`.
FOLLOWING = 4
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


def test_scalars_of_event_files_are_plotted_and_compared(
    new_page: NewPage, cluster: TeamCluster, tmp_path: Path
) -> None:
    file = tmp_path / "events.out.tfevents.1"
    file.write_bytes(b"".join(event(step, simple("loss", step / 2)) for step in range(1, 9)))
    spec = job("events", f"cp {file} $PAI_OUTPUT_DIR", instances=2)
    spec["extras"] = {"gangAllocation": False, "openpaisdk": {"array": {"lr": ["1", "2"]}}}
    cluster.run(spec)
    page = new_page(at="/jobs/alice~events?tab=metrics")
    page.wait_for_text("Scalars of event files in the outputs of the task")
    page.wait_for("document.querySelector('.plot.metric .readout')?.innerText.includes('4')")
    assert page.evaluate("document.querySelector('.plot.metric strong').innerText") == "tensorboard/loss"
    page.evaluate("location.hash = '#/compare?jobs=alice~events'")
    lines = "[...document.querySelectorAll('.readout > span')].slice(1).map((one) => one.innerText).join()"
    page.wait_for(f"{lines} === 'lr=1 4,lr=2 4'")


def test_usage_and_logged_metrics_of_a_job_are_plotted(new_page: NewPage, training: str) -> None:
    page = new_page(at=f"/jobs/alice~{training}?tab=metrics")
    page.wait_for("document.querySelector('#logged')?.innerText === 'Logged by main[0]'")
    # Two tasks of 100 MB and the interpreter.
    page.wait_for(f"/^(2[0-9][0-9]) MB of 512 MB, at most/.test({caption('Memory')})")
    page.wait_for(f"{CANVAS} >= 5")
    page.wait_for(f"{readout('loss')} === 'Step 49 0.02 lowest 0.02 at step 49'")
    page.evaluate(f"{figure('<img src=x onerror=alert(1)>')}.scrollIntoView()")
    page.wait_for(f"{readout('<img src=x onerror=alert(1)>')} === 'Step 49 49 lowest 0 at step 0'")
    # What the program logged comes first.
    order = "document.querySelector('#logged').compareDocumentPosition(document.querySelector('#used'))"
    assert page.evaluate(order) == FOLLOWING
    assert page.evaluate("document.querySelector('.plot img') === null")
    page.choose("select", "main 1")
    page.wait_for(f"/^1[0-9][0-9] MB of 256 MB, at most/.test({caption('Memory')})")
    page.click(".plot summary", "loss as a table")
    rows = "document.querySelector('[aria-label=\"Values of loss\"]').innerText"
    page.wait_for(f"/Step\\s+Time\\s+loss/.test({rows}) && {rows}.includes('0.02')")


def figure(title: str) -> str:
    """Expression of the plot of a metric."""
    return f"document.querySelector('figure[aria-label=\"{title}\"]')"


def readout(title: str) -> str:
    """Expression of the values that the plot of a metric names."""
    return f"{figure(title)}?.querySelector('.readout').innerText.split(/\\s+/).join(' ')"


# Steps 0 to 99, the last 20 of them twice; what is no number, two metrics of a group, and a long one.
EXPERIMENT = f"""exec {sys.executable} -c '
import json, os, time
lines = []
def add(step, values, **more):
    lines.append(json.dumps(dict(step=step, time=1.7e9 + len(lines), values=values, **more)))
for step in range(100):
    add(step, {{"train/loss": "NaN" if step == 30 else 100 - step, "train/reward": step * step}})
for step in range(80, 120):
    add(step, {{"train/loss": 120 - step, "train/reward": step * step}}, attempt="0.1")
for step in range(100_000):
    add(step, {{"long": 7 if step == 54321 else step % 3}})
open(os.environ["PAI_METRICS_FILE"], "w").write("".join(line + "\\n" for line in lines))
time.sleep(600)
'"""


@pytest.fixture(scope="module", name="experiment")
def experiment_job(cluster: TeamCluster) -> Iterator[str]:
    name = cluster.accept(job("experiment", EXPERIMENT, memory_mb=256))
    cluster.wait_state(name, "RUNNING")
    yield name
    cluster.stop(name)


def test_values_at_the_cursor_are_named_in_all_plots(new_page: NewPage, experiment: str) -> None:
    page = new_page(at=f"/jobs/alice~{experiment}?tab=metrics", height=1600)
    page.wait_for(f"{readout('train/loss')} === 'Step 119 1 lowest 1 at step 99'")
    page.wait_for_text("One value is not finite: NaN at step 30.")
    page.wait_for(f"{readout('train/reward')} === 'Step 119 14160 highest 14160 at step 119'")
    page.wait_for("document.querySelectorAll('.plot.metric .u-over').length === 3")
    page.evaluate(f"{figure('train/loss')}.querySelector('.plot-area').focus()")
    page.press("Home")
    page.wait_for(f"{readout('train/loss')} === 'Step 0 100 lowest 1 at step 99'")
    page.press("ArrowRight")
    page.wait_for(f"{readout('train/loss')}.startsWith('Step 1 99 ')")
    page.press("Escape")
    page.wait_for(f"{readout('train/loss')}.startsWith('Step 119 1 ')")
    # Both attempts were at step 90, and the plot beside it shows the same step.
    page.drag("[aria-label='train/loss'] .u-over", 90 / 119, 90 / 119)
    page.wait_for(f"{readout('train/loss')}.startsWith('Step 90 attempt 2: 30, attempt 1: 10 ')")
    page.wait_for(f"{readout('train/reward')}.startsWith('Step 90 attempt 2: 8100, attempt 1: 8100 ')")


def test_settings_of_plots_are_in_the_address(new_page: NewPage, experiment: str) -> None:
    page = new_page(at=f"/jobs/alice~{experiment}?tab=metrics", height=1600)
    page.wait_for(f"{readout('long')} === 'Step 99,999 0'")
    area = "[aria-label=long] .u-over"
    page.wait_for(f"document.querySelector('{area}') !== null")
    # A part without the one high value, then all of it again.
    page.drag(area, 0.25, 0.5)
    page.wait_for("/plot\\.long=from2[45]\\d\\d\\d\\+to(49|50)\\d\\d\\d$/.test(location.hash)")
    page.click("[aria-label=long] button", "Show all of it")
    page.wait_for("!location.hash.includes('plot.long')")
    page.drag(area, 0.5, 0.6)
    page.wait_for("location.hash.includes('plot.long=from')")
    page.double_click(area)
    page.wait_for("!location.hash.includes('plot.long')")
    page.click("button", "Settings of train/loss")
    page.choose("[aria-label='train/loss'] select[aria-label='Best value']", "highest")
    page.wait_for(f"{readout('train/loss')}.endsWith(' highest 100 at step 0')")
    page.click("[aria-label='train/loss'] label", "Logarithmic y axis")
    page.wait_for("location.hash.endsWith('&plot.train%2Floss=log+highest')")
    page.click("[aria-label='Settings of all plots'] label", "From 0")
    page.wait_for("location.hash.includes('plots=zero')")
    page.click("label", "In one plot")
    page.wait_for(f"{figure('train')} !== null && {figure('train/loss')} === null")
    page.reload()
    page.wait_for(
        f"{readout('train')} === 'Step 119 train/loss 1 highest 100 at step 0 "
        "train/reward 14160 highest 14160 at step 119'"
    )
    page.choose("[aria-label='Settings of all plots'] select", "time")
    page.wait_for(f"/^Nov 1[45], 2023, .* train.loss 1 highest 100 at Nov/.test({readout('train')})")
    page.click(".plot summary", "train as a table")
    rows = "document.querySelector('[aria-label=\"Values of train\"]').innerText"
    page.wait_for(f"/^2\\s+119\\s+.*\\s+train.loss\\s+1$/m.test({rows})")


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
