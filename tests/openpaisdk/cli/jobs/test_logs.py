"""`pai logs`, `pai connect-job` and `pai wait`: follow a job, and stop following it."""

import contextlib
import json
import re
import time
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


@pytest.fixture(name="retried", scope="module")
def retried_fixture(shared_user, tmp_path_factory):
    """A job with three attempts: each writes its number, the second one nothing else."""
    shared_user.project = tmp_path_factory.mktemp("retried")
    counter = shared_user.project / "count"
    line = (
        f"echo x >> {counter}; n=$(wc -l < {counter}); echo this is run $n; "
        'test $n = 2 || echo "more of $n"; test $n = 3'
    )
    done = shared_user.pai("sub", "--no-sources", "--wait", "--retry", "2", "-j", "retried_$", line)
    assert done.status == 0, done
    return done.out.strip()


def test_logs_show_the_latest_attempt_and_say_that_there_are_others(user, retried: str) -> None:
    done = user.pai("logs", retried)
    assert (done.status, done.out) == (0, "this is run 3\nmore of 3\n")
    assert (
        f"was retried; this is the log of the latest attempt. All of them: pai logs --all-attempts {retried}"
        in done.err
    )
    again = user.pai("logs", "--index", "0", retried)
    assert f"pai logs --all-attempts --index 0 {retried}" in again.err, again
    searched = user.pai("logs", "--grep", "more of", "--stream", "stdout", retried)
    assert f"pai logs --all-attempts --grep 'more of' --stream stdout {retried}" in searched.err, searched


def test_each_attempt_can_be_shown(user, retried: str) -> None:
    outputs = [user.pai("logs", "--attempt", str(number), retried) for number in (1, 2, 3)]
    assert [done.out for done in outputs] == [
        "this is run 1\nmore of 1\n",
        "this is run 2\n",
        "this is run 3\nmore of 3\n",
    ]
    assert [done.err for done in outputs] == ["", "", ""]
    assert user.pai("logs", "--attempt", "1", "--tail", "1", retried).out == "more of 1\n"
    assert user.pai("logs", "--attempt", "2", "--grep", "run", retried).out == "this is run 2\n"
    assert user.pai("logs", "--attempt", "1", "--task", "main:0", retried).out == outputs[0].out
    missing = user.pai("logs", "--attempt", "4", retried)
    assert missing.status == 2 and "has no attempt 4: it has 3 attempts." in missing.err, missing
    unknown = user.pai("logs", "--attempt", "1", "--role", "worker", retried)
    assert unknown.status == 2 and "has no task 'worker:0'" in unknown.err, unknown


def test_all_attempts_are_shown_with_headings(user, retried: str) -> None:
    done = user.pai("logs", "--all-attempts", retried)
    assert done.out == "this is run 1\nmore of 1\nthis is run 2\nthis is run 3\nmore of 3\n"
    assert done.err == "--- attempt 1 ---\n--- attempt 2 ---\n--- attempt 3 ---\n"
    found = user.pai("logs", "--all-attempts", "--grep", "more", retried)
    assert found.out == "more of 1\nmore of 3\n", found
    assert found.err == "--- attempt 1 ---\n--- attempt 3 ---\n", found
    absent = user.pai("logs", "--all-attempts", "--grep", "absent", retried)
    assert (absent.out, "---" in absent.err) == ("", False), absent
    followed = user.pai("logs", "-f", "--all-attempts", retried)
    assert followed.status == 0 and followed.out == done.out, followed


@pytest.mark.parametrize(
    "words",
    [("--attempt", "1", "--all-attempts"), ("--attempt", "1", "-f"), ("--all-attempts", "--tail", "1")],
)
def test_options_of_attempts_that_contradict_each_other(user, words: tuple[str, ...]) -> None:
    done = user.pai("logs", *words, "any")
    assert done.status == 2 and "-attempt" in done.err, done


def test_job_that_was_not_retried_has_one_attempt_and_no_notice(user) -> None:
    name = done_job(user, "once_$", "echo once")
    assert user.pai("logs", name).err == ""
    assert user.pai("logs", "--attempt", "1", name).out == "once\n"
    assert "it has 1 attempt." in user.pai("logs", "--attempt", "2", name).err


def test_tasks_that_are_retried_on_their_own_have_attempts_of_their_own(user) -> None:
    job = {
        "protocolVersion": 2,
        "name": "alone_$",
        "type": "job",
        "prerequisites": [{"name": "img", "type": "dockerimage", "uri": "host"}],
        "extras": {"gangAllocation": False},
        "taskRoles": {
            "main": {
                "instances": 2,
                "taskRetryCount": 1,
                "dockerImage": "img",
                "resourcePerInstance": {"cpu": 1, "memoryMB": 32, "gpu": 0},
                "commands": [
                    f"touch {user.project}/$PAI_TASK_INDEX-$RANDOM; "
                    f"n=$(ls {user.project} | grep -c ^$PAI_TASK_INDEX-); "
                    # Without the end of its line, as of a program that is killed.
                    "printf 'task %s run %s' $PAI_TASK_INDEX $n; "
                    "test $PAI_TASK_INDEX = 0 || test $n = 2"
                ],
            }
        },
    }
    user.write(job__json=json.dumps(job))
    name = user.pai("submit", "--wait", "job.json").out.strip()
    both = user.pai("logs", "--task", "all", "--attempt", "1", name).out
    assert sorted(both.splitlines()) == ["main[0] | task 0 run 1", "main[1] | task 1 run 1"]
    assert user.pai("logs", "--task", "all", "--attempt", "2", name).out == "main[1] | task 1 run 2\n"
    assert user.pai("logs", "--task", "main:0", name).err == ""
    headings = "--- main[0], attempt 1 ---\n--- main[1], attempt 1 ---\n--- main[1], attempt 2 ---\n"
    in_one = user.sh(f"pai logs --task main:1 --task main:0 --all-attempts {name} 2>&1").out
    assert in_one.splitlines()[:4] == [
        *("--- main[1], attempt 1 ---", "main[1] | task 1 run 1"),
        *("--- main[1], attempt 2 ---", "main[1] | task 1 run 2"),
    ], in_one
    for words in ((), ("--grep", "run")):
        every = user.pai("logs", "--task", "all", "--all-attempts", *words, name)
        assert every.err == headings and every.out.splitlines() == [
            *("main[0] | task 0 run 1", "main[1] | task 1 run 1", "main[1] | task 1 run 2")
        ], every


STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")


def seconds_of(line: str) -> float:
    return time.mktime(time.strptime(line[:19], "%Y-%m-%d %H:%M:%S"))


def test_timestamps_begin_each_line_with_its_time(user) -> None:
    job = done_job(user, "timed_$", "echo one; echo two >&2; sleep 2; printf three")
    done = user.pai("logs", "--timestamps", job)
    lines = done.out.splitlines()
    assert done.err == "" and all(STAMP.match(line) for line in lines), done
    assert [line[20:] for line in lines] == ["one", "two", "three"]
    assert 1 <= seconds_of(lines[2]) - seconds_of(lines[0]) < 3600
    assert user.pai("logs", "--timestamps", "--tail", "1", job).out.splitlines() == lines[2:]


def test_timestamps_of_a_followed_job(user) -> None:
    job = user.pai("sub", "-j", "timed_live_$", "echo begun; sleep 1.5; echo ended").out.strip()
    done = user.pai("logs", "-f", "--timestamps", job)
    assert done.status == 0 and [line[20:] for line in done.out.splitlines()] == ["begun", "ended"], done
    assert all(STAMP.match(line) for line in done.out.splitlines())


def test_timestamps_of_several_tasks_follow_the_names_of_the_tasks(user) -> None:
    job = done_job(
        user, "timed_array_$", "--array", "2", "echo I am $PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"
    )
    lines = user.pai("logs", "--timestamps", "--task", "all", job).out.splitlines()
    assert len(lines) == 2
    for index, line in enumerate(lines):
        name, _, rest = line.partition(" | ")
        assert name.endswith(f"[{index}]") and STAMP.match(rest) and rest[20:] == f"I am {index}", lines


def test_log_without_recorded_times_is_printed_and_said_once(user) -> None:
    job = done_job(user, "untimed_$", "echo one; echo two")
    for index in user.home.glob(".openpai/**/log-times"):
        index.unlink()
    done = user.pai("logs", "--timestamps", job)
    assert done.out == "one\ntwo\n"
    assert done.err.count("has no time stamps") == 1, done


@pytest.mark.parametrize("options", [["--level", "INFO"], ["--grep", "x"]])
def test_timestamps_contradict_options_that_select_lines(user, options: list[str]) -> None:
    done = user.pai("logs", "--timestamps", *options, "nowhere")
    assert done.status == 2 and "--timestamps" in done.err and done.out == "", done
