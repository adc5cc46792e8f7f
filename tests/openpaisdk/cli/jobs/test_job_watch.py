"""`pai list-jobs` on a terminal: fits the window, relative times, `--watch`."""

import json
import os
import re
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from openpaisdk.cli.jobs import job_watch, live_screen
from openpaisdk.client.models import JobSummary
from support.cli_user import done_job, until
from support.terminal import run_on_terminal, start_on_terminal

LONG = "training_of_a_rather_large_model_with_a_long_name_lr_0_001_batch_256_$"


@pytest.fixture(name="waiting")
def waiting_fixture(user):
    """A job with a long name and a long pending reason."""
    job = user.pai("sub", "--no-sources", "--cpu", "100000", "--gpu", "9", "-j", LONG, "true").out.strip()
    until(lambda: "Insufficient" in user.pai("list-jobs").out)
    yield job
    user.pai("stop-job", job)


def reason_of(user, job: str) -> str:
    """The whole pending reason."""
    return json.loads(user.pai("job-status", job, "-o", "json").out)["reason"]


@pytest.mark.parametrize("columns", [60, 80, 100, 160])
def test_list_fits_the_window(user, waiting: str, columns: int) -> None:
    terminal = run_on_terminal(user, "list-jobs", columns=columns)
    # Below the table there may be a notice that there are more jobs.
    lines = [line for line in terminal.lines if line and not line.startswith("There may be more")]
    assert max(map(len, lines)) <= columns, lines
    row = next(line for line in lines if "WAITING" in line)
    assert row.startswith("train") and row.split()[0].endswith(waiting[-4:]), (
        "both ends of the name are shown"
    )
    assert re.search(r" (\d+s|\d+m) ago ", row), "times are relative"
    assert "PENDING REASON" in lines[0] and "0/1 nodes" in row


def test_wide_window_shows_everything(user, waiting: str) -> None:
    lines = run_on_terminal(user, "list-jobs", columns=500).lines
    headers = r"NAME +STATE +SUBMITTED +DURATION +GPUS +TASKS +VC +PENDING REASON"
    assert re.fullmatch(headers, lines[0]), lines[0]
    row = next(line for line in lines if line.startswith(waiting))
    assert row.endswith(reason_of(user, waiting)), row


def test_piped_list_is_complete_with_absolute_times(user, waiting: str) -> None:
    out = user.pai("list-jobs").out
    row = next(line for line in out.splitlines() if line.startswith(waiting))
    assert re.search(r" \d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", row), row
    assert row.endswith(reason_of(user, waiting)), "not shortened"
    relative = user.pai("list-jobs", "--time", "relative").out
    assert re.search(r" (\d+s|\d+m) ago ", relative.splitlines()[1]), relative
    absolute = run_on_terminal(user, "list-jobs", "--time", "absolute", columns=120)
    assert re.search(r" \d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", absolute.lines[1]), absolute.text


def test_watch_shows_changes_until_ctrl_c(user) -> None:
    first = done_job(user, "watched_$")
    watch = start_on_terminal(user, "list-jobs", "--watch=1")
    watch.wait_for(first)
    second = done_job(user, "watched_$")
    watch.wait_for(second)
    watch.type("\x03")
    assert watch.finish() == 130
    assert "Traceback" not in watch.text and "Jobs on local at " in watch.text
    assert watch.text.index("\x1b[?1049h") < watch.text.index("\x1b[?1049l"), "the window is given back"
    after = watch.text.rpartition("\x1b[?1049l")[2]
    assert second in after and first in after, "the last list stays"


def test_watch_draws_over_the_former_picture(user) -> None:
    done_job(user, "steady_$")
    watch = start_on_terminal(user, "list-jobs", "--watch=1")
    until(lambda: watch.read() and len(watch.pictures()) >= 3)
    watch.type("\x03")
    watch.finish()
    assert "\x1b[2J" not in watch.text, "the window is never cleared before it is drawn"


def test_watch_fits_a_window_that_is_resized(user) -> None:
    for _ in range(12):
        done_job(user, "resized_$")
    watch = start_on_terminal(user, "list-jobs", "--watch=60", columns=80, lines=9)
    watch.wait_for(" more")
    picture = watch.pictures()[-1]
    assert len(picture) <= 9 and max(map(len, picture)) <= 80, picture
    assert picture[-2].startswith("and ") and picture[-2].endswith(" more"), picture
    drawn = len(watch.pictures())
    watch.resize(50, 24)
    until(lambda: watch.read() and len(watch.pictures()) > drawn)  # long before the next round
    until(lambda: watch.read() and watch.text.endswith("\x1b[J"))
    picture = watch.pictures()[-1]
    assert len(picture) > 9 and max(map(len, picture)) <= 50, picture
    watch.type("\x03")
    assert watch.finish() == 130


def test_window_resized_while_it_is_drawn_is_drawn_again() -> None:
    drawn: list[list[str]] = []
    screen = SimpleNamespace(size=os.terminal_size((50, 24)), draw=drawn.append)
    before = os.terminal_size((80, 9))
    live_screen._sleep(2 * live_screen.RESIZE_INTERVAL_S, screen, before, lambda size: ["picture"])
    assert drawn == [["picture"]]


def test_picture_of_a_thousand_jobs_fits_the_window() -> None:
    jobs = [JobSummary({"name": f"job{i}", "username": "me", "state": "RUNNING"}) for i in range(1000)]
    transport = SimpleNamespace(shorten_timeouts=lambda seconds: None)
    cluster = SimpleNamespace(alias="team", transport=transport)
    poller = live_screen.Poller(cluster, lambda: (jobs, False))
    rendered: list[int] = []

    def render(shown: list[JobSummary], columns: int | None) -> str:
        rendered.append(len(shown))
        return "\n".join(["NAME", *(job.name for job in shown)])

    picture = job_watch._picture(poller, render, 2, os.terminal_size((80, 24)))
    assert len(picture) < 24 and picture[-1] == "and 981 more", picture
    assert rendered == [19], "only what is shown is formatted"


@pytest.mark.slow
def test_watch_survives_a_restart_and_does_not_start_the_cluster(new_user) -> None:
    job = done_job(new_user, "before_$")
    watch = start_on_terminal(new_user, "list-jobs", "--watch=1", columns=200)
    watch.wait_for(job)
    assert new_user.pai("stop-cluster").status == 0
    until(lambda: watch.read() and "trying again: The cluster local at" in watch.pictures()[-1][0])
    assert "is not running" in new_user.pai("cluster-status").out
    assert job in "".join(watch.pictures()[-1]), "the last list is still shown"
    after = done_job(new_user, "after_$")
    watch.wait_for(after)
    watch.type("\x03")
    assert watch.finish() == 130


def test_watch_gives_the_window_back_when_it_is_killed_or_suspended(user) -> None:
    watch = start_on_terminal(user, "list-jobs", "--watch=1")
    watch.wait_for("Jobs on local")
    os.kill(watch.process.pid, signal.SIGTSTP)
    watch.wait_for("\x1b[?1049l")
    state = Path(f"/proc/{watch.process.pid}/stat")
    until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T")
    os.kill(watch.process.pid, signal.SIGCONT)
    until(lambda: watch.read() and watch.text.count("\x1b[?1049h") == 2)
    watch.process.terminate()
    assert watch.finish() == 128 + signal.SIGTERM
    assert watch.text.count("\x1b[?1049l") == 2 and "Traceback" not in watch.text


def test_watch_without_a_terminal_prints_changes(user) -> None:
    process = user.begin("list-jobs", "--watch=1", "--keyword", "piped")
    assert process.stderr.readline() == (
        "The output is not a terminal: printing a line for each change of a state, checked every 1 s; "
        "Ctrl-C ends.\n"
    )
    job = user.pai("sub", "--no-sources", "--mem", "16m", "-j", "piped_$", "sleep 60").out.strip()
    seen = []
    while "RUNNING" not in seen:
        line = process.stdout.readline()
        name, state = re.fullmatch(r"\S+ \S+  (\S+)  (\S+)\n", line).groups()
        assert name == job
        seen.append(state)
    user.pai("stop-job", job)
    while "STOPPED" not in seen:
        seen.append(process.stdout.readline().split()[-1])
    process.send_signal(2)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 130 and err == "", err


def test_watch_notices_that_its_reader_has_exited(user) -> None:
    done_job(user, "unread_$")
    done = user.sh("pai list-jobs --watch=1 --limit 1 2>/dev/null | head -1; echo ${PIPESTATUS[0]}")
    assert done.out.splitlines()[-1] == "141", done


def test_watch_refuses_formats_for_programs_and_a_single_job(user) -> None:
    done = user.pai("list-jobs", "--watch", "-o", "json")
    assert done.status == 2 and "--watch prints for people" in done.err, done
    done = user.pai("list-jobs", "--watch", "onejob")
    assert done.status == 2 and "pai connect-job onejob" in done.err, done


def test_watch_of_an_empty_list_says_so(user) -> None:
    watch = start_on_terminal(user, "list-jobs", "--watch", "--keyword", "no-such-name")
    watch.wait_for("No jobs.")
    watch.type("\x03")
    assert watch.finish() == 130


def test_structured_list_is_the_same_on_a_terminal(user) -> None:
    done_job(user, "exact_$")
    piped = user.pai("list-jobs", "-o", "json").out
    shown = run_on_terminal(user, "list-jobs", "-o", "json", columns=40).text.replace("\r\n", "\n")
    assert json.loads(shown) == json.loads(piped)
