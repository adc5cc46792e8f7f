"""Every row of docs/exit-statuses.md: the exit status, and the sentence that goes with it."""

import json
import re
import shlex

import pytest

from support.cli_user import done_job, until
from support.paths import REPOSITORY
from support.ports import free_port

SUB = ["sub", "--no-sources", "--mem", "16m"]
ARRAY = ["--array", "2", "exit $PAI_TASK_INDEX"]


@pytest.fixture(name="stopped", scope="module")
def stopped_fixture(shared_user) -> str:
    """A job that was stopped before it started."""
    job = shared_user.pai(*SUB, "--cpu", "100000", "-j", "stopped_$", "true").out.strip()
    shared_user.pai("stop-job", job)
    until(lambda: shared_user.state(job) == "STOPPED")
    return job


@pytest.fixture(name="failed", scope="module")
def failed_fixture(shared_user) -> str:
    return done_job(shared_user, "failed_$", "echo said; exit 7")


def test_page_lists_the_statuses_tested_here() -> None:
    page = (REPOSITORY / "docs/exit-statuses.md").read_text()
    assert re.findall(r"^\| (\d+) \|", page, re.M) == ["0", "1", "2", "3", "4", "5", "130", "141"]


def test_0_is_success_of_command_and_job(user) -> None:
    job = done_job(user, "fine_$", "echo said")
    for words, out in [
        (["logs", "-f", job], "said\n"),
        (["wait", job], ""),
        (["connect-job", job], None),
        ([*SUB, "--follow", "echo said"], "said\n"),
        (["list-jobs", job], None),
    ]:
        done = user.pai(*words)
        assert done.status == 0 and (out is None or done.out == out), done
    assert f"{job} SUCCEEDED after " in user.pai("wait", job).err


def test_1_is_a_failed_command_with_its_reason(user, new_user) -> None:
    done = user.pai("job-status", "nosuchjob")
    assert done.status == 1 and done.out == "", done
    assert done.err == (
        "pai: There is no job 'nosuchjob' on the cluster local.\n     pai list-jobs lists your jobs.\n"
    )
    port = free_port()
    words = ["-a", "gone", "--pai-uri", f"http://127.0.0.1:{port}", "--user", "me", "--token", "t"]
    done = new_user.pai("add-cluster", *words)
    assert done.status == 1, done
    assert done.err.startswith(
        f"pai: The cluster gone at http://127.0.0.1:{port} does not respond: nothing"
    ), done


def test_1_of_check_job_is_a_file_with_errors(user) -> None:
    user.write(bad__yaml="protocolVersion: 2\nname: x\ntype: job\n")
    done = user.pai("check-job", "bad.yaml")
    assert done.status == 1 and "bad.yaml" in done.out + done.err and "taskRoles" in done.out + done.err, done


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nosuchcommand"], "There is no command 'nosuchcommand'."),
        (["list-jobs", "--nosuchoption"], "pai list-jobs has no option --nosuchoption."),
        (["sub", "--cpu", "0", "true"], "--cpu"),
        (["sub", "-a", "nowhere", "true"], "There is no cluster called 'nowhere'"),
        (["start-container", "--timeout", "soon"], "'soon' is not a duration"),
    ],
)
def test_2_is_a_wrong_command_line_and_sends_nothing(new_user, words: list[str], says: str) -> None:
    done = new_user.pai(*words)
    assert done.status == 2 and done.out == "" and done.err.startswith("pai: ") and says in done.err, done
    assert not (new_user.home / ".openpai/local").exists(), "no cluster was started, so nothing was sent"


def test_3_is_a_failed_job(user, failed: str) -> None:
    for words in (["logs", "-f", failed], ["wait", failed]):
        done = user.pai(*words)
        assert done.status == 3 and f"{failed} FAILED after " in done.err, done
        assert "exit code 7" in done.err, done
    done = user.pai("connect-job", failed)
    assert done.status == 3 and done.out.split()[-1] == "FAILED", done
    for option in ("--follow", "--wait"):
        done = user.pai(*SUB, option, "exit 7")
        assert done.status == 3 and "exit code 7" in done.err, done
    assert user.pai("logs", failed).status == 0, "it was not followed"


def test_3_is_an_array_with_failed_tasks(user) -> None:
    done = user.pai(*SUB, "--wait", *ARRAY)
    job = done.out.strip()
    says = f"{job} finished after "
    assert done.status == 3 and says in done.err and "1 of its 2 tasks failed: main[1]" in done.err, done
    for words in (["wait", job], ["logs", "-f", job]):
        done = user.pai(*words)
        assert done.status == 3 and "1 of its 2 tasks failed" in done.err, done
    assert user.pai("wait", "-o", "json", job).status == 3
    assert user.pai("connect-job", job).status == 3


def test_4_is_a_stopped_job(user, stopped: str) -> None:
    for words in (["logs", "-f", stopped], ["wait", stopped]):
        done = user.pai(*words)
        assert done.status == 4 and f"{stopped} STOPPED before it started: stopped on request" in done.err, (
            done
        )
    done = user.pai("connect-job", stopped)
    assert done.status == 4 and done.out.split()[-1] == "STOPPED", done


def test_5_is_a_job_that_did_not_finish_in_time(user) -> None:
    job = user.pai(*SUB, "--cpu", "100000", "true").out.strip()
    for limit, said in (("0", "0 seconds"), ("1", "1 second")):
        done = user.pai("wait", "--timeout", limit, job)
        assert done.status == 5 and done.out == "", done
        assert f"Not finished after {said}: {job}\n" in done.err, done
    user.pai("stop-job", job)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--version"], 0),  # exit_at_once
        (["list-jobs", "--help"], 0),
        (["listdir", "."], 0),  # imports threading
        (["job-status", "nosuchjob"], 1),
        (["nosuchcommand"], 2),
    ],
)
def test_forked_command_ends_as_its_executable(user, words: list[str], status: int) -> None:
    forked, executed = user.pai(*words), user.sh(shlex.join(["pai", *words]))
    assert (forked.status, forked.out, forked.err) == (executed.status, executed.out, executed.err)
    assert forked.status == status, forked


def test_1_is_output_that_cannot_be_written(user) -> None:
    done = user.sh("pai --version >/dev/full")
    assert done.status == 1 and done.err == "pai: No space left on device.\n", done


def test_130_is_ctrl_c_and_the_job_continues(user) -> None:
    job = user.pai(*SUB, "-j", "kept_$", "echo begun; sleep 60").out.strip()
    process = user.begin("logs", "-f", job)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(2)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 130, err
    assert err == f"\nStopped following; the job continues. Follow it again with: pai logs -f {job}\n"
    assert user.state(job) == "RUNNING"
    user.pai("stop-job", job)


def test_141_is_a_reader_that_exited(user, failed: str) -> None:
    done = user.sh("pai list-jobs -o json | true; echo ${PIPESTATUS[0]}")
    assert done.out in ("141\n", "0\n") and done.err == "", done  # true may exit after all was written
    done = user.sh(
        f"for i in 1 2 3; do pai job-status -o json {failed}; done | head -c 1; echo ${{PIPESTATUS[0]}}"
    )
    assert done.err == "" and done.out.endswith("141\n"), done


def test_wait_for_several_jobs_returns_the_last_status_named(user, failed: str, stopped: str) -> None:
    fine = done_job(user, "fine_$")
    assert user.pai("wait", failed, fine, stopped).status == 4
    assert user.pai("wait", stopped, failed, fine).status == 3
    assert user.pai("wait", fine, fine).status == 0
    done = user.pai("wait", "-o", "json", stopped, failed)
    assert done.status == 3 and json.loads(done.out) == {stopped: "STOPPED", failed: "FAILED"}, done


def test_results_go_to_stdout_and_the_log_to_stderr_with_json(user) -> None:
    done = user.pai(*SUB, "--follow", "-o", "json", "echo said")
    assert json.loads(done.out)["state"] == "SUCCEEDED" and "said\n" in done.err, done
