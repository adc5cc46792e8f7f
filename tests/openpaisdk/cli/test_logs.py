"""`pai logs`, `pai connect-job` and `pai wait`: follow a job, and stop following it."""

import contextlib
import json
from pathlib import Path

import pytest

from support.cli_user import LIMIT, done_job, until


def test_logs_follows_and_ctrl_c_prints_resume_command(user) -> None:
    job = user.pai("sub", "-j", "slow_$", "echo begun; sleep 60").out.strip()
    process = user.begin("logs", "-f", job)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(2)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130 and f"pai logs -f {job}" in err and "Traceback" not in err
    until(lambda: user.state(job) == "RUNNING")
    user.pai("stop-job", job)


@pytest.mark.parametrize("words", [["wait"], ["connect-job"], ["sub", "--wait"]])
def test_ctrl_c_keeps_job_running_and_prints_resume_command(user, words: list[str]) -> None:
    if words[0] == "sub":
        process = user.begin(*words, "-j", "left_$", "sleep 60")
        job = process.stderr.readline().split()[1]
    else:
        job = user.pai("sub", "-j", "left_$", "sleep 60").out.strip()
        process = user.begin(*words, job)
    until(lambda: user.state(job) == "RUNNING")
    until(lambda: is_connected(process.pid))
    process.send_signal(2)
    _, err = process.communicate(timeout=LIMIT)
    back = "pai connect-job" if words[0] == "connect-job" else "pai wait"
    assert process.returncode == 130 and f"{back} {job}" in err and "Traceback" not in err, err
    user.pai("stop-job", job)


def is_connected(pid: int) -> bool:
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed after it was listed
            if "socket:" in str(fd.readlink()):
                return True
    return False


def test_connect_job_prints_states_until_finished(user) -> None:
    job = user.pai("sub", "sleep", "0.3").out.strip()
    done = user.pai("connect-job", job)
    states = [line.split()[-1] for line in done.out.splitlines()]
    assert done.status == 0 and states[-1] == "SUCCEEDED" and len(states) == len(set(states)), done


def test_wait_times_out(user) -> None:
    job = user.pai("sub", "sleep", "60").out.strip()
    done = user.pai("wait", "--timeout", "1", job)
    assert done.status == 5 and job in done.err, done
    user.pai("stop-job", job)


def test_wait_for_two_jobs_fails_if_one_fails(user) -> None:
    good, bad = (user.pai("sub", line).out.strip() for line in ("true", "false"))
    assert user.pai("wait", good, bad).status == 3
    assert json.loads(user.pai("wait", "-o", "json", good, bad).out) == {good: "SUCCEEDED", bad: "FAILED"}


@pytest.mark.parametrize("options", [[], ["-f"], ["--tail", "5"], ["--level", "INFO"]])
def test_logs_of_a_job_that_wrote_nothing_says_so(user, options: list[str]) -> None:
    job = done_job(user, "silent_$")
    done = user.pai("logs", *options, job)
    assert done.status == 0 and done.out == "", done
    assert f"{job} has written no output." in done.err, done


def test_logs_of_a_silent_stream_names_the_stream(user) -> None:
    job = done_job(user, "half_$", "echo only-stdout")
    done = user.pai("logs", "--stream", "stderr", job)
    assert done.status == 0 and done.out == "" and f"{job} has written nothing to stderr." in done.err, done
    assert user.pai("logs", job).err == ""


def test_logs_of_a_job_that_waits_says_what_it_is(user) -> None:
    job = user.pai("sub", "--no-sources", "--cpu", "100000", "true").out.strip()
    done = user.pai("logs", job)
    assert done.status == 0 and f"{job} is WAITING and has written no output yet." in done.err, done
    user.pai("stop-job", job)


def test_filtered_log_says_that_nothing_passed(user) -> None:
    job = done_job(user, "loud_$", "echo text without a level")
    done = user.pai("logs", "--level", "ERROR", job)
    assert done.out == "" and f"{job} has written no records of level ERROR or higher." in done.err, done


def test_grep_prints_the_lines_with_a_text_from_the_whole_log(user) -> None:
    job = done_job(user, "searched_$", "seq -f 'Line %g' 1 3000; echo no >&2")
    done = user.pai("logs", "--grep", "line 29", job)
    expected = [f"Line {n}" for n in range(1, 3001) if str(n).startswith("29")]
    assert (done.status, done.out.splitlines()) == (0, expected), done
    many = user.pai("logs", "--grep", "Line", "--stream", "stdout", job)
    assert many.out.splitlines() == [f"Line {n}" for n in range(1, 3001)]
    nothing = user.pai("logs", "--grep", "absent", job)
    assert (nothing.status, nothing.out) == (0, "") and f"the log of {job} contains 'absent'" in nothing.err


def test_grep_in_several_tasks_names_them(user) -> None:
    job = done_job(user, "crew_$", "--array", "2", "--mem", "64m", "--", "echo I am $PAI_TASK_INDEX of two")
    done = user.pai("logs", "--grep", "AM", "--task", "all", job)
    lines = [line.split("|")[1].strip() for line in done.out.splitlines()]
    assert lines == ["I am 0 of two", "I am 1 of two"], done
    one = user.pai("logs", "--grep", "am", "--index", "1", job)
    assert one.out == "I am 1 of two\n", one
    first = user.pai("logs", "--grep", "am", job)
    assert first.out == "I am 0 of two\n" and "the first of 2 tasks" in first.err, first


@pytest.mark.parametrize("options", [["-f"], ["--tail", "3"], ["--level", "INFO"]])
def test_grep_searches_the_whole_log_and_says_so(user, options: list[str]) -> None:
    done = user.pai("logs", "--grep", "x", *options, "nowhere")
    assert done.status == 2 and "searches the whole log" in done.err, done


@pytest.mark.parametrize("text", ["", "two\nlines", "x" * 1025])
def test_grep_needs_one_line_of_text(user, text: str) -> None:
    done = user.pai("logs", "--grep", text, "nowhere")
    assert done.status == 2 and "one line" in done.err, done


def test_grep_in_a_job_that_does_not_exist(user) -> None:
    done = user.pai("logs", "--grep", "x", "--index", "0", "nowhere_9")
    assert done.status == 1 and "nowhere_9" in done.err and "Traceback" not in done.err, done
