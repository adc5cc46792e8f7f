"""Web portal: first load; in a real Chromium a long list, a job of many tasks, a long log; the quickstart."""

from __future__ import annotations

import gzip
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.server import Server, follow_to_end, job
from bench.store import fill, fill_metrics
from bench.table import SMOKE, Row, alternate, limit_row, ms, ratio_row, sized, skipped_row
from paicluster.api.portal.bundle import FOLDER
from paicluster.api.v2.job_summaries import render_summary
from paicluster.store import Store

if TYPE_CHECKING:
    from support.browser import Browser, Page

JOBS = sized(100_000, 500)
RUNS = sized(7, 1)
LIST_REQUESTS = sized(50, 1)
_PAGE = 50
METRICS = ("train_loss", "train_accuracy", "val_loss", "val_accuracy", "lr")
TASKS = sized(2000, 20)
QUICKSTARTS = 3
LOG_BYTES = sized(1 << 30, 8 << 20)
_LOG_SIZE = sized("1 GB", "8 MB")
_LINE = b"2026-05-15 05:44:19 INFO step %08d: loss 0.693147, and some more words of a usual line\n"
_ROOT = Path(__file__).parents[1]
_FIRST_LOAD = re.compile(r'(?:src|href)="portal/([^"]+\.(?:js|css))"')
# Notes when the first rows are in the page.
_WATCH_ROWS = """
new MutationObserver((changes, observer) => {
  if (!document.querySelector(".jobs tbody tr")) return;
  observer.disconnect();
  requestAnimationFrame(() => (window.shown = performance.now()));
}).observe(document, {childList: true, subtree: true});
"""
_LIST = (
    "/api/v2/jobs?limit=50&offset=0&order=submissionTime%2CDESC&withTotalCount=true&reasons=true&causes=true"
)


def rows() -> list[Row]:
    if not (FOLDER / "index.html.gz").exists():
        return [skipped_row("portal", "it is not built (make portal)")]
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder:
        home = Path(folder)
        # The first start creates the key files; a server refuses a database without them.
        with Server(home=home):
            pass
        store = Store.open(home / "cluster.db", render_summary)
        fill(store, JOBS, all_finished=True)
        fill_metrics(store, METRICS)
        store.close()
        room = ("--cpus", str(2 * TASKS), "--memory-mb", str(2 * TASKS * 64))
        with Server("--keep-jobs", "1000000", *room, home=home) as server:
            found = [first_load(), list_request(server), *list_with_metrics(server)]
            found += rows_on_screen(server)
            found += [job_of_many_tasks(server), *log_rows(server)]
        return [*found, quickstart()]


def first_load() -> Row:
    """Bytes of scripts and styles that the page loads at once, as a browser without TLS gets them."""
    page = gzip.decompress((FOLDER / "index.html.gz").read_bytes()).decode()
    size = sum((FOLDER / f"{name}.gz").stat().st_size for name in _FIRST_LOAD.findall(page))
    return limit_row(
        "portal: first load, compressed", [float(size)], at_most=60_000, show=lambda n: f"{n / 1000:.1f} kB"
    )


def list_request(server: Server) -> Row:
    def once() -> float:
        began = time.perf_counter()
        server.call("GET", _LIST)
        return time.perf_counter() - began

    once()
    return limit_row(
        f"portal: API's share of the job list, {JOBS} jobs",
        [once() for _ in range(RUNS)],
        at_most=0.015,
        show=ms,
    )


def list_with_metrics(server: Server) -> list[Row]:
    """Pages of the list with columns of metrics, against pages without: one that is requested often, as it
    is polled, and others that the server has not read before."""
    columns = "".join(f"&metric={name}" for name in METRICS)
    pages = random.Random(1).sample(range(JOBS // _PAGE), sized(2 * RUNS * LIST_REQUESTS, 2))
    (first, *_) = server.call("GET", _LIST + columns)["data"]
    assert set(first["metrics"]) == set(METRICS)

    def several(path: str) -> float:
        began = time.perf_counter()
        for _ in range(LIST_REQUESTS):
            server.call("GET", path)
        return (time.perf_counter() - began) / LIST_REQUESTS

    def others(more: str) -> float:
        began = time.perf_counter()
        for _ in range(LIST_REQUESTS):
            server.call("GET", _LIST.replace("offset=0", f"offset={pages.pop() * _PAGE}") + more)
        return (time.perf_counter() - began) / LIST_REQUESTS

    what = f"portal: list of {JOBS} jobs with {len(METRICS)} columns of metrics / without"
    polled = alternate(lambda: several(_LIST + columns), lambda: several(_LIST), RUNS)
    first_read = alternate(lambda: others(columns), lambda: others(""), RUNS)
    return [
        ratio_row(what, *polled, at_most=2, show=ms),
        ratio_row(f"{what}, each page for the first time", *first_read, at_most=2, show=ms),
    ]


def new_browser(*, spare_process: bool = False) -> Browser:
    """Chromium as users have it; a smoke run does without its windows."""
    # The driver of Chromium is the tests'.
    sys.path.insert(0, str(_ROOT / "tests"))
    from support.browser import CHROMIUM, HEADLESS_SHELL, Browser

    return Browser(program=sized(CHROMIUM, HEADLESS_SHELL), spare_process=spare_process)


def rows_on_screen(server: Server) -> list[Row]:
    def load(page: Page, url: str) -> float:
        """Seconds from the navigation, in a process of its own, to the rows."""
        page.open("about:blank")
        page.open(url)
        return float(page.wait_for("window.shown")) / 1000

    def load_again(page: Page) -> float:
        page.reload()
        return float(page.wait_for("window.shown")) / 1000

    cold, warm, again = [], [], []
    browser = new_browser(spare_process=True)
    try:
        for _ in range(RUNS):
            with browser.page() as page:
                page.send("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH_ROWS})
                link = server.call("POST", "/api/v2/authn/links")["url"]
                cold.append(load(page, link))
                warm.append(load(page, link.partition("#")[0] + "#/jobs"))
                again.append(load_again(page))
    finally:
        browser.close()
    return [
        limit_row(f"portal: list of {JOBS} jobs to rows, cold, with sign-in", cold, at_most=0.3, show=ms),
        limit_row(f"portal: list of {JOBS} jobs to rows, warm, page reloaded", again, at_most=0.15, show=ms),
        limit_row(f"portal: list of {JOBS} jobs to rows, warm, new process", warm, at_most=0.15, show=ms),
    ]


# From the click on a job to its tasks on screen and a page that answers.
_OPEN_JOB = """
new Promise((done) => {
  const began = performance.now();
  const look = () => {
    if (!document.querySelector(".virtual tbody tr")) requestAnimationFrame(look);
    else requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
  };
  location.hash = "#/jobs/JOB";
  look();
})
"""


def job_of_many_tasks(server: Server) -> Row:
    wide = job("wide", "true")
    wide["taskRoles"]["main"]["instances"] = TASKS
    server.call("POST", "/api/v2/jobs", wide)
    follow_to_end(server, "wide")
    found = []
    browser = new_browser()
    try:
        for _ in range(RUNS):
            with browser.page() as page:
                page.open(server.call("POST", "/api/v2/authn/links")["url"])
                page.wait_for("document.querySelector('.jobs tbody tr') !== null")
                found.append(float(page.evaluate(_OPEN_JOB.replace("JOB", f"{server.user}~wide"))) / 1000)
                assert page.evaluate("document.querySelector('table').ariaRowCount") == str(TASKS + 1)
    finally:
        browser.close()
    return limit_row(f"portal: job of {TASKS} tasks to interactive", found, at_most=1, show=ms)


def log_rows(server: Server) -> list[Row]:
    """A long log in the page: from the navigation to its last line, and from Enter to a hit in its first."""
    last = write_log(server, "long-log")
    log, field = "document.querySelector('.log')", "input[aria-label='Search the log']"
    ends, hits = [], []
    browser = new_browser()
    try:
        for _ in range(RUNS):
            with browser.page() as page:
                page.open(server.call("POST", "/api/v2/authn/links")["url"])
                page.wait_for("document.querySelector('.jobs tbody tr') !== null")
                began = time.perf_counter()
                page.evaluate(f"location.hash = '#/jobs/{server.user}~long-log?tab=log'")
                page.wait_for(f"{log}?.textContent.includes('step {last:08}:')")
                ends.append(time.perf_counter() - began)
                page.fill(field, "step 00000001")
                page.wait_for_text("Enter searches")
                began = time.perf_counter()
                page.press("Enter")
                page.wait_for_text("1 of 1 shown")
                hits.append(time.perf_counter() - began)
    finally:
        browser.close()
    return [
        limit_row(f"portal: end of a log of {_LOG_SIZE}", ends, at_most=1, show=ms),
        limit_row(f"portal: hit in the first lines of a log of {_LOG_SIZE}", hits, at_most=3, show=ms),
    ]


def write_log(server: Server, name: str) -> int:
    """Run a job and give it a long log; returns the number of its last line."""
    server.call("POST", "/api/v2/jobs", job(name, "true"))
    follow_to_end(server, name)
    detail = server.call("GET", f"/api/v2/jobs/{server.user}~{name}")
    uid = detail["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
    count = LOG_BYTES // len(_LINE % 0)
    with (server.home / "tasks" / uid[:2] / uid / "all.0").open("wb") as log:
        for first in range(0, count, 10_000):
            log.write(b"".join(_LINE % number for number in range(first, min(first + 10_000, count))))
    return count - 1


def quickstart() -> Row:
    """`make quickstart` of a fresh checkout, with the portal and where it cannot be built."""
    what = "portal: quickstart with the portal, without it"
    if SMOKE:
        return skipped_row(what, "a smoke run installs nothing")
    made, reference = alternate(
        lambda: _fresh_quickstart(with_portal=True),
        lambda: _fresh_quickstart(with_portal=False),
        runs=QUICKSTARTS,
    )
    return ratio_row(what, made, reference, at_most=1.8, show=lambda seconds: f"{seconds:.1f} s")


def _fresh_quickstart(*, with_portal: bool) -> float:
    """Seconds of `make quickstart` in a copy of the repository, with a home and caches of its own."""
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder:
        checkout, home = Path(folder) / "checkout", Path(folder) / "home"
        home.mkdir()
        names = subprocess.run(["git", "ls-files", "-z"], cwd=_ROOT, capture_output=True, check=True).stdout
        for name in filter(None, names.decode().split("\0")):
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(_ROOT / name, checkout / name)
        if not with_portal:
            _break_portal(checkout / "portal/bundle_build.py")
        # Where packages come from is the machine's; what it has downloaded before is not.
        environment = {
            **{
                name: value for name, value in os.environ.items() if not name.startswith(("PAI_", "VIRTUAL_"))
            },
            "HOME": str(home),
            "PIP_NO_CACHE_DIR": "1",
            "npm_config_cache": str(home / "npm"),
            "npm_config_userconfig": str(Path.home() / ".npmrc"),
        }
        if (settings := Path.home() / ".config/pip/pip.conf").exists():
            environment.setdefault("PIP_CONFIG_FILE", str(settings))
        began = time.perf_counter()
        done = subprocess.run(
            ["make", "-s", "quickstart"], cwd=checkout, env=environment, capture_output=True, text=True
        )
        took = time.perf_counter() - began
        if (pai := checkout / ".venv/bin/pai").exists():
            subprocess.run([pai, "stop-cluster"], env=environment, capture_output=True)
        has_portal = "The web portal" in done.stdout
        if done.returncode or has_portal != with_portal:
            raise RuntimeError(f"make quickstart: {done.returncode} {done.stdout} {done.stderr}"[-2000:])
        return took


def _break_portal(build: Path) -> None:
    """Let `make portal` fail at once. The package's build imports the same file, and must not fail."""
    head = "from __future__ import annotations\n"
    broken = f"{head}\nif __name__ == '__main__':\n    raise SystemExit(1)\n"
    text = build.read_text()
    assert head in text
    build.write_text(text.replace(head, broken, 1))
