"""Web portal: size of the first load; in a real Chromium the job list of a long history, and a long log."""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
import time
from pathlib import Path

from bench.server import Server, follow_to_end, job
from bench.store import fill
from bench.table import Row, limit_row, ms, sized, skipped_row
from paicluster.api.portal.bundle import FOLDER
from paicluster.store import Store

JOBS = sized(100_000, 500)
RUNS = sized(7, 1)
LOG_BYTES = sized(1 << 30, 8 << 20)
_LOG_SIZE = sized("1 GB", "8 MB")
_LINE = b"2026-05-15 05:44:19 INFO step %08d: loss 0.693147, and some more words of a usual line\n"
_FIRST_LOAD = re.compile(r'(?:src|href)="portal/([^"]+\.(?:js|css))"')
# Notes when the first rows are in the page.
_WATCH_ROWS = """
new MutationObserver((changes, observer) => {
  if (!document.querySelector(".jobs tbody tr")) return;
  observer.disconnect();
  requestAnimationFrame(() => (window.shown = performance.now()));
}).observe(document, {childList: true, subtree: true});
"""
_LIST = "/api/v2/jobs?limit=50&offset=0&order=submissionTime%2CDESC&withTotalCount=true&reasons=true"


def rows() -> list[Row]:
    if not (FOLDER / "index.html.gz").exists():
        return [skipped_row("portal", "it is not built (make portal)")]
    # The driver of Chromium is the tests'.
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder:
        home = Path(folder)
        # The first start creates the key files; a server refuses a database without them.
        with Server(home=home):
            pass
        store = Store.open(home / "cluster.db")
        fill(store, JOBS, all_finished=True)
        store.close()
        with Server("--keep-jobs", "1000000", home=home) as server:
            return [first_load(), list_request(server), *rows_on_screen(server), *log_rows(server)]


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


def rows_on_screen(server: Server) -> list[Row]:
    from support.browser import Browser, Page

    def load(page: Page, url: str) -> float:
        """Seconds from the navigation to the rows."""
        page.open("about:blank")
        page.open(url)
        return float(page.wait_for("window.shown")) / 1000

    cold, warm = [], []
    browser = Browser()
    try:
        for _ in range(RUNS):
            with browser.page() as page:
                page.send("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH_ROWS})
                link = server.call("POST", "/api/v2/authn/links")["url"]
                cold.append(load(page, link))
                warm.append(load(page, link.partition("#")[0] + "#/jobs"))
    finally:
        browser.close()
    return [
        limit_row(f"portal: list of {JOBS} jobs to rows, cold, with sign-in", cold, at_most=0.3, show=ms),
        limit_row(f"portal: list of {JOBS} jobs to rows, warm", warm, at_most=0.15, show=ms),
    ]


def log_rows(server: Server) -> list[Row]:
    """A long log in the page: from the navigation to its last line, and from Enter to a hit in its first."""
    from support.browser import Browser

    last = write_log(server, "long-log")
    log, field = "document.querySelector('.log')", "input[aria-label='Search the log']"
    ends, hits = [], []
    browser = Browser()
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
