"""`pai exec`: commands in running jobs, with pipes and on a terminal."""

import hashlib
import os
import signal
import subprocess
import time

import pytest

from support.cli_user import LIMIT, until
from support.engine_rig import mark, running_with
from support.import_budget import HEAVY, imported
from support.terminal import Terminal, start_on_terminal

# What a program sees of its place and its limits.
LOOK = "cat /proc/self/cgroup; id; pwd; umask; ulimit -Sa; ulimit -Ha; grep SigBlk /proc/self/status"


@pytest.fixture(name="job")
def running_job(user):
    """A job that runs until the test ends."""
    script = f"({LOOK}) >look; env -0 >env; sleep 600"
    words = ("--no-sources", "--mem", "512m", "-j", "exec_$", "--", "sh", "-c", script)
    name = user.pai("sub", *words).out.strip()
    until(lambda: user.pai("exec", name, "--", "test", "-s", "env").status == 0)
    yield name
    user.pai("stop-job", name)


def test_command_runs_in_the_task(user, job: str) -> None:
    done = user.pai("exec", job, "--", "sh", "-c", "echo out; echo err >&2; cat; exit 7", stdin="not sent")
    assert (done.status, done.out, done.err) == (7, "out\n", "err\n"), done
    # The command may also follow without --; options of the job's side come before it.
    done = user.pai("exec", job, "--role", "main", "--index", "0", "ls", "-a")
    assert done.status == 0 and "env" in done.out.split(), done


def test_environment_is_that_of_the_task(user, job: str) -> None:
    ignored = ("PWD", "OLDPWD", "SHLVL", "_", "TERM", "PAI_EXEC_SESSION")
    texts = [user.pai("exec", job, "--", *command).out for command in (["cat", "env"], ["env", "-0"])]
    of_task, of_exec = (
        {line for line in text.split("\0") if line and line.partition("=")[0] not in ignored}
        for text in texts
    )
    assert of_task == of_exec
    assert any(line.startswith("PAI_JOB_NAME=") for line in of_exec)


def test_variables_of_the_job_are_those_of_the_command(user) -> None:
    options = ("--env", "RATE=it's 0.1", "--secret", "KEY=swordfish", "--array", "n=1")
    name = user.pai("sub", "--no-sources", "-j", "env_$", *options, "--", "sleep", "600").out.strip()
    until(lambda: user.state(name) == "RUNNING")
    done = user.pai("exec", name, "--", "sh", "-c", 'echo "$RATE" "$KEY" "$n"')
    assert (done.status, done.out, done.err) == (0, "it's 0.1 swordfish 1\n", ""), done
    done = user.pai("exec", name, "--", "nosuch")
    assert done.status == 127 and "nosuch: not found" in done.err, done
    user.pai("stop-job", name)


def test_input_is_sent_with_i(user, job: str) -> None:
    assert user.pai("exec", "-i", job, "--", "wc", "-c", stdin="1234567").out.strip() == "7"
    assert user.pai("exec", "--stdin", job, "cat", stdin="").out == ""
    # A command that reads no input ends all the same.
    done = user.run(["bash", "-c", f"yes | pai exec -i {job} -- true"])
    assert done.status == 0 and done.err == "", done


def test_bytes_arrive_unchanged(user, job: str) -> None:
    data = os.urandom(3_000_000) + bytes(range(256))
    done = subprocess.run(
        ["pai", "exec", "-i", job, "--", "tee", "copy"],
        input=data,
        capture_output=True,
        env=user.env(),
        timeout=LIMIT,
        check=True,
    )
    assert done.stdout == data
    checksum = user.pai("exec", job, "--", "sha256sum", "copy").out.split()[0]
    assert checksum == hashlib.sha256(data).hexdigest()


@pytest.mark.slow
def test_a_hundred_megabytes_arrive_intact(user, job: str) -> None:
    count = 100
    user.pai("exec", job, "--", "sh", "-c", "head -c 1000000 /dev/urandom >part")
    line = f"i=0; while [ $i -lt {count} ]; do cat part; i=$((i+1)); done"
    there = user.pai("exec", job, "--", "sh", "-c", f"({line}) | sha256sum").out
    here = user.sh(f"pai exec {job} -- sh -c '{line}' >copy && sha256sum <copy; wc -c <copy")
    assert here.out.split()[0] == there.split()[0]
    assert here.out.split()[-1] == str(count * 1_000_000)


def test_output_that_nobody_reads_ends_the_command(user, job: str) -> None:
    word = mark()
    line = f"pai exec {job} -- sh -c ': {word}; while echo y; do :; done' | head -n 3"
    done = user.sh(line)
    assert done.out == "y\ny\ny\n" and "Traceback" not in done.err, done
    until(lambda: not running_with(word))


def test_interrupt_reaches_the_command(user, job: str) -> None:
    script = "trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.05; done"
    process = user.begin("exec", job, "--", "sh", "-c", script)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out, err) == (9, "interrupted\n", "")


@pytest.mark.parametrize("signals", [(signal.SIGINT, signal.SIGINT), (signal.SIGKILL,), (signal.SIGTERM,)])
def test_ended_client_leaves_nothing_behind(user, job: str, signals: tuple[signal.Signals, ...]) -> None:
    word = mark()
    script = f": {word}; trap '' INT HUP; (setsid sh -c ': {word}; sleep 600; :' &); echo ready; sleep 600; :"
    process = user.begin("exec", job, "--", "sh", "-c", script)
    assert process.stdout.readline() == "ready\n"
    assert running_with(word)
    for signum in signals:
        process.send_signal(signum)
        time.sleep(0.2)  # two signals at once are one
    _, err = process.communicate(timeout=LIMIT)
    assert "Traceback" not in err
    assert process.returncode == (130 if len(signals) == 2 else -signals[0])
    until(lambda: not running_with(word))
    assert user.state(job) == "RUNNING"


def test_cgroup_account_and_limits_are_those_of_the_task(user, job: str) -> None:
    done = user.pai("exec", job, "--", "sh", "-c", f"cat look; echo ==; {LOOK}")
    of_task, _, of_exec = done.out.partition("==\n")
    assert of_task and of_task == of_exec


# -- terminal ----------------------------------------------------------------------------------


def test_shell_on_a_terminal(user, job: str) -> None:
    terminal = start_on_terminal(user, "exec", "-t", job, columns=101, lines=31)
    terminal.type("stty size; echo $TERM; tty; echo $((20+22))\n")
    terminal.wait_for("\n42\r\n")
    assert "31 101" in terminal.text and "xterm" in terminal.text and "/dev/pts/" in terminal.text
    terminal.type("sh -c 'echo sleep''ing; exec sleep 600'\n")
    terminal.wait_for("sleeping")
    terminal.type("\x03")  # ends sleep, not the session
    terminal.type("echo $((50+5)); exit 4\n")
    terminal.wait_for("55\r\n")
    assert terminal.finish() == 4


def test_terminal_is_resized_and_restored(user, job: str) -> None:
    terminal = Terminal(
        [
            "sh",
            "-c",
            f"stty -g >before; pai exec --tty {job} -- sh; stty -g >after; cmp before after; echo $?",
        ],
        80,
        24,
        cwd=user.project,
        env=user.env(),
    )
    terminal.type("PS1=; stty size\n")
    terminal.wait_for("24 80")
    for number in range(100):
        terminal.resize(81 + number, 25)
        os.killpg(terminal.process.pid, signal.SIGWINCH)
        time.sleep(0.01)
    terminal.type('until [ "$(stty size)" = "25 180" ]; do sleep 0.05; done; echo resi""zed; exit\n')
    terminal.wait_for("resized")
    assert terminal.finish() == 0
    assert terminal.lines[-2] == "0", terminal.text


def test_terminal_without_a_terminal_here(user, job: str) -> None:
    done = user.pai("exec", "-t", job, "--", "sh", "-c", "test -t 1 && stty size")
    assert done.status == 0 and done.out.split() == ["24", "80"], done


def test_shell_without_a_terminal_here_is_refused(user, job: str) -> None:
    """It would wait for keys forever."""
    done = user.pai("exec", "-t", job)
    assert done.status == 2 and done.out == "", done
    assert f"pai exec -i {job} -- sh" in done.err, done


@pytest.mark.parametrize("text", ["", "piped\n", "piped"])
def test_input_ends_on_a_terminal_too(user, job: str, text: str) -> None:
    done = user.pai("exec", "-i", "-t", job, "--", "sh", "-c", "cat; exit 4", stdin=text)
    assert done.status == 4 and text.strip() in done.out, done


# -- wrong input -------------------------------------------------------------------------------


def test_missing_command_names_both_ways(user) -> None:
    done = user.pai("exec", "train")
    assert done.status == 2
    assert "the command is missing" in done.err and "pai exec -t train opens a shell" in done.err


def test_job_is_missing(user) -> None:
    done = user.pai("exec", "--", "true")
    assert done.status == 2, done
    assert user.pai("exec").status == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--role", "none"], "has no task role 'none'; it has main."),
        (["--index", "7"], "Task role main has 1 task, numbered from 0."),
        (["--index", "x"], "--index"),
        (["--user", "nobody"], "There is no job"),
        (["--shell"], "pai exec has no option --shell."),
    ],
)
def test_wrong_task(user, job: str, words: list[str], text: str) -> None:
    done = user.pai("exec", *words, job, "--", "true")
    assert done.status in (1, 2) and text in done.err and "Traceback" not in done.err, done


def test_job_that_does_not_run(user) -> None:
    done = user.pai("exec", "nowhere", "--", "true")
    assert done.status == 1 and "There is no job 'nowhere'" in done.err, done
    name = user.pai("sub", "--no-sources", "--wait", "-j", "over_$", "true").out.strip()
    done = user.pai("exec", name, "--", "true")
    assert done.status == 1 and "has already ended, so no command can be run in it." in done.err, done
    assert "runs it again" in done.err, "and what to do"


def test_command_that_does_not_exist(user, job: str) -> None:
    done = user.pai("exec", job, "--", "no-such-program", "-x")
    assert (done.status, done.err) == (127, "no-such-program: No such file or directory\n")


def test_exec_imports_little(settled_user, job: str) -> None:
    assert not imported(settled_user, "exec", job, "--", "true") & (HEAVY | {"hashlib", "difflib"})
