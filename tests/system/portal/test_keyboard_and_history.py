"""Keyboard shortcuts of all pages, and what Back restores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.portal import NewPage
from support.server_fixture import job
from support.team_cluster import TeamCluster

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]

HEADING = "document.querySelector('h1')?.innerText"
FOCUSED = "document.activeElement?.ariaLabel"


@pytest.fixture(scope="module", name="waiting")
def waiting_jobs(cluster: TeamCluster) -> Iterator[list[str]]:
    names = [cluster.accept(job(f"waits-{number}", "true", gpu=64)) for number in range(8)]
    yield names
    for name in names:
        cluster.stop(name)


def test_shortcuts_open_pages_search_and_help(new_page: NewPage, axe: str) -> None:
    page = new_page(at="/profile")
    page.wait_for(f"{HEADING} === 'Profile'")
    for key in "gh":
        page.press(key)
    page.wait_for(f"{HEADING} === 'Home'")
    # The page has no search of its own.
    page.press("/")
    page.wait_for(f"{HEADING} === 'Jobs' && {FOCUSED} === 'Search jobs'")
    # In a field keys are text.
    for key in "g?/":
        page.press(key)
    page.insert("gh")
    page.wait_for("location.hash.includes('keyword=gh')")
    assert page.evaluate("document.querySelector('dialog') === null")
    page.evaluate("document.activeElement.blur()")
    page.press("?")
    page.wait_for_text("search, or filter, what the page shows")
    assert "Admin" not in page.evaluate("document.querySelector('dialog').innerText")
    version = page.wait_for("document.querySelector('.version').innerText")
    page.wait_for_text(f"Version {version} of the cluster.")
    page.press("Escape")
    page.wait_for("document.querySelector('dialog') === null")
    page.click("button", "Help")
    page.wait_for("document.querySelector('dialog[open]') !== null")


def test_back_undoes_tabs_and_filters(new_page: NewPage, waiting: list[str]) -> None:
    page = new_page(at="/jobs")
    page.click(".states button", "Waiting")
    page.wait_for("location.hash === '#/jobs?state=WAITING'")
    page.click("a", waiting[0])
    page.click("[role=tab]", "Log")
    page.wait_for("location.hash.endsWith('?tab=log')")
    selected = "document.querySelector('[aria-selected=true]')?.innerText"
    page.evaluate("history.back()")
    page.wait_for(f"{selected} === 'Tasks'")
    page.evaluate("history.back()")
    pressed = "document.querySelector('.states [aria-pressed=true]')?.innerText"
    page.wait_for(f"{pressed} === 'Waiting'")
    page.evaluate("history.back()")
    page.wait_for(f"{pressed} === 'All states'")


def test_back_restores_scroll_and_selection(new_page: NewPage, waiting: list[str]) -> None:
    page = new_page(at="/jobs", height=300)
    page.click(f"input[aria-label='Select {waiting[0]}']")
    page.wait_for_text("1 job selected")
    page.evaluate("scrollTo(0, 150)")
    page.wait_for("history.state?.scroll === 150")
    page.evaluate(f"document.querySelector('a[title={waiting[1]}]').click()")
    page.wait_for(f"{HEADING} === {waiting[1]!r} && scrollY === 0")
    page.evaluate("history.back()")
    page.wait_for(f"{HEADING} === 'Jobs' && scrollY === 150")
    page.wait_for_text("1 job selected")
    # Another list is another entry.
    page.click(".states button", "Waiting")
    page.wait_for("!document.body.innerText.includes('1 job selected')")
