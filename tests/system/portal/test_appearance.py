"""Every page at four widths in both themes: contrast and names by axe, nothing too wide, no jumps.

`make screenshots` runs these tests with `PORTAL_SCREENSHOTS`, the folder for the pictures.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support.browser import Page
from support.portal import NewPage, end_sessions
from support.server_fixture import job
from support.team_cluster import TeamCluster

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]

WIDTHS = (1280, 1920, 820, 390)
# From this width on tables fit as well; in narrower windows they scroll.
LAPTOP_WIDTH = 1280
LONG_NAME = "language_models_research_team_of_the_institute"
FILES = "/files/home/user/alice/digits"
# Name, address, and what is on the page when it has loaded.
PAGES = {
    "jobs": ("/jobs", "document.querySelectorAll('.jobs tbody tr').length > 2"),
    "no-jobs": ("/jobs?keyword=nothing-has-this-name", "document.querySelector('.empty h2') !== null"),
    "job": ("/jobs/alice~trains", "document.querySelector('.virtual tbody tr') !== null"),
    "sweep": ("/jobs/alice~swept", "document.querySelector('.virtual td.c-value') !== null"),
    "log": ("/jobs/alice~trains?tab=log", "document.querySelector('.log').textContent.includes('step 99')"),
    "metrics": (
        "/jobs/alice~trains?tab=metrics",
        "document.querySelectorAll('.plot:not(.metric) canvas').length > 2"
        " && document.querySelector('.plot.metric canvas') !== null",
    ),
    "metrics-together": (
        "/jobs/alice~trains?tab=metrics&plots=log+smooth0.9&plot.train%2F=together",
        "document.querySelector('.plot.metric .swatch') !== null"
        " && document.querySelector('.plot.metric canvas') !== null",
    ),
    "compare": (
        "/compare?jobs=alice~swept&colour=seed&order=metric.train/loss.last,DESC",
        "document.querySelector('.compare .legend') !== null"
        " && document.querySelectorAll('.readout > span').length === 5"
        " && document.querySelector('.plot.metric canvas') !== null",
    ),
    "compare-parameter": (
        "/compare?jobs=alice~swept&colour=seed&against=lr",
        "document.querySelectorAll('.scatter circle').length === 4",
    ),
    "compare-groups": (
        "/compare?jobs=alice~swept&group=lr&columns=parameter.lr,metric.train/loss.last",
        "document.querySelectorAll('.readout > span').length === 3"
        " && document.querySelector('.plot.metric canvas') !== null",
    ),
    "compare-parallel": (
        "/compare?jobs=alice~swept&against=*",
        "document.querySelectorAll('.parallel polyline').length === 4",
    ),
    "config": ("/jobs/alice~trains?tab=config", "document.querySelector('pre.config') !== null"),
    "commands": ("/jobs/alice~trains?tab=commands", "document.querySelector('.copy') !== null"),
    "terminal": (
        "/jobs/alice~trains?tab=terminal",
        "document.querySelector('.xterm-rows')?.innerText.includes('work')",
    ),
    "timeline": ("/jobs/alice~trains?tab=timeline", "document.querySelector('.timeline li') !== null"),
    "apps": ("/jobs/alice~trains?tab=apps", "document.querySelector('.apps li') !== null"),
    "no-job": ("/jobs/alice~nothing", "document.querySelector('.notice.bad') !== null"),
    "no-page": ("/nothing", "document.querySelector('.empty h2') !== null"),
    "no-file": (f"{FILES}/nothing", "document.querySelector('.notice.bad') !== null"),
    "failed": ("/jobs/alice~fails", "document.querySelector('.notice.bad') !== null"),
    "waiting": ("/jobs/alice~waits", "document.querySelector('.notice.wait') !== null"),
    "submit": (
        "/submit",
        "document.querySelector('.editor')?.shadowRoot?.querySelector('.cm-line') !== null",
    ),
    "outputs": ("/jobs/alice~leaves-files?tab=outputs", "document.querySelector('.files tbody tr') !== null"),
    "files": (FILES, "document.querySelectorAll('.files tbody tr').length > 4"),
    "no-files": (f"{FILES}/plots", "document.querySelector('.empty h2') !== null"),
    "file-text": (f"{FILES}/train.py", "document.querySelector('pre.config') !== null"),
    "file-code": (f"{FILES}/train.py", "document.querySelector('.tok-keyword') !== null"),
    "file-markdown": (f"{FILES}/README.md", "document.querySelector('.markdown .tok-keyword') !== null"),
    "file-table": (f"{FILES}/results.csv", "document.querySelector('.csv tbody tr') !== null"),
    "file-notebook": (f"{FILES}/explore.ipynb", "document.querySelector('.cell img') !== null"),
    "file-image": (f"{FILES}/loss.svg", "document.querySelector('.picture img') !== null"),
    "profile": ("/profile", "document.querySelector('.key') !== null"),
    "home": ("/home", "document.querySelectorAll('.rows li').length > 1"),
    "cluster": ("/cluster", "document.querySelectorAll('.plot canvas').length > 2"),
}
ADMIN_PAGES = {
    "admin-users": ("/admin", "document.querySelector('.virtual tbody tr') !== null"),
    "admin-groups": ("/admin?tab=groups", "document.querySelector('#tab-panel tbody tr') !== null"),
    "admin-clusters": ("/admin?tab=clusters", "document.querySelector('#tab-panel tbody tr') !== null"),
    "admin-alerts": ("/admin?tab=alerts", "document.querySelector('#tab-panel .card') !== null"),
    "admin-settings": ("/admin?tab=settings", "document.querySelector('.settings tbody tr') !== null"),
    "admin-audit": ("/admin?tab=audit", "document.querySelector('#tab-panel tbody tr') !== null"),
}
WIDE_TABLES = """[...document.querySelectorAll('.scroll, .virtual')]
.filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.ariaLabel ?? e.className).join(', ')"""
# What is not in the window, or sticks out of the dialog.
BEYOND_DIALOG = """(() => { const d = document.querySelector('dialog[open]'), r = d.getBoundingClientRect();
return [d, ...d.querySelectorAll('*')].filter((e) => { const b = e.getBoundingClientRect();
return b.width > 0 && !e.closest('table, pre, .cm-editor')
&& (b.left < Math.max(0, r.left) || b.right > Math.min(innerWidth, r.right)); })
.map((e) => e.outerHTML.slice(0, 100)); })()"""
MAX_SHIFT = 0.05
# Colours that change take a moment; a change begins with the next frame.
NO_TRANSITION = """new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))
.then(() => document.getAnimations().every((one) => !(one instanceof CSSTransition)))"""
WATCH_SHIFTS = """
window.shift = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
}).observe({type: "layout-shift", buffered: true});
"""

# Configuration and events of a job come when `release()` is called.
HOLD_ALL_BUT_DETAIL = """
const send = window.fetch;
window.events = 0;
const released = new Promise((release) => { window.release = release; });
window.fetch = async (address, init) => {
  if (!/\\/(config|follow)\\b/.test(address)) return send(address, init);
  await released;
  const response = await send(address, init);
  window.events += String(address).includes("follow");
  return response;
};
"""
NEXT_FRAME = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def logs_of(values: str) -> str:
    return rf"""for step in $(seq 99); do
    echo "{{\"step\": $step, \"values\": {values}}}" >> $PAI_METRICS_FILE; echo step $step loss 0.1; done"""


@pytest.fixture(scope="module", autouse=True)
def jobs(cluster: TeamCluster) -> None:
    # Names of ports as of a distributed job of PaddleCloud.
    ports = {"tensorboard": 1, **{f"trainer_port_{number}": 2 for number in range(5)}}
    values = r"{\"train/loss\": $((100 - step)), \"train/accuracy\": $step}"
    cluster.submit(job("trains", f"{logs_of(values)}; sleep 600", ports=ports))
    values = r"{\"train/loss\": $((100 - step / (PAI_TASK_INDEX + 1)))}"
    swept = job("swept", logs_of(values), instances=4, parameters={"epochs": 99})
    swept["extras"] = {
        "gangAllocation": False,
        "openpaisdk": {"array": {"lr": ["0.1", "0.01"], "seed": ["1", "2"]}},
    }
    cluster.run(swept)
    cluster.run(job("fails", "echo no data >&2; exit 3"))
    cluster.submit(job("waits", "true", gpu=64))
    cluster.wait_state("trains", "RUNNING")
    cluster.run(job("leaves-files", "for f in model.pt log.csv; do seq 999 > $PAI_OUTPUT_DIR/$f; done"))
    # A long name also in lists of choices and, as that of its group, in those of the administration.
    share = {"vcCapacity": 10}
    reply = cluster.ask("PUT", f"/api/v2/virtual-clusters/{LONG_NAME}", share, token=cluster.tokens["admin"])
    assert reply.status == 201, reply.text


PLOT = """<svg xmlns="http://www.w3.org/2000/svg" width="480" height="240" fill="none" stroke-width="3">
<path d="M40 10v200h430" stroke="#888"/><path d="M40 30c60 150 140 160 430 170" stroke="#2f5bd0"/></svg>"""
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
NOTEBOOK = {
    "nbformat": 4,
    "cells": [
        {"cell_type": "markdown", "source": ["# Digits\n", "How the loss falls."]},
        {
            "cell_type": "code",
            "execution_count": 1,
            "source": "import json\nprint(json.dumps({'loss': 0.08}))",
            "outputs": [{"output_type": "stream", "name": "stdout", "text": '{"loss": 0.08}\n'}],
        },
        {
            "cell_type": "code",
            "execution_count": 2,
            "source": "plot(losses)\n1 / 0",
            "outputs": [
                {"output_type": "display_data", "data": {"image/png": PIXEL}},
                {"output_type": "error", "traceback": ["ZeroDivisionError: division by zero"]},
            ],
        },
    ],
}


CODE = """\
\"\"\"Train on digits.\"\"\"
import torch

RATE = 0.01  # of Adam


class Net(torch.nn.Module):
    def forward(self, x):
        return self.layers(x)


for epoch in range(10):
    train(epoch, name="digits")
"""
README = """\
# Digits

A **small** net, trained with `train.py`; see [the paper](https://papers.example/digits).

## Runs

| lr | loss |
|---|---|
| 0.1 | 0.31 |
| 0.01 | 0.27 |

1. download
2. train
   - with *seeds*

- [x] baseline
- [ ] larger net

> Do not use the test set.
"""


@pytest.fixture(scope="module", autouse=True)
def files(cluster: TeamCluster) -> None:
    rows = "".join(f"{step},{1 / step:.4f},{0.9 + step / 20000:.4f}\n" for step in range(1, 400))
    for name, text in {
        "train.py": CODE,
        "README.md": f"{README}\n```python\n{CODE}```\n",
        "results.csv": "step,loss,accuracy\n" + rows,
        "explore.ipynb": json.dumps(NOTEBOOK),
        "loss.svg": PLOT,
        "a-file-with-a-long-name-of-the-kind-that-experiments-have-lr0.001-batch64-seed7.log": "x",
    }.items():
        path = f"/webhdfs/v1/user/alice/digits/{name}?op=CREATE&data=true"
        assert cluster.ask("PUT", path, text.encode()).status == 201
    assert cluster.ask("PUT", "/webhdfs/v1/user/alice/digits/plots?op=MKDIRS").status == 200
    key = {"title": "laptop", "value": f"ssh-ed25519 {'AAAAC3NzaC1lZDI1' * 4} alice@laptop", "time": 0}
    keys = {"extension": {"sshKeys": [key]}}
    assert cluster.ask("PUT", "/api/v2/users/alice/extension", keys).status == 201
    assert cluster.ask("POST", "/api/v2/tokens/application", {"name": "nightly training"}).status == 200


def picture(page: Page, name: str, width: int, dark: bool) -> None:
    if folder := os.environ.get("PORTAL_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.picture(Path(folder) / f"{name}-{width}-{'dark' if dark else 'light'}.png")


def violations(
    page: Page, axe: str, only: tuple[str, ...] = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")
) -> list[str]:
    """What axe finds serious."""
    page.evaluate(f"if (!window.axe) {{ {axe} }}")
    # Nothing that these rules check needs the style sheets as text, which axe would load.
    rules = {"resultTypes": ["violations"], "runOnly": only, "preload": False}
    found: list[str] = page.evaluate(
        f"axe.run(document, {json.dumps(rules)}).then((r) => r.violations.filter((v) => "
        "['serious', 'critical'].includes(v.impact)).map((v) => v.id + ': ' + v.nodes[0].html))"
    )
    return found


def check(page: Page, name: str, axe: str) -> list[str]:
    """What is wrong with a page: names and contrast, jumps while it loaded, widths, contrast in the dark."""
    found = violations(page, axe)
    if (shift := page.evaluate("window.shift")) > MAX_SHIFT:
        found.append(f"layout shift {shift:.3f}")
    found += widths(page, name, dark=False)
    page.resize(WIDTHS[0], 900, dark=True)
    page.wait_for(f"matchMedia('(prefers-color-scheme: dark)').matches && {NO_TRANSITION}")
    # Of all that axe checks, only this depends on the colours.
    found += [f"dark {one}" for one in violations(page, axe, only=("color-contrast",))]
    if os.environ.get("PORTAL_SCREENSHOTS"):
        widths(page, name, dark=True)
    page.resize(WIDTHS[0], 900)
    return [f"{name}: {one}" for one in found]


def widths(page: Page, name: str, *, dark: bool) -> list[str]:
    """Where the page is wider than the window."""
    found = []
    for width in WIDTHS:
        page.resize(width, 900, dark=dark)
        page.wait_for(f"innerWidth === {width}")
        picture(page, name, width, dark)
        root = "document.documentElement"
        if (over := page.evaluate(f"{root}.scrollWidth - {root}.clientWidth")) > 0:
            found.append(f"{over} pixels wider than {width}")
        if width >= LAPTOP_WIDTH and (wide := page.evaluate(WIDE_TABLES)):
            found.append(f"{wide} is cut off at {width}")
    return found


def test_pages_are_accessible_and_fit(new_page: NewPage, axe: str) -> None:
    stranger = new_page(None, at="/", width=WIDTHS[0])
    stranger.evaluate(WATCH_SHIFTS)
    stranger.wait_for_text("Password")
    wrong = check(stranger, "sign-in", axe)
    for user, pages in (("alice", PAGES), ("admin", ADMIN_PAGES)):
        page = new_page(user, width=WIDTHS[0])
        for name, (address, is_loaded) in pages.items():
            page.evaluate(f"history.replaceState(null, '', {json.dumps('#' + address)})")
            page.reload()
            page.evaluate(WATCH_SHIFTS)
            page.wait_for(is_loaded)
            wrong += check(page, name, axe)
    assert wrong == []


def test_what_is_loaded_after_a_waiting_job_moves_nothing(new_page: NewPage) -> None:
    page = new_page(at="/jobs", width=WIDTHS[0])
    page.send("Page.addScriptToEvaluateOnNewDocument", {"source": HOLD_ALL_BUT_DETAIL})
    page.evaluate("history.replaceState(null, '', '#/jobs/alice~waits')")
    page.reload()
    page.evaluate(WATCH_SHIFTS)
    page.wait_for("document.querySelector('.notice.wait') !== null")
    page.evaluate("release()")
    page.wait_for_text("64 GPUs")
    page.wait_for("events > 0")
    page.evaluate(NEXT_FRAME)
    assert page.evaluate("window.shift") <= MAX_SHIFT


def test_form_over_the_pages_of_an_expired_session_is_accessible_and_fits(
    new_page: NewPage, cluster: TeamCluster, axe: str
) -> None:
    page = new_page("bob", at="/jobs", width=WIDTHS[0])
    page.evaluate(WATCH_SHIFTS)
    end_sessions(cluster, "bob")
    page.wait_for_text("Your session has ended.")
    assert check(page, "sign-in-again", axe) == []


@pytest.mark.parametrize(
    ("at", "button", "content"),
    [
        ("/submit", "JSON", "textarea"),
        ("/submit", "Start from …", ".earlier li"),
        ("/submit", "Save as template", "[name=template]"),
        ("/jobs/alice~fails", "Resubmit", "[name=name]"),
        ("/jobs", "Columns", "li"),
        ("/jobs", "Help", "kbd"),
    ],
)
def test_dialog_is_accessible_fits_a_phone_and_escape_closes_it(
    new_page: NewPage, axe: str, at: str, button: str, content: str
) -> None:
    page = new_page(at=at)
    page.click("button", button)
    page.wait_for(f"document.querySelector('dialog[open] {content}') !== null")
    assert violations(page, axe) == []
    page.resize(390, 844)
    page.wait_for("innerWidth === 390")
    assert page.evaluate(BEYOND_DIALOG) == []
    page.press("Escape")
    page.wait_for("document.querySelector('dialog') === null")


def test_selected_jobs_are_accessible_and_fit(new_page: NewPage, axe: str) -> None:
    page = new_page(at="/jobs", width=WIDTHS[0])
    page.evaluate(WATCH_SHIFTS)
    page.click("input[aria-label='Select fails']")
    page.wait_for_text("1 job selected")
    assert check(page, "jobs-selected", axe) == []
    page.click("button", "Tag")
    page.wait_for("document.querySelector('dialog[open] [name=tag]') !== null")
    assert violations(page, axe) == []


def test_filled_form_is_accessible_and_fits(new_page: NewPage, axe: str, tmp_path: Path) -> None:
    (tmp_path / "a-file-with-a-long-name-of-the-kind-that-experiments-have-lr0.001.py").write_text("")
    page = new_page(at="/submit")
    page.click("button", "Start from …")
    page.click("dialog button", "Train on a GPU")
    page.drop_files(".drop-zone", *tmp_path.iterdir())
    page.wait_for_text("1 file")
    for one in ("variable", "secret"):
        page.click("button", f"Add a {one}")
        page.fill(f"[aria-label='Name of {one} 1']", "9 lives")
    page.click(".storages input")
    # What the user adds may move what is below.
    page.evaluate("window.shift = 0")
    assert check(page, "submit-filled", axe) == []
