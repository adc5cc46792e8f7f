"""Web portal: size of the first load, and the job list of a long history in a real Chromium."""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
import time
from pathlib import Path

from bench.server import Server
from bench.store import fill
from bench.table import Row, limit_row, ms, sized, skipped_row
from paicluster.api.portal.bundle import FOLDER
from paicluster.store import Store

JOBS = sized(100_000, 500)
RUNS = sized(7, 1)
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
    with tempfile.TemporaryDirectory(prefix="pai-bench-") as folder:
        home = Path(folder)
        # The first start creates the key files; a server refuses a database without them.
        with Server(home=home):
            pass
        store = Store.open(home / "cluster.db")
        fill(store, JOBS, all_finished=True)
        store.close()
        with Server("--keep-jobs", "1000000", home=home) as server:
            return [first_load(), list_request(server), *rows_on_screen(server)]


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
    # The driver of Chromium is the tests'.
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
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
