"""pai sub, submit and what follows, through the real executables against a real cluster."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest
import yaml
from at_a_terminal import until

from outside import missing


def test_a_followed_job_prints_its_log_and_nothing_else_on_stdout(person) -> None:
    done = person.pai("sub", "--follow", "--", "echo", "hello")
    assert (done.status, done.out) == (0, "hello\n"), done
    assert re.search(r"echo_\w{6} SUCCEEDED after ", done.err), done


def test_the_exit_status_is_zero_only_for_success(person) -> None:
    for flag in ("--follow", "--wait"):
        done = person.pai("sub", flag, "exit 7")
        assert done.status == 3 and "FAILED" in done.err and "exit code 7" in done.err, done
    job = person.pai("sub", "sleep", "60").out.strip()
    assert person.pai("stop-job", job).status == 0
    done = person.pai("wait", job)
    assert done.status == 4 and "STOPPED" in done.err, done


def test_the_files_of_the_folder_are_there(person) -> None:
    person.write(
        train__py="import helper; print(helper.word, open('data/x').read())", helper__py="word = 'ok'"
    )
    (person.project / "data").mkdir()
    (person.project / "data/x").write_text("data")
    done = person.pai("sub", "--follow", "--", "python", "train.py")
    assert done.out == "ok data\n", done


def test_changed_files_travel_again(person) -> None:
    for word in ("one", "two"):
        person.write(a__txt=word)
        assert person.pai("sub", "-f", "cat", "a.txt").out == word


def test_of_a_folder_that_travelled_only_what_changed_does(person) -> None:
    (person.project / "big").write_bytes(os.urandom(200_000))
    person.write(small="1")
    old = time.time() - 60
    os.utime(person.project / "big", (old, old))
    assert person.pai("sub", "-f", "cat small").out == "1"
    time.sleep(2.1)  # a file that was just written may change again unseen, so it is read once more
    assert person.pai("sub", "-f", "cat small").out == "1"
    person.write(small="2")
    done = person.pai("sub", "-f", "cat small; wc -c < big", env={"PAI_DEBUG": "1"})
    assert (
        done.out == "2200000\n" and "PUT /rest-server/api/v2/sources/" in done.err and "?base=" in done.err
    ), done
    home = person.cluster_home / "sources"
    for tar in home.glob("*.tar"):
        tar.unlink()  # the cluster forgets; then all of it travels
    person.write(small="3")
    assert person.pai("sub", "-f", "cat small").out == "3"


def test_ignored_files_stay_behind_and_that_is_said(person) -> None:
    person.write(a="1", b="2", __paiignore="b\n")
    done = person.pai("sub", "-f", "ls")
    assert done.out == "a\n" and "b" in done.err.splitlines()[0], done


def test_no_sources_leaves_the_folder_empty(person) -> None:
    person.write(a="1")
    assert person.pai("sub", "-f", "--no-sources", "ls").out == ""
    assert person.pai("sub", "-f", "--sources", "nothing", "ls").status == 2


def test_a_folder_too_large_is_refused_before_anything_is_sent(person) -> None:
    with (person.project / "big.bin").open("wb") as f:
        f.truncate(101 << 20)
    before = person.pai("list-jobs", "-o", "json", "--limit", "5000").out
    done = person.pai("sub", "true")
    assert done.status == 1 and "big.bin" in done.err and "--no-sources" in done.err, done
    assert person.pai("list-jobs", "-o", "json", "--limit", "5000").out == before


def test_the_virtual_environment_of_the_caller_is_used(person, tmp_path) -> None:
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    line = f"source {tmp_path}/env/bin/activate && pai sub -f -- python -c 'import sys; print(sys.prefix)'"
    assert person.sh(line).out.strip() == str(tmp_path / "env")


def test_there_is_a_python_even_where_none_is_on_the_path(person) -> None:
    done = person.run(
        [os.path.join(os.path.dirname(sys.executable), "pai"), "sub", "-f", "python", "-c", "print(1)"],  # noqa: PTH118, PTH120
        env={"PATH": "/usr/sbin:/sbin"},
    )
    assert done.out == "1\n", done


def test_the_command_begins_at_the_first_word_that_is_no_option(person) -> None:
    code = "import sys; print(sys.argv[1:])"
    for words in (["-f", "python", "-c", code], ["-f", "--", "python", "-c", code]):
        done = person.pai("sub", *words, "--wait", "-j", "x y", "--", "-a")
        assert done.out.strip() == "['--wait', '-j', 'x y', '--', '-a']", done


def test_quoting_survives_exactly(person) -> None:
    words = ["a b", "$HOME", "it's", '"q"', "\\n", "*", "", "new\nline", "ünï", "`date`", "!", "#x", "<%x%>"]
    done = person.pai("sub", "-f", "--", "python", "-c", "import sys; print(ascii(sys.argv[1:]))", *words)
    assert done.out.strip() == ascii(words), done


def test_one_quoted_word_is_a_shell_line(person) -> None:
    assert person.pai("sub", "-f", "for i in 1 2; do echo $i; done && echo $((1+2))").out == "1\n2\n3\n"


def test_a_pipe_ends_when_the_command_does(person) -> None:
    done = person.sh("pai sub -f -- echo through | cat")
    assert done.out == "through\n", done


def test_names_are_made_up_or_filled_in(person) -> None:
    assert re.fullmatch(r"true_\w{6}\n", person.pai("sub", "true").out)
    assert re.fullmatch(r"my_\w{8}\n", person.pai("sub", "-j", "my_$", "true").out)


def test_a_name_already_taken_is_one_sentence(person) -> None:
    name = person.pai("sub", "-j", "taken_$", "true").out.strip()
    done = person.pai("sub", "-j", name, "true")
    assert done.status == 1 and f"already has a job called {name}" in done.err, done
    assert done.out == "" and "Traceback" not in done.err


def test_the_preview_is_what_is_sent(person) -> None:
    person.write(a="1")
    preview = person.pai("sub", "-j", "seen", "--cpu", "1", "--mem", "64m", "--preview", "echo", "a b")
    assert preview.status == 0 and person.pai("job-status", "seen").status == 1
    person.pai("sub", "-j", "seen", "--cpu", "1", "--mem", "64m", "--wait", "echo", "a b")
    config = person.pai("job-status", "seen", "config")
    assert yaml.safe_load(config.out) == yaml.safe_load(preview.out), config


def test_results_for_programs(person) -> None:
    done = person.pai("sub", "-o", "json", "--follow", "echo", "x")
    result = json.loads(done.out)
    assert result["state"] == "SUCCEEDED" and result["cluster"] == "local" and "x\n" in done.err
    listed = yaml.safe_load(person.pai("list-jobs", "-o", "yaml", "--keyword", result["jobName"]).out)
    assert [job["name"] for job in listed] == [result["jobName"]]


JOB = """\
protocolVersion: 2
name: filejob_$
type: job
prerequisites: [{name: img, type: dockerimage, uri: host}]
taskRoles:
  main:
    dockerImage: img
    completion: {minSucceededInstances: -1}
    resourcePerInstance: {cpu: 1, memoryMB: 64, gpu: 0}
    commands: [echo one, "echo role $PAI_CURRENT_TASK_ROLE_NAME"]
  second:
    dockerImage: img
    completion: {minSucceededInstances: -1}
    resourcePerInstance: {cpu: 1, memoryMB: 64, gpu: 0}
    commands: ["echo I am $PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"]
"""


def test_a_job_file_is_handed_in_and_each_task_can_be_read(person) -> None:
    person.write(job__yaml=JOB)
    done = person.pai("submit", "--wait", "-o", "json", "job.yaml")
    assert done.status == 0, done
    name = json.loads(done.out)["jobName"]
    assert person.pai("logs", name).out == "one\nrole main\n"
    assert person.pai("logs", "--role", "second", "--index", "0", name).out == "I am 0\n"
    assert "no task role" in person.pai("logs", "--role", "third", name).err
    assert person.pai("logs", "--tail", "1", name).out == "role main\n"


def test_a_job_file_is_changed_by_update_and_read_from_stdin(person) -> None:
    done = person.pai(
        "submit", "--preview", "-u", "name=again", "-u", "taskRoles:main:instances=2", "-", stdin=JOB
    )
    job = yaml.safe_load(done.out)
    assert job["name"] == "again" and job["taskRoles"]["main"]["instances"] == 2


@pytest.mark.parametrize("content", ["a: [", "just words", "name: x\n", ""])
def test_what_is_no_job_file_is_told_with_its_place(person, content: str) -> None:
    person.write(job__yaml=content)
    done = person.pai("submit", "job.yaml")
    assert done.status == 1 and "job.yaml" in done.err and "Traceback" not in done.err, done


def test_a_log_is_followed_while_it_grows_and_ctrl_c_says_how_to_come_back(person) -> None:
    job = person.pai("sub", "-j", "slow_$", "echo begun; sleep 60").out.strip()
    process = person.begin("logs", "-f", job)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(2)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130 and f"pai logs -f {job}" in err and "Traceback" not in err
    until(lambda: person.state(job) == "RUNNING")
    person.pai("stop-job", job)


@pytest.mark.parametrize("words", [["wait"], ["connect-job"], ["sub", "--wait"]])
def test_ctrl_c_leaves_the_job_and_says_how_to_come_back(person, words: list[str]) -> None:
    if words[0] == "sub":
        process = person.begin(*words, "-j", "left_$", "sleep 60")
        job = process.stderr.readline().split()[1]
    else:
        job = person.pai("sub", "-j", "left_$", "sleep 60").out.strip()
        process = person.begin(*words, job)
    until(lambda: person.state(job) == "RUNNING")
    until(lambda: is_connected(process.pid))
    process.send_signal(2)
    _, err = process.communicate(timeout=20)
    back = "pai connect-job" if words[0] == "connect-job" else "pai wait"
    assert process.returncode == 130 and f"{back} {job}" in err and "Traceback" not in err, err
    person.pai("stop-job", job)


def is_connected(pid: int) -> bool:
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed since it was listed
            if "socket:" in str(fd.readlink()):
                return True
    return False


def test_connect_job_prints_states_until_the_end(person) -> None:
    job = person.pai("sub", "sleep", "0.3").out.strip()
    done = person.pai("connect-job", job)
    states = [line.split()[-1] for line in done.out.splitlines()]
    assert done.status == 0 and states[-1] == "SUCCEEDED" and len(states) == len(set(states)), done


def test_wait_gives_up_after_its_timeout(person) -> None:
    job = person.pai("sub", "sleep", "60").out.strip()
    done = person.pai("wait", "--timeout", "1", job)
    assert done.status == 5 and job in done.err, done
    person.pai("stop-job", job)


def test_two_jobs_are_waited_for_and_one_failure_counts(person) -> None:
    good, bad = (person.pai("sub", line).out.strip() for line in ("true", "false"))
    assert person.pai("wait", good, bad).status == 3
    assert json.loads(person.pai("wait", "-o", "json", good, bad).out) == {good: "SUCCEEDED", bad: "FAILED"}


def test_why_a_job_waits_is_told(person) -> None:
    process = person.begin("sub", "-f", "-j", "greedy_$", "--gpu", "999", "true")
    line = ""
    while "GPU" not in line.upper().replace("--GPU", ""):
        line = process.stderr.readline()
        assert line, "it ended without a word"
    process.send_signal(2)
    process.communicate(timeout=20)
    job = next(
        j for j in json.loads(person.pai("list-jobs", "-o", "json").out) if j["name"].startswith("greedy_")
    )
    assert job["state"] == "WAITING"
    person.pai("stop-job", job["name"])


def test_list_jobs_filters(person) -> None:
    good, bad = (person.pai("sub", "--wait", "-o", "json", line).out for line in ("true", "false"))
    good, bad = json.loads(good)["jobName"], json.loads(bad)["jobName"]
    failed = person.pai("list-jobs", "--state", "failed", "--state", "stopped").out
    assert bad in failed and good not in failed
    assert good in person.pai("list-jobs", "--keyword", good).out
    done = person.pai("list-jobs", "--limit", "1")
    assert len(done.out.splitlines()) == 2 and "--limit" in done.err


def test_job_status_shows_tasks_and_files(person) -> None:
    job = json.loads(person.pai("sub", "--wait", "-o", "json", "echo kept > result.txt").out)["jobName"]
    out = person.pai("job-status", job).out
    assert "main[0]" in out and "SUCCEEDED" in out
    folder = re.search(r"files +(\S+)", out)[1].replace("~", str(person.home))
    assert subprocess.run(["cat", f"{folder}/result.txt"], capture_output=True, text=True).stdout == "kept\n"


def test_several_jobs_are_stopped_and_an_unknown_one_does_not_spoil_it(person) -> None:
    jobs = [person.pai("sub", "sleep", "60").out.strip() for _ in range(2)]
    done = person.pai("stop-jobs", jobs[0], "nonexistent", jobs[1])
    assert done.status == 1 and "nonexistent" in done.err, done
    until(lambda: all(person.state(job) == "STOPPED" for job in jobs))


def test_an_account_may_be_a_number_that_has_no_name(newcomer) -> None:
    """As in a container that somebody started with a user of its own choice."""
    if os.geteuid() != 0:
        missing("root, who alone takes accounts their names")
    nameless = ["env", *(f"-u{name}" for name in ("USER", "LOGNAME", "LNAME", "USERNAME"))]
    hidden = ["unshare", "--mount", "sh", "-c", 'mount --bind /dev/null /etc/passwd && exec "$@"', "sh"]
    done = newcomer.run(
        [*hidden, *nameless, "pai", "sub", "--follow", "--", "sh", "-c", 'echo "$USER in $HOME"']
    )
    assert (done.status, done.out) == (0, f"user{os.getuid()} in {newcomer.home}\n"), done
    done = newcomer.run([*hidden, *nameless, "env", "-uHOME", "pai", "list-jobs"])
    assert done.status == 1 and "There is no home folder: HOME names none" in done.err, done
    assert "export HOME=" in done.err
    assert not (newcomer.project / "~").exists()
