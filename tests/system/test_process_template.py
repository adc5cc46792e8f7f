"""The suite's own processes, which `support.process_template` forks: what they inherit, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import process_template
from support.cli_user import CliUser
from support.paths import TESTS
from support.process_template import TemplateDied, fork_server, run_command
from support.server_fixture import eventually

SERVER, COMMAND = process_template._SERVER, process_template._USER_PROGRAM


@pytest.fixture(name="nobody")
def nobody_fixture(tmp_path: Path) -> CliUser:
    """A user without a cluster."""
    return CliUser(tmp_path)


@pytest.fixture(name="own_templates")
def own_templates_fixture(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[dict[str, process_template._RunningTemplate]]:
    """No template runs yet; those of this test end with it."""
    templates: dict[str, process_template._RunningTemplate] = {}
    monkeypatch.setattr(process_template, "_templates", templates)
    yield templates
    for template in templates.values():
        template.requests.close()
        template.process.wait(30)


def template_pid(kind: str) -> int:
    return process_template._running_template(kind).process.pid


def printed_by(program: str, folder: Path) -> str:
    """Output of a Python file in a forked process."""
    file, output = folder / "program.py", folder / "output"
    file.write_text(program)
    with output.open("wb") as opened:
        fork_server((sys.executable, str(file)), [], os.environ, opened).wait(90)
    return output.read_text()


def test_ctrl_c_ends_no_template(nobody: CliUser) -> None:
    assert nobody.pai("--version").status == 0
    pid = template_pid(COMMAND)
    os.kill(pid, signal.SIGINT)
    assert nobody.pai("--version").status == 0
    assert template_pid(COMMAND) == pid


@pytest.mark.parametrize("is_ignored", [False, True])
def test_forked_process_inherits_the_handling_of_ctrl_c(tmp_path: Path, is_ignored: bool) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if is_ignored else signal.default_int_handler)
    try:
        printed = printed_by(
            "import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)", tmp_path
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert printed == f"{is_ignored}\n"


def test_forked_process_inherits_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        printed = printed_by("import os; print(oct(os.umask(0)))", tmp_path)
    finally:
        os.umask(before)
    assert printed == "0o27\n"


@pytest.mark.slow
def test_killed_template_is_replaced(
    nobody: CliUser, own_templates: dict[str, process_template._RunningTemplate]
) -> None:
    assert nobody.pai("--version").status == 0
    killed = own_templates[COMMAND].process
    killed.kill()
    killed.wait()
    assert nobody.pai("--version").status == 0
    assert own_templates[COMMAND].process.pid != killed.pid


def test_template_that_does_not_start_is_named(
    nobody: CliUser,
    own_templates: dict[str, process_template._RunningTemplate],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit(7)")
    monkeypatch.setattr(process_template, "__file__", str(broken))
    with pytest.raises(TemplateDied, match="failed with status 7"):
        nobody.pai("--version")


def test_threads_start_one_template(
    own_templates: dict[str, process_template._RunningTemplate], monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = process_template._start_template, []
    all_threads = threading.Barrier(4)

    def note(kind: str) -> process_template._RunningTemplate:
        started.append(kind)
        return start(kind)

    def use() -> None:
        all_threads.wait(30)
        process_template._running_template(COMMAND)

    monkeypatch.setattr(process_template, "_start_template", note)
    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert started == [COMMAND]


def test_abandoned_process_ends_no_template(tmp_path: Path) -> None:
    ends = tmp_path / "ends"
    os.mkfifo(ends)
    program = tmp_path / "program.py"
    program.write_text(f"open({str(ends)!r}).read()")
    with (tmp_path / "output").open("wb") as output:
        process = fork_server((sys.executable, str(program)), [], os.environ, output)
        pid = template_pid(SERVER)
        process._status.close()
        ends.write_text("")
        eventually(lambda: not Path(f"/proc/{process.pid}").exists())
    assert printed_by("print('still forked')", tmp_path) == "still forked\n"
    assert template_pid(SERVER) == pid


def test_interrupted_command_is_killed(nobody: CliUser, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = []
    fork = process_template._fork

    def note(*arguments: object) -> process_template.ForkedProcess:
        process = fork(*arguments)  # type: ignore[arg-type]
        pids.append(process.pid)
        return process

    def interrupt(*arguments: object) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(process_template, "_fork", note)
    monkeypatch.setattr(process_template, "_read_to_end", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_command(["pai", "--version"], nobody.env(), nobody.project, "", 90)
    [pid] = pids
    assert not Path(f"/proc/{pid}").exists()


def test_command_too_long_for_one_message_starts_the_executable(nobody: CliUser) -> None:
    done = nobody.pai("--version", "\u00e9" * 60_000)  # six bytes each in a message
    assert done.status == 0, done


@pytest.mark.parametrize(
    "end",
    [
        "return None",
        "return 3",
        "raise SystemExit",
        "raise SystemExit(5)",
        "raise SystemExit('said at the end')",
        "print(ascii(sys.stdin.readline())); return 0",
        "atexit.register(print, 'at the end'); return 0",
        "sys.stdout = open('/dev/full', 'w'); print('lost'); return 0",
    ],
)
def test_forked_program_ends_as_the_executable(tmp_path: Path, end: str) -> None:
    (tmp_path / "program.py").write_text(f"import atexit, sys\ndef run():\n    {end}\n")
    forked = (
        "from support import process_template; process_template.USER_PROGRAMS['x'] = ('program', 'run'); "
        "process_template._run_user_program('x', [])"
    )
    executed, as_forked = (
        subprocess.run(
            [sys.executable, "-c", statements],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            input=b"typed\r\n",
            capture_output=True,
            timeout=90,
        )
        for statements in ("import sys, program; sys.exit(program.run())", forked)
    )
    assert (as_forked.returncode, as_forked.stdout) == (executed.returncode, executed.stdout)
    if "/dev/full" not in end:  # of which the interpreter says more
        assert as_forked.stderr == executed.stderr
