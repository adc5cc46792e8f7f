"""Job list: filter in the address, order, pages, live rows, several stopped at once, hostile names."""

from __future__ import annotations

import json

import pytest

from support.browser import Page
from support.portal import NewPage
from support.server_fixture import eventually, job
from support.team_cluster import TeamCluster

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]

NAMES = "[...document.querySelectorAll('td.name > a:first-child')].map((e) => e.innerText)"


def test_new_job_and_its_states_appear_without_a_reload(page: Page, cluster: TeamCluster) -> None:
    page.wait_for_text("Jobs")
    page.evaluate("window.kept = true")
    cluster.submit(job("live-row", "while [ ! -e go ]; do sleep 0.05; done", gpu=1))
    page.wait_for_text("live-row")
    state = "document.querySelector('tr:has(a[title=live-row]) .state')?.innerText"
    page.wait_for(f"{state} === 'Running'")
    cluster.stop("live-row")
    page.wait_for(f"{state} === 'Stopped'")
    assert page.evaluate("window.kept") is True


def test_filter_is_in_the_address_and_can_be_shared(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.run(job("filter-good", "true"))
    cluster.run(job("filter-bad", "exit 1"))
    page = new_page()
    page.fill("input[type=search]", "filter-")
    page.wait_for("location.hash.includes('keyword=filter-')")
    page.wait_for(f"{NAMES}.join() === 'filter-bad,filter-good'")
    page.choose("select[aria-label='Virtual cluster']", "default")
    page.wait_for("location.hash.includes('vc=default')")
    page.choose("select[aria-label=State]", "FAILED")
    page.wait_for(f"{NAMES}.join() === 'filter-bad'")
    shared = page.address
    assert "keyword=filter-" in shared and "state=FAILED" in shared
    other = new_page("bob", at=shared.partition("#")[2])
    other.wait_for(f"{NAMES}.join() === 'filter-bad'")
    other.click("button", "My jobs")
    other.wait_for_text("No job matches")
    other.fill("input[aria-label=User]", "alice")
    other.press("Enter")
    other.wait_for(f"{NAMES}.join() === 'filter-bad'")
    cluster.ask("PUT", cluster.path("filter-good", "/tag"), {"value": "kept"})
    other.evaluate("location.hash = '#/jobs?keyword=filter-'")
    other.wait_for(f"{NAMES}.join() === 'filter-bad,filter-good'")
    other.fill("input[aria-label=Tag]", "kept")
    other.press("Enter")
    other.wait_for(f"{NAMES}.join() === 'filter-good'")
    other.fill("input[aria-label=Tag]", "absent")
    other.press("Enter")
    other.wait_for_text("No job matches")
    other.click("a", "Show all jobs")
    other.wait_for(f"{NAMES}.length > 1")


def test_order_and_pages(new_page: NewPage, cluster: TeamCluster) -> None:
    for number in range(52):
        cluster.submit(job(f"paged-{number:02}", "true"))
    page = new_page(at="/jobs?keyword=paged-")
    page.wait_for_text("1 to 50 of 52 jobs")
    page.wait_for(f"{NAMES}.length === 50")
    assert page.request_times(r"/jobs\?")[0] < page.request_times("/virtual-clusters$")[0]
    page.click("th button", "Name")
    page.wait_for(f"{NAMES}[0] === 'paged-00'")
    page.click("button", "Next")
    page.wait_for(f"{NAMES}.join() === 'paged-50,paged-51'")
    page.evaluate("history.back()")
    page.wait_for(f"{NAMES}[0] === 'paged-00'")
    page.click("th button", "Duration")
    page.wait_for("document.querySelector('th.c-duration').ariaSort === 'descending'")
    assert "order=duration" in page.address


def test_several_jobs_are_selected_and_stopped(new_page: NewPage, cluster: TeamCluster) -> None:
    for number in range(3):
        cluster.submit(job(f"many-{number}", "sleep 600"))
    page = new_page(at="/jobs?keyword=many-")
    page.wait_for(f"{NAMES}.length === 3")
    page.click("input[aria-label='Select many-0']")
    page.click("input[aria-label='Select many-2']")
    page.wait_for_text("2 jobs selected")
    page.click("button", "Stop")
    page.wait_for_text("Stop 2 jobs?")
    page.click("dialog button", "Stop")
    page.wait_for_text("2 jobs stopped.")
    for name in ("many-0", "many-2"):
        eventually(lambda name=name: cluster.status(name)["state"] == "STOPPED", name)
    assert cluster.status("many-1")["state"] in ("WAITING", "RUNNING")


def test_finished_job_is_compared_and_not_stopped(new_page: NewPage, cluster: TeamCluster) -> None:
    for number in range(3):
        cluster.submit(job(f"ends-{number}", "true", gpu=64))
    page = new_page(at="/jobs?keyword=ends-")
    page.wait_for(f"{NAMES}.length === 3")
    page.click("input[aria-label='Select ends-0']")
    page.wait_for_text("1 job selected")
    # With one selected, all others are added.
    page.click("thead input")
    page.wait_for_text("3 jobs selected")
    cluster.stop("ends-0")
    page.wait_for("document.querySelector('.jobs .state.STOPPED') !== null")
    compare = "decodeURIComponent(document.querySelector('.selected a').hash)"
    page.wait_for(f"['ends-0', 'ends-1', 'ends-2'].every((name) => {compare}.includes('alice~' + name))")
    page.click("button", "Stop")
    page.wait_for_text("Stop 2 jobs?")
    page.click("dialog button", "Stop")
    page.wait_for_text("2 jobs stopped.")


def test_waiting_job_shows_its_reason(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.submit(job("too-wide", "true", cpu=60, gpu=4))
    cluster.submit(job("waits-for-it", "true", gpu=64))
    page = new_page(at="/jobs?keyword=waits-for-it")
    page.wait_for("document.querySelector('td.name .reason')?.innerText.length > 10")


def test_text_of_users_is_never_markup(new_page: NewPage, cluster: TeamCluster) -> None:
    script = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
    cluster.submit(job("hostile", f"echo '{script}'; sleep 600"))
    cluster.ask("PUT", cluster.path("hostile", "/tag"), {"value": "<b>tag</b>"})
    cluster.wait_state("hostile", "RUNNING")
    page = new_page(at="/jobs?keyword=hostile")
    page.wait_for_text("<b>tag</b>")
    page.click("a", "hostile")
    page.wait_for_text("IP address")
    page.click("[role=tab]", "Log")
    page.wait_for_text(script)
    page.click("[role=tab]", "Configuration")
    page.wait_for_text("onerror")
    unhacked = "window.hacked === undefined && document.querySelector('img[src=x]') === null"
    assert page.evaluate(unhacked)
    # No job can have such a name, but a link can.
    assert cluster.submit(job(script, "true")).status == 400
    page.evaluate(f"location.hash = '#/jobs/' + encodeURIComponent({json.dumps('alice~' + script)})")
    page.wait_for("document.querySelector('.notice.bad')?.innerText.includes('onerror=window.hacked=1')")
    page.evaluate(f"location.hash = '#/jobs?keyword=' + encodeURIComponent({json.dumps(script)})")
    page.wait_for_text("No job matches")
    assert page.evaluate(unhacked)


def test_home_has_jobs_by_state_free_resources_and_failures(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.run(job("home-fails", "echo no data >&2; exit 3"))
    cluster.submit(job("home-waits", "true", gpu=64))
    cluster.submit(job("home-runs", "sleep 600", gpu=1))
    cluster.wait_state("home-runs", "RUNNING")
    page = new_page(at="/home")
    page.wait_for_text("home-runs")
    card = "document.querySelector('section[aria-labelledby=failed]').innerText"
    page.wait_for(f"{card}.includes('home-fails') && {card}.includes('Exit code 3: no data')")
    waiting = "document.querySelector('section[aria-labelledby=waiting]')?.innerText"
    page.wait_for(f"/home-waits[^]*nodes are available/.test({waiting})")
    for section in ("free", "nodes"):
        bars = f"document.querySelector('section[aria-labelledby={section}]').innerText"
        page.wait_for(f"/[0-3] of 4 free/.test({bars}) && / of 64 GB free/.test({bars})")
    page.click("a.tile")
    page.wait_for("location.hash.includes('user=alice&state=')")
    cluster.stop("home-runs")
    cluster.stop("home-waits")
