"""Comparison of runs in a real Chromium: from the request to the plot, and the script time of a hover."""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.server import Server, follow_to_end, job
from bench.table import Row, limit_row, ms, ratio_row, sized

if TYPE_CHECKING:
    from support.browser import Browser, Page

RUNS_COMPARED = sized(50, 5)
POINTS = sized(10_000, 200)
ROUNDS = sized(7, 1)
HOVERS = sized(100, 5)
_UPLOT = Path(__file__).parents[1] / "portal/node_modules/uplot/dist/uPlot.iife.min.js"
# From the click that opens the comparison to the frame that has all lines.
_OPEN = """
new Promise((done) => {
  const began = performance.now();
  const isDrawn = () =>
    document.querySelectorAll(".readout > span").length === COUNT + 1 &&
    document.querySelector(".plot.metric canvas") !== null &&
    !document.querySelector(".plot-notes")?.innerText.includes("Loading");
  const look = () => {
    if (!isDrawn()) requestAnimationFrame(look);
    else requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
  };
  location.hash = "#/compare?jobs=JOB";
  look();
})
"""
# Nothing but uPlot with as many points, in a plot of the same size.
_BARE = """
new Promise((done) => {
  const area = document.querySelector(".plot-area");
  const [width, height] = [area.clientWidth, area.clientHeight];
  const x = Array.from({length: POINTS}, (_, at) => at);
  const value = (at, line) => Math.sin(at / 100) + Math.sin(at * (line + 7));
  const lines = Array.from({length: COUNT}, (_, line) => x.map((at) => value(at, line)));
  const host = document.createElement("div");
  document.body.prepend(host);
  const began = performance.now();
  const series = lines.map((_, line) => ({stroke: `hsl(${line * 7} 50% 50%)`, width: 1.5}));
  const legend = {show: false};
  const options = {width, height, legend, scales: {x: {time: false}}, series: [{}, ...series]};
  const chart = new uPlot(options, [x, ...lines], host);
  requestAnimationFrame(() => setTimeout(() => {
    const took = performance.now() - began;
    chart.destroy();
    host.remove();
    done(took);
  }));
})
"""


def rows(server: Server, new_browser: Callable[[], Browser]) -> list[Row]:
    _log_runs(server)
    opened, bare, hovers = [], [], []
    browser = new_browser()
    script = _BARE.replace("COUNT", str(RUNS_COMPARED)).replace("POINTS", str(POINTS))
    try:
        for _ in range(ROUNDS):
            with browser.page() as page:
                page.open(server.call("POST", "/api/v2/authn/links")["url"])
                page.wait_for("document.querySelector('.jobs tbody tr') !== null")
                address = _OPEN.replace("JOB", f"{server.user}~curves").replace("COUNT", str(RUNS_COMPARED))
                opened.append(float(page.evaluate(address)) / 1000)
                page.evaluate(_UPLOT.read_text() + "; window.uPlot = uPlot; true")
                bare.append(float(page.evaluate(script)) / 1000)
                hovers.append(_hover_p95(page))
    finally:
        browser.close()
    what = f"portal: {RUNS_COMPARED} runs x {POINTS} points"
    return [
        ratio_row(f"{what} to the plot, uPlot alone", opened, bare, at_most=5, show=ms),
        limit_row(f"{what}: script time of a hover, p95", hovers, at_most=0.008, show=ms),
    ]


def _log_runs(server: Server) -> None:
    """A sweep whose tasks log a noisy curve each."""
    count = RUNS_COMPARED
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder:
        for run in range(count):
            with Path(f"{folder}/{run}").open("w") as file:
                for step in range(POINTS):
                    loss = math.exp(-step / POINTS) + 0.1 * math.sin(step * (run + 7))
                    line = {"step": step, "time": 1.8e9 + step, "values": {"loss": loss}}
                    file.write(json.dumps(line) + "\n")
        spec = job("curves", f"cp {folder}/$PAI_TASK_INDEX $PAI_METRICS_FILE")
        spec["taskRoles"]["main"]["instances"] = count
        values = {"rate": [str(run) for run in range(count)]}
        spec["extras"] = {"gangAllocation": False, "openpaisdk": {"array": values}}
        server.call("POST", "/api/v2/jobs", spec)
        follow_to_end(server, "curves")
    # Its summaries are read.
    while server.call("GET", f"/api/v2/runs?jobs={server.user}~curves")["jobs"][0]["hasUnreadMetrics"]:
        pass


def _hover_p95(page: Page) -> float:
    """Of real movements of the mouse over the plot, each with what the page computes for it."""
    page.send("Performance.enable")
    box = page.evaluate(
        "(() => { const area = document.querySelector('.plot-area'); area.scrollIntoView({block: 'center'});"
        " const {left, top, width, height} = area.getBoundingClientRect();"
        " return [left, top, width, height]; })()"
    )
    left, top, width, height = box
    times = []
    before = _script_s(page)
    for number in range(HOVERS + 1):
        place = {"x": left + width * (0.2 + 0.7 * number / HOVERS), "y": top + height / 2}
        page.send("Input.dispatchMouseEvent", {"type": "mouseMoved", **place})
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        after = _script_s(page)
        times.append(after - before)
        before = after
    # The first one enters the plot.
    return statistics.quantiles(times[1:], n=20)[-1]


def _script_s(page: Page) -> float:
    found = page.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in found if one["name"] == "ScriptDuration"))
