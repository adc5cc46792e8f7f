"""Job page: reason, tasks, terminal, attempts, restart of the server, clone, delete."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import yaml

from openpaisdk.jobs.job_options import JobOptions
from openpaisdk.jobs.pre_commands import PreCommands
from support.browser import Browser
from support.portal import HOLD_PARTS, LOG, NewPage, sign_in, terminal_variables, type_in_terminal, url_of
from support.server_fixture import eventually, job
from support.team_cluster import MACHINE, TeamCluster, add_users

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("portal")]

SCREEN = "document.querySelector('.xterm-rows')?.innerText.replaceAll('\\u00a0', ' ')"


def test_address_of_openpai_leads_to_the_page(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.run(job("linked", "true"))
    page = new_page()
    page.open(f"{url_of(cluster)}/job-detail.html?username=alice&jobName=linked")
    page.wait_for("document.querySelector('h1')?.innerText === 'linked'")
    page.open(f"{url_of(cluster)}/job-list.html?status=Succeeded&user=alice&keyword=link&vcName=default")
    page.wait_for("document.querySelector('tr:has(a[title=linked])') !== null")
    pressed = "[...document.querySelectorAll('.states [aria-pressed=true]')].map((e) => e.innerText).join()"
    assert page.evaluate(pressed) == "Succeeded"
    shown = "document.querySelector('[aria-label=\"{}\"]').value"
    filters = [page.evaluate(shown.format(name)) for name in ("User", "Search jobs", "Virtual cluster")]
    assert filters == ["alice", "link", "default"]
    page.open(f"{url_of(cluster)}/submit.html?op=resubmit&type=job&user=alice&jobname=linked")
    editor = "document.querySelector('.editor')?.shadowRoot?.querySelector('.cm-content')?.innerText ?? ''"
    page.wait_for(f"({editor}).includes('linked')")
    page.open(f"{url_of(cluster)}/cluster-view/hardware.html")
    page.wait_for("document.querySelector('h1')?.innerText === 'Cluster'")


def test_failure_is_explained_and_leads_to_the_log(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.run(job("breaks", "echo a clue; exit 3"))
    page = new_page(at="/jobs/alice~breaks")
    page.wait_for_text("The job's commands failed")
    page.wait_for_text("Exit code\n3 (reported as 255)")
    # As in the list of jobs.
    page.wait_for_text("Exit code 3: a clue")
    # It is over: there is no next attempt to wait for.
    assert "next attempt" not in page.text
    page.click("button", "Read its log")
    page.wait_for(f"{LOG}?.innerText.includes('a clue')")


def test_cause_that_no_task_has_is_shown(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.run(job("first-fails", "exit 5"))
    cluster.run(job("second-waits", "true", extras={"openpaisdk": {"after": [{"job": "first-fails"}]}}))
    page = new_page(at="/jobs/alice~second-waits")
    page.wait_for_text("The job alice~first-fails that it depends on ended as FAILED: Exit code 5.")


def test_debug_hold_is_shown_and_ended(new_page: NewPage, cluster: TeamCluster) -> None:
    hold = PreCommands(JobOptions("job", [], debug_hold_s=3000)).pre_commands()
    cluster.submit(job("held", *hold, "echo a clue; exit 3"))
    page = new_page(at="/jobs/alice~held")
    page.wait_for_text("Task main[0] failed with exit code 3 and is held for inspection until")
    page.click("button", "Open a terminal")
    page.wait_for_text("Connected")
    other = new_page("bob", at="/jobs/alice~held")
    other.wait_for_text("is held for inspection until")
    assert "end the hold" not in other.text
    page.click("button", "end the hold")
    page.wait_for_text("Exit code\n3 (reported as 255)")
    assert "held for inspection" not in page.text
    assert cluster.wait_state("held", "FAILED")


def test_arrow_keys_move_through_the_tabs_past_the_terminal(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.submit(job("tabbed", "sleep 600"))
    cluster.wait_state("tabbed", "RUNNING")
    page = new_page(at="/jobs/alice~tabbed?tab=log")
    page.wait_for("document.querySelector('#tab-log') !== null")
    page.evaluate("document.querySelector('#tab-log').focus()")
    focused = "document.activeElement?.id"
    for key, tab in (("ArrowRight", "terminal"), ("ArrowRight", "apps"), ("ArrowLeft", "terminal")):
        page.press(key)
        page.wait_for(f"{focused} === 'tab-{tab}' && document.activeElement.ariaSelected === 'true'")
    page.wait_for_text("Connected")
    assert page.evaluate(focused) == "tab-terminal"
    for key, tab in (("End", "commands"), ("Home", "tasks"), ("ArrowLeft", "commands")):
        page.press(key)
        page.wait_for(f"{focused} === 'tab-{tab}'")
    cluster.stop("tabbed")


def test_table_of_tasks_with_many_ports_fits(new_page: NewPage, cluster: TeamCluster) -> None:
    ports = {f"a_port_with_a_long_name_{number}": 3 for number in range(6)}
    cluster.submit(job("ported", "sleep 600", ports=ports))
    cluster.wait_state("ported", "RUNNING")
    page = new_page(at="/jobs/alice~ported", width=1280)
    page.wait_for_text("a_port_with_a_long_name_0")
    table = "document.querySelector('.virtual')"
    assert page.evaluate(f"{table}.scrollWidth <= {table}.clientWidth")
    # At phone width the table scrolls below its first column and its links.
    page.resize(390, 900)
    page.wait_for("innerWidth === 390")
    page.evaluate(f"{table}.scrollLeft = 150")
    for column in (".c-task", ".c-log"):
        x = page.evaluate(f"document.querySelector('td{column}').getBoundingClientRect().x")
        assert 0 < x < 390, column
    cluster.stop("ported")


def test_table_of_many_tasks_has_few_rows_in_the_page(new_page: NewPage, cluster: TeamCluster) -> None:
    array = {"extras": {"gangAllocation": False}}
    cluster.submit(job("wide", "sleep 600", instances=1500, cpu=30, **array))
    cluster.wait_state("wide", "RUNNING")
    page = new_page(at="/jobs/alice~wide")
    page.wait_for_text("main[0]")
    assert page.evaluate("document.querySelectorAll('.virtual tbody tr').length") < 100
    # Its detail is large: it is loaded once, and again ten seconds later.
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    first, *later = page.request_times("/jobs/alice~wide$")
    assert all(time_s - first > 5 for time_s in later)
    page.evaluate("document.querySelector('.virtual').scrollTop = 1e9")
    page.wait_for_text("main[1499]")
    page.wait_for("!document.body.innerText.includes('main[0]')")
    page.click("button", "Running 2")
    page.wait_for("document.querySelectorAll('.virtual tbody tr').length === 2")
    cluster.stop("wide")


def test_values_of_an_array_are_columns_of_its_tasks(new_page: NewPage, cluster: TeamCluster) -> None:
    for name, ours, rows in (
        ("grid", {"array": {"lr": ["0.1", "0.01"], "seed": ["7", "8"]}}, [["0.1", "8"], ["0.01", "7"]]),
        ("rows", {"arrayRows": {"lr": ["1", "2", "3", "4"], "text": list("abcd")}}, [["2", "b"], ["3", "c"]]),
    ):
        extras = {"gangAllocation": False, "openpaisdk": ours}
        cluster.submit(job(f"swept-{name}", "sleep 600", instances=4, extras=extras))
        page = new_page(at=f"/jobs/alice~swept-{name}", width=1280)
        page.wait_for("document.querySelectorAll('.virtual td.c-value').length === 8")
        cells = "[...document.querySelectorAll('.virtual tbody tr')].map((row) => "
        cells += "[...row.querySelectorAll('.c-value')].map((cell) => cell.innerText))"
        assert page.evaluate(cells)[1:3] == rows
        heads = "[...document.querySelectorAll('.virtual th')].map((head) => head.innerText.trim())"
        key, *_ = ours
        assert page.evaluate(heads)[:5] == ["Task", "State", *ours[key], "IP address"]
        cluster.stop(f"swept-{name}")


def test_failed_tasks_of_a_job_that_succeeded_are_named(new_page: NewPage, cluster: TeamCluster) -> None:
    command = '[ "$PAI_TASK_INDEX" -lt 3 ] || { echo "no data $PAI_TASK_INDEX" >&2; exit 4; }'
    extras = {"gangAllocation": False, "openpaisdk": {"array": {"lr": ["1", "2", "3", "4", "4"]}}}
    roles = job("array", command, instances=5, extras=extras)
    roles["taskRoles"]["main"]["completion"] = {"minFailedInstances": -1, "minSucceededInstances": -1}
    cluster.submit(roles)
    cluster.wait_state("array", "SUCCEEDED")
    page = new_page(at="/jobs/alice~array?tab=config")
    page.wait_for_text("2 of 5 tasks failed.")
    page.click("button", "Show them")
    page.wait_for("document.querySelectorAll('.virtual tbody tr').length === 2")
    page.wait_for_text("main[3]")
    # Why, for all tasks together and in each row.
    parts = "[...document.querySelector('.task-causes li').children].map((part) => part.innerText)"
    assert page.evaluate(parts) == ["2 tasks exited with 4 (lr=4):", "no data 3", "Log of main[3]"]
    causes = "[...document.querySelectorAll('.virtual td.c-cause')].map((cell) => cell.innerText)"
    assert page.evaluate(causes) == ["no data 3", "no data 4"]
    # What failed runs again, with its values and indexes.
    page.click("button", "Resubmit 2 failed tasks")
    page.wait_for_text("2 of the 5 tasks of array run again")
    page.fill("dialog [name=name]", "array-again")
    assert page.evaluate("document.querySelector('dialog [name=\"main instances\"]')") is None
    page.click("dialog button", "Resubmit")
    page.wait_for_text("array-again is submitted.")
    assert cluster.wait_over("array-again")["state"] == "SUCCEEDED"
    again = cluster.detail("array-again")["taskRoles"]["main"]["taskStatuses"]
    assert [task["cause"] for task in again] == ["Exit code 4: no data 3", "Exit code 4: no data 4"]
    page = new_page(at="/jobs/alice~array?tasks=FAILED")
    page.click("a", "Log of main[3]")
    page.wait_for("document.querySelector('.virtual') === null")
    page.wait_for_text("no data 3")


def test_job_begins_with_a_line_of_facts_and_offers_its_configuration(
    new_page: NewPage, cluster: TeamCluster, tmp_path: Path
) -> None:
    cluster.submit(job("compact", "sleep 600"))
    cluster.wait_state("compact", "RUNNING")
    page = new_page(at="/jobs/alice~compact?tab=config", width=1280, height=800)
    page.wait_for_text("Requested\n1 CPU, 16 MB")
    begins = "document.querySelector('#tab-panel').getBoundingClientRect().y"
    assert page.evaluate(begins) < 800 / 3
    page.accept_downloads(tmp_path)
    page.click("#tab-panel button", "Download")
    file = tmp_path / "compact.json"
    eventually(lambda: file.exists() and file.read_text().endswith("}"), "the file")
    assert json.loads(file.read_text())["name"] == "compact"
    page.resize(390, 844)
    page.wait_for("innerWidth === 390")
    assert page.evaluate(begins) < 844 / 2
    page.click("dd a", "alice")
    page.wait_for("location.hash === '#/jobs?user=alice'")
    cluster.stop("compact")


ASKS_BEFORE_LEAVING = "!window.dispatchEvent(new Event('beforeunload', { cancelable: true }))"


def test_terminal_runs_a_shell_in_the_chosen_task(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.submit(job("enters", "sleep 600", instances=2))
    cluster.wait_state("enters", "RUNNING")
    page = new_page(at="/jobs/alice~enters?tab=terminal")
    page.wait_for_text("Connected")
    page.evaluate("document.querySelector('.xterm').dataset.first = 'yes'")
    page.choose(".terminal-card select", "main[1]")
    # A terminal gets the focus when its session is open.
    page.wait_for("document.activeElement?.closest('.xterm:not([data-first])')?.tagName === 'DIV'")
    page.wait_for_text("Connected")
    type_in_terminal(page, "echo task $PAI_TASK_INDEX of $(stty size)\n")
    rows, columns = page.wait_for(f"/^task 1 of (\\d+) (\\d+)$/m.exec({SCREEN})?.slice(1)")
    assert int(rows) > 10 and int(columns) > 60
    # 24-bit colours are inline styles of xterm.js, which the page's policy must not lose.
    type_in_terminal(page, r"printf '\033[38;2;10;200;30mgreen\033[0m\n'" + "\n")
    page.wait_for(
        "[...document.querySelectorAll('.xterm-rows span')].some((e) => e.innerText === 'green'"
        " && e.style.color !== '')"
    )
    page.resize(700, 900)
    # The screen follows the window with its next frame; only then the shell can know.
    page.wait_for("document.querySelector('.xterm-screen').clientWidth < 700")
    type_in_terminal(page, "stty size\n")
    page.wait_for(f"Number(/^\\d+ (\\d+)$/m.exec({SCREEN})?.[1]) < {columns}")
    # A look at another tab ends nothing, and the terminal has the keyboard again.
    page.click("[role=tab]", "Timeline")
    page.click("[role=tab]", "Terminal")
    page.wait_for(ASKS_BEFORE_LEAVING)
    type_in_terminal(page, "exit 7\n")
    page.wait_for_text("The shell ended with exit status 7.")
    page.wait_for(f"!({ASKS_BEFORE_LEAVING})")
    page.click("button", "Open again")
    page.wait_for_text("Connected")
    # The connection is there before the shell, and an interactive shell ignores SIGTERM.
    type_in_terminal(page, "exec sh -c 'echo inside $PAI_TASK_INDEX; exec sleep 600'\n")
    page.wait_for(f"/^inside 1$/m.test({SCREEN})")
    cluster.stop("enters")
    page.wait_for_text("The shell ended with exit status")
    page.click("button", "Open again")
    page.wait_for_text("so no command can be run in it.")


@pytest.mark.slow  # waits for the end of the page's patience
def test_terminal_tells_of_a_silent_and_of_a_lost_connection(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.submit(job("unplugged", "sleep 600"))
    cluster.wait_state("unplugged", "RUNNING")
    page = new_page(at="/jobs/alice~unplugged?tab=terminal")
    page.wait_for_text("Connected")
    type_in_terminal(page, "echo host is $PPID.\n")
    host = int(page.wait_for(f"/^host is (\\d+)\\.$/m.exec({SCREEN})?.[1]"))
    os.kill(host, signal.SIGSTOP)
    try:
        type_in_terminal(page, "echo late but not lost\n")
        page.wait_for_text("The cluster does not answer.")
    finally:
        os.kill(host, signal.SIGCONT)
    page.wait_for(f"/^late but not lost$/m.test({SCREEN})")
    page.wait_for_text("Connected")
    os.kill(host, signal.SIGKILL)
    page.wait_for_text("The connection was lost; the processes of the terminal are ended.")
    page.click("button", "Reconnect")
    page.wait_for_text("Connected")
    type_in_terminal(page, "echo again in $PAI_TASK_INDEX\n")
    page.wait_for(f"/^again in 0$/m.test({SCREEN})")
    cluster.stop("unplugged")


PAGE = """<title>an app</title><script>
const shown = () => document.body.dataset.done = "yes";
const api = fetch("{api}/api/v2/jobs", {credentials: "include"}).then((r) => r.status, () => "blocked");
const frame = fetch("/second?cookie=" + document.cookie).then((r) => r.text());
Promise.all([api, frame]).then(([one, two]) => { document.body.innerText = one + " " + two; shown(); });
</script>"""


def test_app_of_a_task_opens_at_an_address_of_its_own(new_page: NewPage, cluster: TeamCluster) -> None:
    """And a hostile page there reaches neither the API nor the portal's cookie."""
    port = "$PAI_PORT_LIST_main_0_tensorboard"
    page_file = PAGE.replace("{api}", url_of(cluster))
    serve = (
        f"cat > index.html <<'END'\n{page_file}\nEND\necho second page > second\n"
        f"exec python3 -u -m http.server {port} --bind 127.0.0.1"
    )
    cluster.submit(job("board", serve, ports={"tensorboard": 1}))
    page = new_page(at="/jobs/alice~board?tab=apps")
    page.wait_for_text("TensorBoard main[0], port")
    eventually(lambda: b"Serving HTTP" in cluster.log_of("board"), "the server")
    page.click("button", "Open TensorBoard of main[0]")
    app = page.next_page()
    app.wait_for("document.body?.dataset.done === 'yes'")
    assert app.text.strip() == "blocked second page"
    assert app.address.partition("/.pai")[0].rstrip("/") != url_of(cluster)
    eventually(lambda: b"GET /second?cookie=" in cluster.log_of("board"), "the request in the log")
    assert b"GET /second?cookie= HTTP" in cluster.log_of("board"), "no cookie is visible to scripts"
    page.fill("input[name=port]", "1")
    page.click("button", "Open the port")
    page.wait_for_text("Nothing listens on port 1 of task main[0] of job alice~board.")
    cluster.stop("board")


def test_configuration_events_and_commands(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.submit(job("parts", "true", cpu=100))  # more than the cluster has
    page = new_page(at="/jobs/alice~parts")
    page.click("[role=tab]", "Configuration")
    page.wait_for_text('"protocolVersion": 2')
    page.press("ArrowRight")
    page.wait_for_text("pai logs -f parts")
    assert "pai stop-job parts" in page.text
    page.click("[role=tab]", "Timeline")
    page.wait_for("document.querySelectorAll('.events tbody tr').length > 0")
    page.wait_for_text("Attempt 1")
    cluster.stop("parts")
    page.click("[role=tab]", "Commands")
    page.wait_for_text("pai resubmit parts")
    for command in ("logs -f", "exec", "top", "ssh-container", "forward", "stop-job"):
        assert f"pai {command}" not in page.text, "only a job that runs has this"


def test_configuration_is_the_text_that_was_submitted(
    new_page: NewPage, cluster: TeamCluster, tmp_path: Path
) -> None:
    text = "# Of the second try.\n" + yaml.safe_dump(job("commented", "true"), sort_keys=False)
    cluster.submit(text)
    page = new_page(at="/jobs/alice~commented?tab=config")
    page.wait_for_text("# Of the second try.")
    assert page.evaluate("document.querySelector('pre.config').textContent") == text
    page.accept_downloads(tmp_path)
    page.click("button", "Download")
    file = tmp_path / "commented.yaml"
    eventually(lambda: file.exists() and file.read_text() == text, "the file")


def test_earlier_attempts_keep_their_reason_log_and_place_in_the_timeline(
    new_page: NewPage, cluster: TeamCluster
) -> None:
    says = "echo attempt $FC_FRAMEWORK_ATTEMPT_ID; exit $((3 + FC_FRAMEWORK_ATTEMPT_ID))"
    cluster.run(job("repeats", says, jobRetryCount=1))
    page = new_page(at="/jobs/alice~repeats?tab=log")
    page.wait_for(f"{LOG}?.textContent === 'attempt 1\\n'")
    page.click("button", "Attempt 1")
    page.wait_for(f"{LOG}?.textContent === 'attempt 0\\n'")
    page.wait_for_text("Attempt 1: Exit code 3: attempt 0.")
    assert page.evaluate("document.querySelector('.notice').innerText").count("attempt 0") == 1
    page.wait_for_text("The job's commands failed")
    page.wait_for_text("Exit code\n3 (reported as 255)")
    page.click("[role=tab]", "Timeline")
    page.wait_for("document.querySelectorAll('.timeline li').length === 2")
    for words in ("Failed", ": waited ", ", ran ", "commands failed"):
        page.wait_for(
            "[...document.querySelectorAll('.timeline li')]"
            f".every((e) => e.innerText.includes({json.dumps(words)}))"
        )
    page.click(".timeline a", "Attempt 2")
    page.wait_for_text("Exit code\n4 (reported as 255)")


def test_running_attempt_is_in_the_timeline_of_an_earlier_one_and_its_log_is_live(
    new_page: NewPage, cluster: TeamCluster
) -> None:
    says = (
        "[ $FC_FRAMEWORK_ATTEMPT_ID = 1 ] || exit 3; echo one; until [ -e go ]; do sleep 0.05; done; echo two"
    )
    cluster.submit(job("goes-on", f"{says}; sleep 600", jobRetryCount=1))
    eventually(lambda: cluster.detail("goes-on")["jobStatus"]["attemptId"] == 1, "the second attempt")
    cluster.wait_state("goes-on", "RUNNING")
    page = new_page(at="/jobs/alice~goes-on?tab=timeline&attempt=0")
    states = "[...document.querySelectorAll('.timeline .state')].map((e) => e.innerText).join()"
    page.wait_for(f"{states} === 'Failed,Running'")
    page.evaluate("location.hash = '#/jobs/alice~goes-on?tab=log&attempt=1'")
    page.wait_for(f"{LOG}?.textContent === 'one\\n'")
    uid = cluster.detail("goes-on")["taskRoles"]["main"]["taskStatuses"][0]["containerId"]
    (cluster.home / "tasks" / uid[:2] / uid / "work" / "go").touch()
    page.wait_for(f"{LOG}.textContent === 'one\\ntwo\\n'")
    cluster.stop("goes-on")


def test_finished_job_is_cloned_and_deleted(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.run(job("original", "echo again"))
    page = new_page(at="/jobs/alice~original")
    page.click("a", "Clone")
    page.wait_for("document.querySelector('[name=command]')?.value === 'echo again'")
    name = page.evaluate("document.querySelector('[name=name]').value")
    assert name.startswith("original_")
    page.click("button", "Submit")
    page.wait_for_text(f"{name} is submitted.")
    cluster.wait_state(name, "SUCCEEDED")
    page.evaluate("location.hash = '#/jobs/alice~original'")
    page.click("button", "Delete")
    page.click("dialog button", "Delete")
    page.wait_for_text("original is deleted.")
    eventually(lambda: cluster.get(cluster.path("original")).status == 404, "the removal")


def test_tags_are_added_and_removed(new_page: NewPage, cluster: TeamCluster) -> None:
    cluster.run(job("tagged", "true"))
    page = new_page(at="/jobs/alice~tagged")
    page.fill("input[name=tag]", "<i>best</i>")
    page.click("button", "Add")
    page.wait_for_text("<i>best</i>")
    assert cluster.detail("tagged")["tags"] == ["<i>best</i>"]
    page.click("button", "Remove tag <i>best</i>")
    page.wait_for("document.querySelector('.tags .tag') === null")
    assert cluster.detail("tagged")["tags"] == []


def test_unknown_job_says_so(new_page: NewPage) -> None:
    page = new_page(at="/jobs/alice~nowhere")
    page.wait_for_text("nowhere")
    page.wait_for("document.querySelector('.notice.bad') !== null")


def test_page_recovers_from_a_restart_of_the_server(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> None:
    home = tmp_path_factory.mktemp("restarted") / "home"
    upload = home.parent / "upload.bin"
    upload.write_bytes(os.urandom(9 << 20))
    add_users(home)
    cluster = TeamCluster(home, MACHINE, terminal_variables(home))
    try:
        cluster.start()
        cluster.tokens = {user: cluster.log_in(user) for user in ("admin", "alice")}
        cluster.user, cluster.token = "alice", cluster.tokens["alice"]
        cluster.submit(job("survivor", "i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.2; done"))
        cluster.wait_state("survivor", "RUNNING")
        with browser.page() as page, browser.page() as uploads:
            page.open(f"{url_of(cluster)}/#/jobs/alice~survivor?tab=terminal")
            sign_in(page, "alice")
            uploads.open(f"{url_of(cluster)}/#/files/home/user/alice")
            sign_in(uploads, "alice")
            uploads.wait_for_text("This folder is empty")
            uploads.evaluate(HOLD_PARTS)
            uploads.choose_files("input[type=file]", upload)
            uploads.wait_for("window.held > 1")
            page.wait_for_text("Connected")
            page.click("[role=tab]", "Log")
            page.wait_for(f"{LOG}?.textContent.includes('tick 2')")
            port = cluster.address[1]
            cluster.terminate()
            page.wait_for_text("The cluster does not answer.")
            uploads.evaluate("window.release()")
            uploads.wait_for_text("Waiting for the cluster")
            cluster.start("--port", str(port))
            uploads.wait_for_text("1 file uploaded")
            stored = cluster.get("/webhdfs/v1/user/alice/upload.bin?op=OPEN&data=true")
            assert stored.body == upload.read_bytes()
            page.wait_for("!document.body.innerText.includes('The cluster does not answer.')")
            last = int(page.evaluate(f"{LOG}.textContent.trim().split(' ').at(-1)"))
            page.wait_for(f"Number({LOG}.textContent.trim().split(' ').at(-1)) > {last + 2}")
            ticks = page.evaluate(f"{LOG}.textContent")
            count = int(ticks.split()[-1])
            assert ticks == "".join(f"tick {n}\n" for n in range(1, count + 1)), "no byte is lost or repeated"
            page.click("[role=tab]", "Terminal")
            page.click(".xterm")
            type_in_terminal(page, "echo the same shell of $PAI_TASK_INDEX\n")
            page.wait_for(f"{SCREEN}.includes('the same shell of 0')")
    finally:
        cluster.close()
