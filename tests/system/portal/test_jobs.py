"""Job list: filter in the address, order, pages, live rows, selections, hostile names."""

from __future__ import annotations

import json

import pytest

from support.browser import Page
from support.portal import NewPage
from support.server_fixture import eventually, job
from support.team_cluster import TeamCluster

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]

SHIFT = 8
# Lets three deletions through, and the others when `release()` is called.
HOLD_DELETIONS = """(() => { const send = window.fetch; let begun = 0;
  const released = new Promise((release) => { window.release = release; });
  window.fetch = async (address, init) => {
    if (init?.method === "DELETE" && ++begun > 3) await released;
    return send(address, init);
  }; })()"""
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
    page.click(".states button", "Failed")
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
    page.fill(".to-page input", "9")
    page.press("Enter")
    page.wait_for(f"location.hash.includes('page=2') && {NAMES}.length === 2")
    page.fill(".to-page input", "1")
    page.press("Tab")
    page.wait_for(f"!location.hash.includes('page=') && {NAMES}.length === 50")
    page.evaluate("location.hash = '#/jobs?keyword=paged-&page=7'")
    page.wait_for_text("The list has only 2 pages")
    page.click("button", "Show the last page")
    page.wait_for(f"{NAMES}.join() === 'paged-01,paged-00'")


def test_several_states_at_once(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.run(job("states-good", "true"))
    cluster.run(job("states-bad", "exit 1"))
    cluster.submit(job("states-waits", "true", gpu=64))
    page = new_page(at="/jobs?keyword=states-")
    page.wait_for(f"{NAMES}.length === 3")
    page.click(".states button", "Failed")
    page.wait_for(f"{NAMES}.join() === 'states-bad'")
    # By the keyboard, and in one order in the address.
    page.evaluate("[...document.querySelectorAll('.states button')].at(1).focus()")
    page.press(" ")
    page.wait_for(f"{NAMES}.join() === 'states-waits,states-bad'")
    assert "state=WAITING%2CFAILED" in page.address
    page.reload()
    page.wait_for(f"{NAMES}.join() === 'states-waits,states-bad'")
    pressed = "[...document.querySelectorAll('.states [aria-pressed=true]')].map((e) => e.innerText).join()"
    assert page.evaluate(pressed) == "Waiting,Failed"
    page.click(".states button", "Failed")
    page.wait_for(f"{NAMES}.join() === 'states-waits'")
    page.click(".states button", "All states")
    page.wait_for(f"{NAMES}.length === 3 && !location.hash.includes('state=')")
    cluster.stop("states-waits")


def test_rows_have_one_height_and_twenty_fit(new_page: NewPage, cluster: TeamCluster) -> None:
    for number in range(22):
        cluster.submit(job(f"rows-{number}", "true"))
    cluster.ask("PUT", cluster.path("rows-1", "/tag"), {"value": "a tag"})
    cluster.run(job("rows-fails", "echo the shape of the tensor does not match the layer >&2; exit 3"))
    page = new_page(at="/jobs?keyword=rows-", width=1280, height=800)
    page.wait_for(f"{NAMES}.length === 23 && document.querySelector('.jobs .reason') !== null")
    rows = "[...document.querySelectorAll('.jobs tbody tr')].map((e) => e.getBoundingClientRect())"
    assert page.evaluate(f"{rows}.filter((e) => e.bottom <= innerHeight).length") >= 20
    for width in (1920, 1280, 820, 390):
        page.resize(width, 800)
        page.wait_for(f"innerWidth === {width}")
        assert page.evaluate(f"new Set({rows}.map((e) => Math.round(e.height))).size") == 1, width


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


@pytest.fixture(scope="module", name="ended")
def ended_jobs(cluster: TeamCluster) -> list[str]:
    """Finished jobs, the newest first, as they are listed."""
    names = [cluster.accept(job(f"ended-{number}", "true")) for number in range(8)]
    for name in names:
        cluster.wait_over(name)
    return names[::-1]


SELECTED = "[...document.querySelectorAll('tr.is-selected td.name > a:first-child')].map((e) => e.innerText)"


def test_ranges_are_selected_by_mouse_and_keyboard(new_page: NewPage, ended: list[str]) -> None:
    page = new_page(at="/jobs?keyword=ended-&order=submissionTime,DESC")
    page.click(f"input[aria-label='Select {ended[1]}']")
    page.click(f"input[aria-label='Select {ended[4]}']", modifiers=SHIFT)
    page.wait_for(f"{SELECTED}.join() === '{','.join(ended[1:5])}'")
    page.click(f"input[aria-label='Select {ended[3]}']", modifiers=SHIFT)
    page.wait_for(f"{SELECTED}.join() === '{','.join(ended[1:3])}'")
    page.press("Escape")
    page.wait_for(f"{SELECTED}.length === 0")
    # The focus stays in the list.
    page.press("ArrowUp", modifiers=SHIFT)
    page.wait_for(f"{SELECTED}.join() === '{','.join(ended[2:4])}'")
    for _ in range(2):
        page.press("ArrowUp")
    page.press(" ", modifiers=SHIFT)
    page.wait_for(f"{SELECTED}.join() === '{','.join(ended[:4])}'")
    page.press("Enter")
    page.wait_for("document.activeElement.innerText === 'Compare'")


def test_selection_of_several_pages_and_of_a_filter_survives_back(
    new_page: NewPage, cluster: TeamCluster
) -> None:
    for number in range(53):
        cluster.submit(job(f"chosen-{number:02}", "true"))
    page = new_page(at="/jobs?keyword=chosen-")
    page.wait_for(f"{NAMES}.length === 50")
    page.click("input[aria-label='Select chosen-52']")
    page.click("button", "Next")
    page.click("input[aria-label='Select chosen-01']")
    page.wait_for_text("2 jobs selected")
    page.click("a", "chosen-00")
    page.wait_for("document.querySelector('h1').innerText === 'chosen-00'")
    page.evaluate("history.back()")
    page.wait_for_text("2 jobs selected")
    page.evaluate("history.back()")
    page.wait_for(f"{SELECTED}.join() === 'chosen-52'")
    page.click("thead input")
    page.wait_for_text("51 jobs selected")
    page.click("button", "Select all 53")
    page.wait_for_text("53 jobs selected")
    page.click("button", "Clear")
    page.wait_for(f"{SELECTED}.length === 0")


def test_selected_jobs_are_tagged_and_resubmitted(
    new_page: NewPage, cluster: TeamCluster, ended: list[str]
) -> None:
    cluster.ask("PUT", cluster.path(ended[0], "/tag"), {"value": "kept"})
    page = new_page(at="/jobs?keyword=ended-")
    page.click(f"input[aria-label='Select {ended[0]}']")
    page.click(f"input[aria-label='Select {ended[1]}']")
    page.click("button", "Tag")
    page.fill("dialog [name=tag]", "good")
    page.click("dialog button", "Tag")
    page.wait_for_text("2 jobs changed.")
    eventually(lambda: "good" in cluster.detail(ended[1])["tags"], "the tag")
    assert sorted(cluster.detail(ended[0])["tags"]) == ["good", "kept"]
    page.click("button", "Tag")
    page.click("dialog label", "Remove")
    page.fill("dialog [name=tag]", "kept")
    page.click("dialog button", "Tag")
    page.wait_for_text("1 job changed. 1 job had nothing to change.")
    page.wait_for_text(f"{ended[1]}: it has no tag kept.")
    assert cluster.detail(ended[0])["tags"] == ["good"]
    page.click("dialog button", "Close")
    page.click("button", "Resubmit")
    page.wait_for_text("Resubmit 2 jobs?")
    page.click("dialog button", "Resubmit")
    page.wait_for_text("2 jobs resubmitted.")
    copies = "[...document.querySelectorAll('dialog li a:last-child')].map((e) => e.innerText)"
    for old, copy in zip(ended[:2], page.evaluate(copies), strict=True):
        assert copy.startswith(f"{old}_")
        assert cluster.wait_over(copy)["state"] == "SUCCEEDED"
    page.click("dialog button", "Close")
    page.wait_for(f"{SELECTED}.length === 0")


def test_deletion_says_what_became_of_each_job(new_page: NewPage, cluster: TeamCluster) -> None:
    """One job is another user's, one still runs, one needs a secret."""
    for name in ("gone-1", "gone-2"):
        cluster.run(job(name, "true"))
    secret = job("gone-secret", "echo <% $secrets.key %>")
    secret["secrets"] = {"key": "hidden"}
    cluster.run(secret)
    other = cluster.submit(job("gone-other", "true"), token=cluster.tokens["bob"])
    assert other.status == 202
    cluster.submit(job("gone-runs", "sleep 600"))
    page = new_page(at="/jobs?keyword=gone-")
    page.wait_for(f"{NAMES}.length === 5")
    page.wait_for("document.querySelectorAll('.jobs .state.SUCCEEDED').length === 4")
    page.click("input[aria-label='Select gone-secret']")
    page.click("button", "Resubmit")
    page.click("dialog button", "Resubmit")
    page.wait_for_text("1 job not resubmitted.")
    page.wait_for_text("gone-secret: It needs the values of key again.")
    page.click("dialog button", "Close")
    page.click("thead input")
    page.wait_for_text("5 jobs selected")
    page.click("button", "Delete")
    page.wait_for_text("Delete 4 jobs?")
    page.wait_for_text("1 selected job is not finished yet (only ended jobs can be deleted).")
    page.click("dialog button", "Cancel")
    page.wait_for("document.querySelector('dialog') === null")
    assert cluster.detail("gone-1")
    page.click("button", "Delete")
    page.click("dialog button", "Delete")
    page.wait_for_text("3 jobs deleted. 1 job not deleted.")
    page.wait_for("document.querySelector('dialog li').innerText.startsWith('bob~gone-other: ')")
    page.wait_for_text("Try 1 job again")
    page.click("dialog button", "Close")
    page.wait_for_text("2 jobs selected")
    page.wait_for(f"{NAMES}.join() === 'gone-runs,gone-other'")
    assert cluster.get(cluster.path("gone-1")).status == 404
    cluster.stop("gone-runs")


def test_deletion_of_many_jobs_can_be_left_unfinished(new_page: NewPage, cluster: TeamCluster) -> None:
    names = [cluster.accept(job(f"many-ended-{number}", "true")) for number in range(20)]
    for name in names:
        cluster.wait_over(name)
    page = new_page(at="/jobs?keyword=many-ended-")
    page.wait_for("document.querySelectorAll('.jobs .state.SUCCEEDED').length === 20")
    page.click("thead input")
    page.evaluate(HOLD_DELETIONS)
    page.click("button", "Delete")
    page.click("dialog button", "Delete")
    page.wait_for_text("3 of 20 jobs …")
    page.click("dialog button", "Leave out the rest")
    page.evaluate("window.release()")
    page.wait_for_text("8 jobs deleted. 12 jobs not tried.")
    page.click("dialog button", "Try 12 jobs again")
    page.wait_for_text("20 jobs deleted.")
    page.wait_for("document.querySelector('dialog') === null")
    page.wait_for_text("No job matches")


def test_columns_are_chosen_and_kept_with_the_user(new_page: NewPage, cluster: TeamCluster) -> None:
    log = r'echo "{\"step\": 1, \"values\": {\"val/loss\": 0.25}}" >> $PAI_METRICS_FILE'
    cluster.run(job("column-1", log, parameters={"lr": 0.01}))
    swept = job("column-2", log.replace("0.25", "0.$((PAI_TASK_INDEX + 1))"), instances=2)
    swept["extras"] = {"gangAllocation": False, "openpaisdk": {"array": {"lr": ["0.1", "0.2"]}}}
    cluster.run(swept)
    page = new_page("bob", at="/jobs?keyword=column-")
    heads = "[...document.querySelectorAll('.jobs th')].slice(1).map((e) => e.innerText).join()"
    page.wait_for(f"{NAMES}.length === 2")
    default = page.evaluate(heads)
    page.click("button", "Columns")
    for name in ("User", "Virtual cluster", "Priority", "GPUs", "Submitted", "Retries"):
        page.click(f"dialog button[aria-label='Remove {name}']")
    for column in ("metric.val/loss.last", "metric.val/loss.min", "parameter.lr", "exit"):
        page.choose("select[aria-label='Add a column']", column)
    page.click("dialog button[aria-label='Move val/loss up']")
    page.wait_for_text("val/loss is column 4 of 8.")
    page.click("dialog button", "Save")
    wanted = "Name,State,Tasks,val/loss,Duration,val/loss min,lr,Exit code"
    page.wait_for(f"{heads} === '{wanted}'")
    cells = "[...document.querySelectorAll('.jobs tbody tr')].map((row) => [...row.children].slice(2))"
    texts = f"{cells}.map((row) => row.map((e) => e.innerText).toSpliced(3, 1).join()).join(';')"
    expected = "Succeeded,2,0.1 … 0.2,0.1,0.1, 0.2,0;Succeeded,1,0.25,0.25,0.01,0"
    page.wait_for(f"{texts} === '{expected}'")
    # In another browser of the user, and in no one else's.
    other = new_page("bob", at="/jobs?keyword=column-")
    other.wait_for(f"{heads} === '{wanted}' && {texts} === '{expected}'")
    # Their heads sort all pages.
    other.click("th button", "val/loss min")
    other.wait_for(f"{NAMES}.join() === 'column-1,column-2'")
    assert "order=metric.val" in other.address
    other.click("th button", "lr")
    other.wait_for(f"location.hash.includes('parameter.lr') && {NAMES}.join() === 'column-1,column-2'")
    other.click("th button", "lr ↑")
    other.wait_for(f"{NAMES}.join() === 'column-2,column-1'")
    alice = new_page(at="/jobs?keyword=column-")
    alice.wait_for(f"{NAMES}.length === 2")
    assert alice.evaluate(heads) == default
    other.click("button", "Columns")
    other.click("dialog button", "Default columns")
    other.click("dialog button", "Save")
    other.evaluate("location.hash = '#/jobs?keyword=column-'")
    other.wait_for(f"{heads} === {json.dumps(default)}")


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
    partly = {"gangAllocation": False}
    partly_failed = job("home-partly", 'exit "$PAI_TASK_INDEX"', instances=2, extras=partly)
    partly_failed["taskRoles"]["main"]["completion"] = {"minFailedInstances": -1, "minSucceededInstances": -1}
    assert cluster.run(partly_failed)["state"] == "SUCCEEDED"
    page = new_page(at="/jobs?keyword=home-partly")
    page.wait_for_text("1 of 2 tasks failed")
    page = new_page(at="/home")
    page.wait_for_text("home-runs")
    card = "document.querySelector('section[aria-labelledby=failed]').innerText"
    page.wait_for(f"{card}.includes('home-fails') && {card}.includes('Exit code 3: no data')")
    page.wait_for(f"/home-partly[^]*1 of 2 tasks failed/.test({card})")
    waiting = "document.querySelector('section[aria-labelledby=waiting]')?.innerText"
    page.wait_for(f"/home-waits[^]*nodes are available/.test({waiting})")
    for section in ("free", "nodes"):
        bars = f"document.querySelector('section[aria-labelledby={section}]').innerText"
        page.wait_for(f"/[1-4] of 4 used/.test({bars}) && / of 64 GB used/.test({bars})")
    page.click("a.tile")
    page.wait_for("location.hash.includes('user=alice&state=')")
    cluster.stop("home-runs")
    cluster.stop("home-waits")
