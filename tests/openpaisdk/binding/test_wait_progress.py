"""``wait()`` shows progress and the reason of a failure to a person, and nothing to a pipe."""

import os
import pty
import re
import subprocess
import sys

import pytest

FAILS = """\
from openpaisdk import Job
job = Job("shown_$").one_liner("sleep 0.2; echo it is broken >&2; exit 3", mem="64m", sources=[]).submit()
print(job.wait({arguments}))
"""
PENDING = """\
from openpaisdk import Job
job = Job("never_$").one_liner("true", gpu=1000, mem="64m", sources=[]).submit()
try:
    job.wait({arguments})
except TimeoutError as error:
    print(error)
finally:
    job.stop()
"""
IN_NOTEBOOK = """\
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.kernel = object()  # what tells a notebook's shell from that of a terminal
shell.run_cell({code!r}).raise_error()
"""


def on_pipe(code: str) -> tuple[str, str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def on_terminal(code: str) -> str:
    master, slave = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:  # the program has closed the terminal
                break
            if not data:
                break
            shown += data
    os.close(master)
    assert process.returncode == 0, shown
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")


def check_shown(text: str) -> None:
    assert re.search(r"^shown_\w+ RUNNING$", text, re.MULTILINE), text
    assert re.search(r"^shown_\w+ FAILED after .*: exit code 3", text, re.MULTILINE), text
    assert re.search(r"^  last line  +it is broken$", text, re.MULTILINE), text


def test_script_in_a_pipe_prints_only_its_own_output(here) -> None:
    assert on_pipe(FAILS.format(arguments="")) == ("FAILED\n", "")
    assert on_pipe(FAILS.format(arguments="timeout=60")) == ("FAILED\n", "")


@pytest.mark.parametrize("arguments", ["progress=True", "progress=True, timeout='1m'"])
def test_progress_may_be_switched_on(here, arguments: str) -> None:
    out, err = on_pipe(FAILS.format(arguments=arguments))
    assert out == "FAILED\n"
    check_shown(err)


@pytest.mark.parametrize("arguments", ["", "timeout=60"])
def test_terminal_shows_progress_and_reason(here, arguments: str) -> None:
    check_shown(on_terminal(FAILS.format(arguments=arguments)))


def test_progress_may_be_switched_off(here) -> None:
    assert on_terminal(FAILS.format(arguments="progress=False")) == "FAILED\n"


def test_notebook_shows_progress_and_reason(here) -> None:
    out, err = on_pipe(IN_NOTEBOOK.format(code=FAILS.format(arguments="")))
    check_shown(out)
    assert err == "" and out.endswith("FAILED\n")


def test_pending_reason_is_shown(here) -> None:
    shown = on_terminal(PENDING.format(arguments="timeout=2"))
    assert re.search(r"^never_\w+ WAITING$", shown, re.MULTILINE), shown
    assert re.search(r"^never_\w+: .*(GPU|gpu).*$", shown, re.MULTILINE), shown
    assert "is WAITING after 2 seconds." in shown


def test_success_is_one_line(here) -> None:
    shown = on_terminal(FAILS.replace("exit 3", "exit 0").format(arguments=""))
    assert re.search(r"^shown_\w+ SUCCEEDED after [^:]*$", shown, re.MULTILINE), shown
    assert "last line" not in shown
