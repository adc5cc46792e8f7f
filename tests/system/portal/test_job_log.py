"""The log on the job page: live, long, searched, with line numbers, time stamps and colours."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

from pairuntime.local_files.log_times_format import ENTRY_BYTES, header
from support.paths import REPOSITORY
from support.portal import LOG, NewPage
from support.server_fixture import job
from support.team_cluster import TeamCluster

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]


def test_log_is_followed_searched_and_downloaded(new_page: NewPage, cluster: TeamCluster) -> None:
    says = "seq -f 'line %g' 1 3000; echo a warning >&2; until [ -e more ]; do sleep 0.05; done"
    cluster.submit(job("talks", f"{says}; echo the needle; sleep 600"))
    page = new_page(at="/jobs/alice~talks?tab=log")
    page.wait_for(f"{LOG}?.textContent.includes('line 3000')")
    at_end = f"{LOG}.scrollHeight - {LOG}.scrollTop - {LOG}.clientHeight < 30"
    page.wait_for(at_end)
    uid = cluster.detail("talks")["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
    (cluster.home / "tasks" / uid[:2] / uid / "work" / "more").touch()
    page.wait_for(f"{LOG}.textContent.includes('the needle')")
    page.wait_for(at_end)
    page.fill("input[aria-label='Search the log']", "line 29")
    page.wait_for_text("111 of 111")
    page.press("Enter")
    page.wait_for_text("1 of 111")
    page.fill("input[aria-label='Search the log']", "absent")
    page.wait_for_text("Not found")
    page.choose("select[aria-label=Stream]", "stderr")
    page.wait_for(f"{LOG}.textContent === 'a warning\\n'")
    page.choose("select[aria-label=Stream]", "stdout")
    page.wait_for(f"{LOG}.textContent.endsWith('line 3000\\nthe needle\\n')")
    wraps = f"getComputedStyle({LOG}.firstElementChild ?? {LOG}).whiteSpace.includes('wrap')"
    assert not page.evaluate(wraps)
    page.click("label", "Wrap lines")
    page.wait_for(wraps)
    page.evaluate("HTMLAnchorElement.prototype.click = function () { window.link = this; }")
    page.click("button", "Download")
    link = page.wait_for("window.link && window.link.href")
    header = f"fetch({json.dumps(link)}).then((r) => r.headers.get('content-disposition'))"
    assert page.evaluate(header) == 'attachment; filename="talks-main-0-attempt-1-stdout.log"'
    assert page.evaluate("window.link.download") == ""
    fetched = page.evaluate(f"fetch({json.dumps(link)}).then((r) => r.text())")
    assert fetched.startswith("line 1\n") and fetched.endswith("the needle\n")


def test_earlier_output_of_a_long_log_is_loaded_on_request(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.run(job("long", "seq -f 'number %g of a long log' 1 20000"))
    page = new_page(at="/jobs/alice~long?tab=log")
    page.wait_for(f"{LOG}?.textContent.includes('number 20000 ')")
    assert page.evaluate(f"{LOG}.textContent.includes('number 15001 ')")
    assert not page.evaluate(f"{LOG}.textContent.includes('number 15000 ')")
    page.click("button", "Show earlier output")
    page.wait_for(f"{LOG}.textContent.includes('number 1 of')")
    text = page.evaluate(f"{LOG}.textContent")
    assert text == "".join(f"number {n} of a long log\n" for n in range(1, 20001))


def test_start_and_end_of_a_long_log_are_shown_at_once(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.run(job("longer", "seq -f 'number %g of a longer log' 1 100000"))
    page = new_page(at="/jobs/alice~longer?tab=log")
    page.wait_for(f"{LOG}?.textContent.includes('number 100000 ')")
    page.click("button", "Go to the start")
    page.wait_for(f"{LOG}.textContent.startsWith('number 1 of') && {LOG}.scrollTop === 0")
    assert not page.evaluate(f"{LOG}.textContent.includes('number 100000 ')")
    page.click("button", "Go to the end")
    page.wait_for(f"{LOG}.textContent.includes('number 100000 ')")


def test_lines_of_a_log_have_numbers_and_links(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.run(job("numbered", "seq -f 'line %g of a log with numbers' 1 100000"))
    page = new_page(at="/jobs/alice~numbered?tab=log")
    # Where the log begins is not known to its end.
    page.wait_for(f"{LOG}?.textContent.includes('line 100000 ')")
    assert page.evaluate(f"{LOG}.querySelector('[data-numbers]') === null")
    page.fill("input[aria-label='Go to line']", "54321")
    page.press("Enter")
    page.wait_for("location.hash.endsWith('&line=54321')")
    marked = "[...CSS.highlights.get('line') ?? []].join()"
    page.wait_for(f"{marked} === 'line 54321 of a log with numbers'")
    # In the middle of what is shown.
    page.wait_for(f"{LOG}.scrollTop > 54000 * 20 && {LOG}.scrollTop < 55000 * 20")
    first = page.evaluate(f"{LOG}.querySelector('[data-numbers]').dataset.numbers.split('\\n')[0]")
    assert first == "1"
    # A click on a number makes the address a link to its line.
    number = f"[...{LOG}.querySelectorAll('.block')].find((one) => one.dataset.first === '1')"
    page.evaluate(f"{LOG}.scrollTop = 0")
    x, y = page.wait_for(
        f"(() => {{ const r = {number}.getBoundingClientRect(); return r.height > 100 && [r.x, r.y]; }})()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        event = {"type": kind, "x": x + 20, "y": y + 2 * 20 + 10, "button": "left", "clickCount": 1}
        page.send("Input.dispatchMouseEvent", event)
    page.wait_for("location.hash.endsWith('&line=3')")
    page.wait_for(f"{marked} === 'line 3 of a log with numbers'")
    page.reload()
    page.wait_for(f"{marked} === 'line 3 of a log with numbers'")
    page.fill("input[aria-label='Go to line']", "100001")
    page.press("Enter")
    page.wait_for_text("The log has no line 100001.")


def folder_of(cluster: TeamCluster, name: str) -> Path:
    """Attempt folder of the task of a job."""
    uid: str = cluster.detail(name)["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
    return cluster.home / "tasks" / uid[:2] / uid


TIMES = f"[...{LOG}.querySelectorAll('[data-times]')].flatMap((one) => one.dataset.times.split('\\n'))"


def test_lines_of_a_followed_log_have_time_stamps_on_request(new_page: NewPage, cluster: TeamCluster) -> None:
    commands = [r"printf 'first\nsecond\n'", "sleep 4", "echo third", "until [ -e go ]; do sleep 0.1; done"]
    cluster.submit(job("stamped", *commands, "echo fourth"))
    page = new_page(at="/jobs/alice~stamped?tab=log")
    page.wait_for(f"{LOG}?.textContent === 'first\\nsecond\\nthird\\n'")
    assert page.evaluate(f"{TIMES}.length") == 0
    page.click("label", "Time stamps")
    first, second, third = page.wait_for(f"{TIMES}.length === 3 && {TIMES}")
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", one) for one in (first, second, third))
    assert first == second != third
    # They stand beside the text, not in it, and are shown.
    assert page.evaluate(f"{LOG}.textContent") == "first\nsecond\nthird\n"
    block = f"{LOG}.querySelector('[data-times]')"
    shown = page.evaluate(f"getComputedStyle({block}, '::after').content")
    assert first in shown and third in shown
    assert page.evaluate(f"parseFloat(getComputedStyle({block}).paddingLeft)") > 100
    (folder_of(cluster, "stamped") / "work" / "go").touch()
    page.wait_for(f"{TIMES}.length === 4")
    # The choice stays; wrapped lines have none, and the page says so.
    page.reload()
    page.wait_for(f"{TIMES}.length === 4")
    page.click("label", "Wrap lines")
    page.wait_for_text("Lines that are wrapped have no time stamps.")
    page.click("label", "Wrap lines")
    page.click("label", "Time stamps")
    page.wait_for(f"getComputedStyle({block}, '::after').content === 'none'")


def test_log_without_time_stamps_says_so(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.run(job("unstamped", "echo first"))
    (folder_of(cluster, "unstamped") / "log-times").unlink()
    page = new_page(at="/jobs/alice~unstamped?tab=log")
    page.wait_for(f"{LOG}?.textContent === 'first\\n'")
    page.click("label", "Time stamps")
    page.wait_for_text("This log has no time stamps: the cluster did not record them when it was written.")
    assert page.evaluate(f"{TIMES}.length") == 0


def test_time_stamps_of_a_log_that_was_written_for_many_hours_say_how_exact_they_are(
    new_page: NewPage, cluster: TeamCluster
) -> None:
    cluster.run(job("thinned", "echo first"))
    times = folder_of(cluster, "thinned") / "log-times"
    times.write_bytes(header(16_000) + times.read_bytes()[ENTRY_BYTES:])
    page = new_page(at="/jobs/alice~thinned?tab=log")
    page.wait_for(f"{LOG}?.textContent === 'first\\n'")
    page.click("label", "Time stamps")
    page.wait_for_text("Time stamps are exact to about 16 s")
    assert page.evaluate(f"{TIMES}.length") == 1


def test_progress_bars_are_shown_as_their_last_text_and_colours_as_colours(
    new_page: NewPage, cluster: TeamCluster
) -> None:
    cluster.run(job("colours", r"printf '\033[31mre\033[1md\033[0m\n10%%\r50%%\r100%%\nend\n'"))
    page = new_page(at="/jobs/alice~colours?tab=log")
    page.wait_for(f"{LOG}?.textContent === 'red\\n100%\\nend\\n'")
    piece = "document.querySelector('.log .sgr-red.sgr-bold')"
    assert page.evaluate(f"{piece}.textContent") == "d"
    assert page.evaluate(f"getComputedStyle({piece}).color !== getComputedStyle({LOG}).color")
    # A text is found whatever its colours.
    page.fill("input[aria-label='Search the log']", "red")
    page.wait_for_text("1 of 1")


def test_no_escape_sequence_hides_a_line_of_the_log(new_page: NewPage, cluster: TeamCluster) -> None:
    table = REPOSITORY / "tests/paiprotocol/jobs/escape_sequences.json"
    cases = json.loads(table.read_text())
    raw = base64.b64encode("end\n".join(case["raw"] for case in cases).encode()).decode()
    cluster.run(job("escapes", f"echo {raw} | base64 -d"))
    page = new_page(at="/jobs/alice~escapes?tab=log")
    page.wait_for(f"{LOG}?.textContent.endsWith('31mb\\n')")
    assert page.evaluate(f"{LOG}.textContent") == "end\n".join(case["shown"] for case in cases)


def test_log_of_an_earlier_attempt_of_a_task(new_page: NewPage, cluster: TeamCluster) -> None:
    says = "echo try $FC_TASK_ATTEMPT_ID; [ $FC_TASK_ATTEMPT_ID = 1 ]"
    again = job("task-again", says, extras={"gangAllocation": False})
    again["taskRoles"]["main"]["taskRetryCount"] = 1
    cluster.run(again)
    page = new_page(at="/jobs/alice~task-again?tab=log")
    page.wait_for(f"{LOG}?.textContent === 'try 1\\n'")
    page.choose("select[aria-label='Attempt of the task']", "0")
    page.wait_for(f"{LOG}?.textContent === 'try 0\\n'")
    page.fill("input[aria-label='Search the log']", "try 0")
    page.wait_for_text("1 of 1")


def test_search_finds_what_is_not_shown_in_a_long_log(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.run(job("searched", "seq -f 'number %g of a very long log' 1 100000"))
    page = new_page(at="/jobs/alice~searched?tab=log")
    page.wait_for(f"{LOG}?.textContent.includes('number 100000 ')")
    field = "input[aria-label='Search the log']"
    page.fill(field, "number 7777 of")
    page.wait_for_text("Enter searches the whole log.")
    page.press("Enter")
    page.wait_for_text("1 of 1 shown")
    shown = "CSS.highlights.get('current').values().next().value"
    assert page.evaluate(f"{shown}.toString()") == "number 7777 of"
    page.wait_for(
        f"(() => {{ const at = {shown}.getBoundingClientRect(), box = {LOG}.getBoundingClientRect();"
        " return at.top >= box.top && at.bottom <= box.bottom; })()"
    )
    assert not page.evaluate(f"{LOG}.textContent.includes('number 100000 ')")
    text = page.evaluate(f"{LOG}.textContent").splitlines()
    first = int(text[0].split()[1])
    assert text[:-1] == [f"number {first + n} of a very long log" for n in range(len(text) - 1)]
    page.fill(field, "number 99999 of")
    page.press("Enter")
    page.wait_for(f"{LOG}.textContent.includes('number 99999 ')")
    page.fill(field, "number 5 of")
    page.click("button", "Previous match")
    page.wait_for(f"{LOG}.textContent.includes('number 5 of')")
    page.fill(field, "absent")
    page.press("Enter")
    page.wait_for_text("Not found in the whole log")
    page.click("button", "Show later output")
    page.click("button", "Go to the end")
    page.wait_for(f"{LOG}.textContent.includes('number 100000 ')")
