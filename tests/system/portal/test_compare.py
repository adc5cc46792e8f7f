"""Comparison of runs: a sweep and jobs of the list, as a table and as a plot that a link reproduces."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from support.portal import NewPage
from support.server_fixture import eventually, job
from support.team_cluster import TeamCluster

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]

# Of task N: the loss begins at N + 1 and falls to (N + 1) / 10; the last task diverges, and one fails.
LOG = f"""exec {sys.executable} -c '
import os, sys
from openpaisdk.runtime import log_metrics
number = int(os.environ.get("PAI_TASK_INDEX", 0))
for step in range(10):
    log_metrics(step, loss=float("nan") if number == 5 else (number + 1) / (step + 1), rate=number)
sys.exit(number == 4)
'"""
VALUES = {"lr": ["0.1", "0.01", "0.001"], "seed": ["1", "2"], "model": ["small"]}
SHIFT = 8
ROWS = "[...document.querySelectorAll('.virtual tbody tr')]"
TASKS = f"{ROWS}.map((row) => row.querySelector('td:nth-child(2)').innerText.replace(/\\D/g, '')).join('')"
CANVAS = "document.querySelector('.plot.metric canvas') !== null"
# Names and values of the lines, without the place on the horizontal axis.
LINES = "[...document.querySelectorAll('.readout > span')].slice(1).map((one) => one.innerText)"


@pytest.fixture(scope="module", name="sweep")
def finished_sweep(cluster: TeamCluster) -> str:
    completion = {"minFailedInstances": -1}
    spec = job("sweep", LOG, instances=6, memory_mb=128, completion=completion, parameters={"epochs": 10})
    spec["extras"] = {"gangAllocation": False, "openpaisdk": {"array": VALUES}}
    name = cluster.accept(spec)
    eventually(lambda: cluster.status(name)["completedTime"] is not None, "the end of the sweep", 60)
    return name


def test_runs_of_a_sweep_are_a_table_and_a_plot(new_page: NewPage, sweep: str, tmp_path: Path) -> None:
    page = new_page(at=f"/jobs/alice~{sweep}")
    page.click("a", "Compare runs")
    page.wait_for(f"{TASKS} === '012345'")
    page.wait_for_text("epochs=10")
    heads = "[...document.querySelectorAll('.virtual th')].slice(1).map((one) => one.innerText).join()"
    assert page.evaluate(heads) == (
        "Task,lr,seed,State,Cause,Duration,loss,loss min,loss max,rate,rate min,rate max"
    )
    assert "model=small" in page.text
    page.wait_for(CANVAS)
    page.wait_for(f"{LINES}.length === 6 && {LINES}[0] === 'lr=0.1 seed=1 0.1'")
    assert page.evaluate(f"{LINES}[5]") == "lr=0.001 seed=2 no value"
    page.accept_downloads(tmp_path)
    page.click("button", "Download PNG")
    picture = tmp_path / "loss.png"
    eventually(lambda: picture.exists() and picture.read_bytes().endswith(b"IEND\xaeB`\x82"), "the picture")
    # The values at the cursor.
    page.evaluate("document.querySelector('.plot-area').focus()")
    page.press("Home")
    page.wait_for(f"{LINES}[2] === 'lr=0.01 seed=1 3'")


def test_the_cause_of_a_failed_run_is_a_column(new_page: NewPage, sweep: str) -> None:
    page = new_page(at=f"/compare?jobs=alice~{sweep}&filter=exit+code", width=1280)
    page.wait_for(f"{TASKS} === '4'")
    assert page.evaluate("document.querySelector('.c-cause').innerText") == "Exit code 1"


def test_selected_tasks_of_a_sweep_are_compared(new_page: NewPage, sweep: str) -> None:
    page = new_page(at=f"/jobs/alice~{sweep}")
    page.click("input[aria-label='Select main[1]']")
    page.press("ArrowDown", modifiers=SHIFT)
    page.wait_for_text("2 tasks selected")
    page.click("a", "Log")
    page.wait_for("location.hash.includes('tab=log')")
    page.evaluate("history.back()")
    page.wait_for_text("2 tasks selected")
    page.click("a", "Compare selected")
    page.wait_for(f"{LINES}.join() === 'lr=0.1 seed=2 0.2,lr=0.01 seed=1 0.3'")
    page.evaluate("history.back()")
    page.click("[aria-label='State of the tasks'] button", "Failed 1")
    page.click("button", "Clear")
    page.click("thead input")
    page.wait_for_text("1 task selected")
    page.click("a", "Compare selected")
    page.wait_for(f"{LINES}.join() === 'lr=0.001 seed=1 0.5'")


def test_order_filter_metric_and_selection_are_in_the_address(new_page: NewPage, sweep: str) -> None:
    page = new_page(at=f"/compare?jobs=alice~{sweep}")
    page.wait_for(f"{TASKS} === '012345'")
    page.click("th button", "lr")
    page.wait_for(f"{TASKS} === '450123' || {TASKS} === '452301'")
    page.click("th button", "loss")
    page.click("th button", "loss ↑")
    # What is NaN comes last, also from the largest on.
    page.wait_for(f"{TASKS} === '432105'")
    page.fill("input[type=search]", "LR=0.01 seed")
    page.wait_for_text("2 of 6 runs")
    page.wait_for(f"{LINES}.length === 2")
    page.fill("input[type=search]", "seed=")
    page.wait_for(f"{LINES}.length === 6")
    page.choose(".compare select", "rate")
    page.wait_for(f"{LINES}[0] === 'lr=0.001 seed=1 4'")
    page.choose(".compare label:nth-of-type(2) select", "seed")
    page.wait_for("document.querySelector('.legend')?.innerText.split(/\\s+/).join() === '1,2'")
    page.click("input[aria-label='Draw all runs']")
    page.wait_for_text("No run is selected")
    page.click("input[aria-label='Draw lr=0.01 seed=2']")
    page.click("input[aria-label='Draw lr=0.1 seed=1']")
    page.wait_for(f"{LINES}.join() === 'lr=0.01 seed=2 3,lr=0.1 seed=1 0'")
    page.click("button", "Settings of rate")
    page.click(".plot-fields label", "From 0")
    page.wait_for("location.hash.includes('plots=')")
    address = page.address
    page.reload()
    page.wait_for(f"{LINES}.join() === 'lr=0.01 seed=2 3,lr=0.1 seed=1 0' && {TASKS} === '432105'")
    page.wait_for(CANVAS)
    page.wait_for("document.querySelector('.legend')?.innerText.split(/\\s+/).join() === '1,2'")
    assert page.address == address
    assert "show=0.3%2C0.0" in address and "order=metric.loss.last%2CDESC" in address


def test_the_table_is_saved_as_csv(new_page: NewPage, sweep: str, tmp_path: Path) -> None:
    page = new_page(at=f"/compare?jobs=alice~{sweep}&order=metric.loss.last,ASC&filter=code+1")
    page.wait_for(f"{TASKS} === '4'")
    page.accept_downloads(tmp_path)
    page.click("button", "Download CSV")
    file = tmp_path / "runs.csv"
    eventually(lambda: file.exists() and file.read_text().endswith("\n"), "the file")
    (row,) = csv.DictReader(file.read_text().splitlines())
    assert (row["task"], row["lr"], row["exit"], row["cause"], row["loss"], row["loss.max"]) == (
        "main[4]", "0.001", "1", "Exit code 1", "0.5", "5",
    )  # fmt: skip


def test_a_metric_is_plotted_against_a_parameter(new_page: NewPage, sweep: str, tmp_path: Path) -> None:
    page = new_page(at=f"/compare?jobs=alice~{sweep}&against=lr&colour=seed")
    page.wait_for("document.querySelectorAll('.scatter circle').length === 5")
    page.wait_for_text("1 selected run is left out")
    points = "[...document.querySelectorAll('.scatter circle title')].map((one) => one.textContent).join()"
    assert "lr=0.1 seed=1: 0.1,lr=0.1 seed=2: 0.2" in page.evaluate(points)
    page.accept_downloads(tmp_path)
    page.click("button", "Download SVG")
    file = tmp_path / "loss-against-lr.svg"
    eventually(lambda: file.exists() and file.read_text().endswith("</svg>"), "the picture")
    assert file.read_text().count("<circle") == 5 and "var(" not in file.read_text()
    page.choose(".compare label:nth-of-type(3) select", "")
    page.wait_for(f"{LINES}.length === 6")


def test_runs_are_grouped_with_their_mean_and_a_band(new_page: NewPage, sweep: str, tmp_path: Path) -> None:
    page = new_page(at=f"/compare?jobs=alice~{sweep}")
    page.wait_for(f"{LINES}.length === 6")
    page.choose(".compare label:nth-of-type(4) select", "lr")
    page.wait_for(f"{LINES}.length === 3 && {LINES}[0] === 'lr=0.1 (2 runs) 0.15'")
    page.choose(".compare label:nth-of-type(4) select", "range")
    page.wait_for(CANVAS)
    # The band is drawn: with it there are more colours between the lines.
    page.evaluate("document.querySelector('.plot-area').focus()")
    page.press("End")
    page.wait_for(f"{LINES}[0] === 'lr=0.1 (2 runs) 0.15 (0.1 to 0.2)'")
    assert page.evaluate(f"{LINES}[1]") == "lr=0.01 (2 runs) 0.35 (0.3 to 0.4)"
    page.click(".plot.metric summary")
    first_row = "document.querySelector('.plot.metric tbody tr')?.innerText"
    page.wait_for(f"{first_row} === '0\\tlr=0.1 (2 runs)\\t1.5\\t1\\t2'")
    page.accept_downloads(tmp_path)
    page.click(".plot.metric button", "Download CSV")
    file = tmp_path / "Mean-of-loss.csv"
    eventually(lambda: file.exists() and file.read_text().endswith("\n"), "the file")
    first, *_, last = csv.DictReader(file.read_text().splitlines())
    assert first == {"lr": "0.1", "step": "0", "runs": "2", "mean": "1.5", "low": "1", "high": "2"}
    assert (last["lr"], last["runs"]) == ("0.001", "1")
    assert "group=lr" in page.address and "band=range" in page.address
    page.reload()
    page.wait_for(f"{LINES}.length === 3")
    # The colours of the table are those of the groups.
    colours = "[...document.querySelectorAll('.c-draw .swatch')].map((one) => one.firstChild.style.stroke)"
    assert len(set(page.evaluate(colours))) == 3


def test_all_parameters_are_axes_beside_the_metric(new_page: NewPage, sweep: str, tmp_path: Path) -> None:
    page = new_page(at=f"/compare?jobs=alice~{sweep}")
    page.wait_for(f"{LINES}.length === 6")
    page.choose(".compare label:nth-of-type(3) select", "*")
    page.wait_for("document.querySelectorAll('.parallel polyline').length === 5")
    names = (
        "[...document.querySelectorAll('.parallel .name')].map((one) => one.firstChild.textContent).join()"
    )
    assert page.evaluate(names) == "lr,seed,loss"
    page.wait_for_text("1 selected run is left out: without a value of loss that the axis has.")
    marked = "document.querySelector('.readout').innerText"
    page.evaluate("document.querySelector('.parallel').focus()")
    page.press("Home")
    page.wait_for(f"{marked} === 'lr=0.1 seed=1: loss 0.1'")
    page.press("ArrowUp")
    page.wait_for(f"{marked} === 'lr=0.1 seed=2: loss 0.2'")
    page.press("End")
    page.wait_for(f"{marked} === 'lr=0.001 seed=1: loss 0.5'")
    assert page.evaluate("document.querySelectorAll('.parallel polyline.pale').length") == 4
    page.press("Escape")
    page.wait_for(f"{marked}.startsWith('5 runs, loss from 0.1')")
    page.accept_downloads(tmp_path)
    page.click("button", "Download SVG")
    page.click("button", "Download PNG")
    drawing, picture = tmp_path / "loss-and-parameters.svg", tmp_path / "loss-and-parameters.png"
    eventually(lambda: drawing.exists() and drawing.read_text().endswith("</svg>"), "the drawing")
    assert drawing.read_text().count("<polyline") == 5 and "var(" not in drawing.read_text()
    # Its outline would cover a text.
    assert drawing.read_text().count('paint-order="stroke"') == drawing.read_text().count("<text")
    eventually(lambda: picture.exists() and picture.read_bytes().endswith(b"IEND\xaeB`\x82"), "the picture")
    page.reload()
    page.wait_for("document.querySelectorAll('.parallel polyline').length === 5")


def test_columns_are_chosen_and_are_in_the_address(new_page: NewPage, sweep: str) -> None:
    page = new_page(at=f"/compare?jobs=alice~{sweep}")
    page.wait_for(f"{TASKS} === '012345'")
    page.click("summary", "Columns")
    page.click(".column-boxes label", "rate min")
    page.click(".column-boxes label", "State")
    heads = "[...document.querySelectorAll('.virtual th')].slice(1).map((one) => one.innerText).join()"
    page.wait_for(f"{heads} === 'Task,lr,seed,Cause,Duration,loss,loss min,loss max,rate,rate max'")
    page.reload()
    page.wait_for(f"{heads} === 'Task,lr,seed,Cause,Duration,loss,loss min,loss max,rate,rate max'")
    page.click("summary", "Columns")
    page.click("button", "The usual columns")
    page.wait_for(f"{heads}.includes('State')")


def test_finished_jobs_of_the_list_are_compared(new_page: NewPage, cluster: TeamCluster) -> None:
    for number in range(3):
        spec = job(f"lone-{number}", LOG, memory_mb=128, parameters={"depth": number})
        cluster.run(spec)
    page = new_page(at="/jobs?keyword=lone-")
    page.wait_for("document.querySelectorAll('.jobs tbody tr').length === 3")
    page.click("thead input")
    page.wait_for_text("3 jobs selected")
    assert "Stop" not in page.evaluate("document.querySelector('.selected').innerText")
    page.click(".selected a", "Compare")
    page.wait_for(f"{LINES}.length === 3 && {LINES}.some((one) => one === 'depth=2 0.1')")
    assert cluster.ask("DELETE", "/api/v1/user/alice/jobs/lone-1").status < 300
    page.reload()
    page.wait_for_text("Job alice~lone-1 does not exist any more.")
    page.wait_for(f"{ROWS}.length === 2 && {LINES}.length === 2")
    page.click("button", "Leave it out")
    page.wait_for("!location.hash.includes('lone-1')")
    page.wait_for(f"{ROWS}.length === 2 && !document.body.innerText.includes('any more')")


def test_values_of_running_jobs_arrive(new_page: NewPage, cluster: TeamCluster, tmp_path: Path) -> None:
    more = tmp_path / "more"
    line = r'echo "{\"step\": %d, \"values\": {\"loss\": %d}}" >> $PAI_METRICS_FILE'
    logs = f"{line % (1, 8)}; until test -e {more}; do sleep 0.1; done; {line % (2, 4)}; sleep 600"
    name = cluster.accept(job("growing", logs))
    cluster.wait_state(name, "RUNNING")
    page = new_page(at=f"/compare?jobs=alice~{name}")
    page.wait_for(f"{LINES}.join() === 'growing 8'")
    more.touch()
    page.wait_for(f"{LINES}.join() === 'growing 4'")
    page.wait_for("document.querySelector('.virtual tbody tr').innerText.includes('4\\t4\\t8')")
    cluster.stop(name)


def test_what_there_is_nothing_to_compare_of(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.run(job("silent", "true"))
    page = new_page(at="/compare")
    page.wait_for_text("No jobs are selected")
    page.evaluate("location.hash = '#/compare?jobs=alice~silent'")
    page.wait_for_text("No run has logged a metric yet.")
    page.wait_for(f"{ROWS}.length === 1")
    page.evaluate("location.hash = '#/compare?jobs=alice~never-was'")
    page.wait_for_text("Job alice~never-was does not exist any more.")
    page.wait_for_text("There is nothing to compare")


def test_more_runs_than_can_be_drawn(new_page: NewPage, cluster: TeamCluster) -> None:
    values = {"number": [str(number) for number in range(60)]}
    logs = 'echo "{\\"step\\": 1, \\"values\\": {\\"index\\": $PAI_TASK_INDEX}}" >> $PAI_METRICS_FILE'
    spec = job("sixty", logs, instances=60)
    spec["extras"] = {"gangAllocation": False, "openpaisdk": {"array": values}}
    cluster.run(spec)
    page = new_page(at="/compare?jobs=alice~sixty&order=metric.index.last,DESC&colour=number")
    page.wait_for_text("The plot has the first 50 of 60 selected runs, in the order of the table.")
    page.wait_for(f"{LINES}.length === 50 && {LINES}[0] === 'number=59 59'")
    page.click("input[aria-label='Draw number=58']")
    page.wait_for(f"{LINES}.length === 49 && {LINES}[1] === 'number=57 57'")


def test_more_runs_than_colours_have_dashes_and_shapes(new_page: NewPage, cluster: TeamCluster) -> None:
    values = r"{\"loss\": $PAI_TASK_INDEX}"
    metrics = rf'echo "{{\"step\": 1, \"values\": {values}}}" >> $PAI_METRICS_FILE'
    many = job("many-runs", metrics, instances=20)
    seeds = [str(number) for number in range(20)]
    many["extras"] = {"gangAllocation": False, "openpaisdk": {"array": {"seed": seeds}}}
    cluster.run(many)
    page = new_page(at="/compare?jobs=alice~many-runs")
    look = "(one) => one.style.stroke + ' ' + getComputedStyle(one).strokeDasharray"
    swatches = f"[...document.querySelectorAll('.readout .swatch line')].map({look})"
    looks = page.wait_for(f"{swatches}.length === 20 && {swatches}")
    assert len(set(looks)) == 20
    # The table has the same ones.
    assert page.evaluate(f"[...document.querySelectorAll('.c-draw .swatch line')].map({look})") == looks
    page.choose(".compare label:nth-of-type(3) select", "seed")
    page.wait_for("document.querySelectorAll('.scatter circle').length === 8")
    assert page.evaluate("document.querySelectorAll('.scatter polygon').length") == 12
    # And the points of the scatter plot.
    assert page.evaluate("document.querySelectorAll('.c-draw .point-swatch circle').length") == 8
    assert page.evaluate("document.querySelectorAll('.c-draw .point-swatch polygon').length") == 12
