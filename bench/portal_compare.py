"""Comparison of runs in a real Chromium: from the request to the plot, and the script time of a hover.

A part of its own: it needs no history of jobs.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.portal import new_browser
from bench.server import Server, follow_to_end, job
from bench.table import Row, limit_row, ms, ratio_row, sized, skipped_row
from paicluster.api.portal.bundle import FOLDER

if TYPE_CHECKING:
    from support.browser import Page

RUNS_COMPARED = sized(50, 5)
POINTS = sized(10_000, 200)
ROUNDS = sized(9, 1)
HOVERS = sized(100, 5)
# Of one plot: the machine may be busy.
_DEADLINE_S = 300.0
_UPLOT = Path(__file__).parents[1] / "portal/node_modules/uplot/dist/uPlot.iife.min.js"
# From the click that opens the comparison to the frame that has all lines. What it takes is noted, not
# awaited: an answer of the browser has a deadline of its own.
_OPEN = """
(() => {
  window.took = 0;
  const began = performance.now();
  const isDrawn = () =>
    document.querySelectorAll(".readout > span").length === COUNT + 1 &&
    document.querySelector(".plot.metric canvas") !== null &&
    !document.querySelector(".plot-notes")?.innerText.includes("Loading");
  const look = () => {
    if (!isDrawn()) requestAnimationFrame(look);
    else requestAnimationFrame(() => setTimeout(() => (window.took = performance.now() - began)));
  };
  location.hash = "#/compare?jobs=JOB";
  look();
})()
"""
# Nothing but uPlot with as many points, in a plot of the same size.
_BARE = """
(() => {
  window.took = 0;
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
    window.took = performance.now() - began;
    chart.destroy();
    host.remove();
  }));
})()
"""


def rows() -> list[Row]:
    if not (FOLDER / "index.html.gz").exists():
        return [skipped_row("portal_compare", "the portal is not built (make portal)")]
    room = ("--cpus", str(2 * RUNS_COMPARED), "--memory-mb", str(RUNS_COMPARED * 128))
    with Server(*room) as server:
        _log_runs(server)
        return _measure(server)


def _measure(server: Server) -> list[Row]:
    opened, bare, hovers = [], [], []
    browser = new_browser()
    count = str(RUNS_COMPARED)
    open_runs = _OPEN.replace("JOB", f"{server.user}~curves").replace("COUNT", count)
    draw = _BARE.replace("COUNT", count).replace("POINTS", str(POINTS))
    try:
        # The first round is of a browser that has compiled nothing yet.
        for number in range(ROUNDS + sized(1, 0)):
            with browser.page() as page:
                page.open(server.call("POST", "/api/v2/authn/links")["url"])
                page.wait_for("document.querySelector('.jobs tbody tr') !== null")
                times = [_took_s(page, open_runs)]
                page.evaluate(_UPLOT.read_text() + "; window.uPlot = uPlot; true")
                times += [_took_s(page, draw), _hover_p95(page)]
                if number or ROUNDS == 1:
                    for values, value in zip((opened, bare, hovers), times, strict=True):
                        values.append(value)
    finally:
        browser.close()
    what = f"portal: {RUNS_COMPARED} runs x {POINTS} points"
    return [
        ratio_row(f"{what} to the plot, uPlot alone", opened, bare, at_most=5, show=ms),
        limit_row(f"{what}: script time of a hover, p95", hovers, at_most=0.008, show=ms),
    ]


def _took_s(page: Page, script: str) -> float:
    page.evaluate(script)
    return float(page.wait_for("window.took", _DEADLINE_S)) / 1000


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
    # CPU time, which other programs on the machine do not change.
    page.send("Performance.enable", {"timeDomain": "threadTicks"})
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
