"""Causes of failure, recognised in what interpreter, shell, loader and kernel really write."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from paiprotocol.jobs import exit_spec, match_exit
from paiprotocol.jobs.exit_codes import ExitMatch
from paiprotocol.jobs.failure_causes import PYPI_NAMES
from paiprotocol.jobs.log_end import FINAL_LINES, SEARCHED_BYTES

LOGS = Path(__file__).parent / "failure_logs"
PYTHON = sys.executable


def fail(*command: str, folder: Path | None = None, **environment: str) -> tuple[int, bytes]:
    """Run a command that fails; returns its exit status as a shell shows it, and what it wrote."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        check=False,
    )
    return (done.returncode if done.returncode >= 0 else 128 - done.returncode), done.stdout


def python(program: str, *options: str) -> ExitMatch:
    return match_exit(*fail(PYTHON, "-I", *options, "-c", program))


def bash(script: str, folder: Path | None = None) -> ExitMatch:
    return match_exit(*fail("bash", "-c", script, folder=folder))


# -- Python ---------------------------------------------------------------------------------------


def test_missing_module_of_an_unknown_name_may_be_a_private_one() -> None:
    found = python("import no_such_module_here")
    assert (found.code, found.matched) == (232, "ModuleNotFoundError: No module named 'no_such_module_here'")
    assert found.reason == "The module no_such_module_here is not installed where the task runs"
    assert found.solution.startswith("Upload a module of your own with --sources. ")
    # A public index may have a stranger's package of this name.
    assert "--pip-installs no_such_module_here" not in found.solution
    assert exit_spec(found.code).behavior == "PERMANENT"


def test_package_that_is_known_by_its_own_name_is_suggested() -> None:
    assert "Add --pip-installs torch (" in python("import torch.nn", "-S").solution


@pytest.mark.parametrize(
    ("module", "package"),
    [("cv2", "opencv-python-headless"), ("PIL", "pillow"), ("sklearn", "scikit-learn"), ("yaml", "pyyaml")],
)
def test_package_of_a_module_with_another_name_is_suggested(module: str, package: str) -> None:
    assert PYPI_NAMES[module] == package
    # -S: none of them is found, whatever is installed here.
    found = python(f"import {module}.part", "-S")
    assert f"--pip-installs {package} " in found.solution


@pytest.mark.parametrize("arguments", [["-m", "no_such_module"], ["-m", "no_such_module.part"]])
def test_missing_main_module_is_an_import_error(arguments: list[str]) -> None:
    found = match_exit(*fail(PYTHON, *arguments))
    assert found.code == 232
    assert found.reason.startswith("The module no_such_module")


def test_name_that_a_module_does_not_have_is_an_import_error() -> None:
    found = python("from os import no_such_name")
    assert found.code == 232
    assert "cannot import name 'no_such_name' from 'os'" in found.reason


def test_own_file_that_hides_a_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("")
    (tmp_path / "main.py").write_text("import numpy.linalg")
    found = match_exit(*fail(PYTHON, "main.py", folder=tmp_path))
    assert found.code == 232
    assert "rename it" in found.solution


@pytest.mark.parametrize(
    ("program", "part"),
    [
        ("def f(:\n  pass", "invalid syntax"),
        ("x = (1,", "was never closed"),
        ("print 'x'", "Missing parentheses"),
        ("x = 'abc", "unterminated string literal"),
        ("if True\n  pass", "expected ':'"),
        ("x = [1 2]", "Perhaps you forgot a comma"),
        ("x = 1\n  y = 2", "unexpected indent"),
        ("if True:\nx = 1", "expected an indented block"),
        ("if True:\n\tx = 1\n        y = 2", "inconsistent use of tabs"),
    ],
)
def test_syntax_error_names_file_and_line(tmp_path: Path, program: str, part: str) -> None:
    (tmp_path / "train.py").write_text(program)
    found = match_exit(*fail(PYTHON, "train.py", folder=tmp_path))
    assert found.code == 231
    assert re.match(r"Python cannot read .*train\.py, line \d: ", found.reason)
    assert part in found.reason


def test_missing_data_file_is_named() -> None:
    found = python("open('data/train.csv')")
    assert found.code == 229
    assert found.reason == "The file 'data/train.csv' does not exist where the task runs"
    assert "--sources" in found.solution


def test_missing_program_file_is_named(tmp_path: Path) -> None:
    status, log = fail(PYTHON, "train.py", folder=tmp_path)
    assert status == 2
    found = match_exit(status, log)
    assert (found.code, "train.py does not exist" in found.reason) == (229, True)


def test_memory_error_is_permanent_and_suggests_more_memory() -> None:
    found = python("bytearray(1 << 62)")
    assert (found.code, found.matched) == (221, "MemoryError")
    assert "--mem" in found.solution
    assert exit_spec(found.code).behavior == "PERMANENT"


def test_memory_limit_of_the_kernel_is_recognised_in_a_program() -> None:
    script = f"ulimit -v 400000; {PYTHON} -I -c 'x = bytearray(1 << 30)'"
    assert bash(script).code == 221


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (254, "task.sh: fork: Resource temporarily unavailable"),
        (1, "task.sh: line 3: fork: retry: Resource temporarily unavailable"),
        (2, "task.sh: 3: Cannot fork"),
    ],
)
def test_shell_that_cannot_fork_is_explained(status: int, line: str) -> None:
    found = match_exit(status, line)
    assert found.reason.startswith("The task could not start another process or thread")
    assert "`processes`" in found.solution


def test_program_that_cannot_fork_is_explained() -> None:
    found = python("raise BlockingIOError(11, 'Resource temporarily unavailable')")
    assert found.reason.startswith("The task could not start another process or thread")
    found = python("""raise RuntimeError("can't start new thread")""")
    assert found.reason.startswith("The task could not start another process or thread")


def test_full_disk_is_explained_and_keeps_the_retries_of_the_job() -> None:
    found = python("f = open('/dev/full', 'w', buffering=1); f.write('x\\n')")
    assert (found.code, found.matched) == (255, "OSError: [Errno 28] No space left on device")
    assert found.reason == "The disk of the folder that the task writes to is used up"


def test_missing_shared_library_of_a_module_is_named(tmp_path: Path) -> None:
    _without_libc(Path(msgspec._core.__file__), tmp_path / "native.so")
    found = match_exit(*fail(PYTHON, "-c", "import native", folder=tmp_path))
    assert found.code == 232
    assert found.reason == "The shared library libX.so.6 is missing where the task runs"


def test_unknown_exception_is_quoted() -> None:
    found = python("raise ValueError('bad learning rate')")
    assert (found.code, found.matched) == (255, None)
    assert found.reason == "The program raised ValueError: bad learning rate"


# -- shell and loader -----------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_missing_command_is_named(shell: str) -> None:
    found = match_exit(*fail(shell, "-c", "no-such-command --x"))
    assert found.code == 220
    assert re.search(r"no-such-command does not exist where the task runs", found.reason)


def test_python_without_a_number_suggests_python3(tmp_path: Path) -> None:
    status, log = fail("/bin/bash", "-c", "python train.py", PATH=str(tmp_path))
    assert "python3" in match_exit(status, log).solution


def test_missing_script_is_named() -> None:
    found = bash("./run.sh")
    assert found.code == 220
    assert found.reason == "./run.sh does not exist where the task runs"


def test_script_that_is_not_executable_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("true\n")
    found = bash("./run.sh", tmp_path)
    assert found.code == 220
    assert "chmod +x ./run.sh" in found.solution


def test_python_script_that_is_not_executable_is_started_with_python(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    found = bash("./train.py", tmp_path)
    assert found.reason == "./train.py is not executable" and found.solution.endswith("python ./train.py")


def test_script_of_windows_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_bytes(b"#!/bin/bash\r\ntrue\r\n")
    (tmp_path / "run.sh").chmod(0o755)
    found = bash("./run.sh", tmp_path)
    assert found.code == 220
    assert "dos2unix" in found.solution


def test_program_of_another_machine_cannot_start(tmp_path: Path) -> None:
    program = bytearray(Path(shutil.which("true") or "").read_bytes())
    program[18:20] = b"\xff\x00"  # the number of a machine that nobody builds
    (tmp_path / "tool").write_bytes(program)
    (tmp_path / "tool").chmod(0o755)
    found = bash("./tool", tmp_path)
    assert (found.code, found.reason) == (220, "./tool is no program for this kind of machine")


def test_missing_shared_library_of_a_program_is_named(tmp_path: Path) -> None:
    _without_libc(Path(shutil.which("true") or ""), tmp_path / "tool")
    found = bash("./tool", tmp_path)
    assert (found.code, found.reason) == (220, "The shared library libX.so.6 is missing where the task runs")


def _without_libc(program: Path, copy: Path) -> None:
    """Copy a program or library so that it needs a library which does not exist."""
    content = program.read_bytes()
    assert b"\0libc.so.6\0" in content
    copy.write_bytes(content.replace(b"\0libc.so.6\0", b"\0libX.so.6\0"))
    copy.chmod(0o755)


def test_killed_child_is_explained(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("sh -c 'kill -KILL $$'\nexit 1\n")
    status, log = fail("bash", "run.sh", folder=tmp_path)
    assert b"Killed" in log
    found = match_exit(status, log)
    assert found.code == 255
    assert "killed (SIGKILL), most often by the kernel because memory ran out" in found.reason
    assert "--mem" in found.solution


def test_killed_task_keeps_its_code_and_is_explained(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("sh -c 'kill -KILL $$'\n")
    status, log = fail("bash", "run.sh", folder=tmp_path)
    found = match_exit(status, log)
    assert (status, found.code) == (137, 137)
    assert "--mem" in found.solution


def test_copy_to_a_full_disk_is_explained() -> None:
    found = bash("cp /etc/passwd /dev/full")
    assert (found.code, "used up" in found.reason) == (255, True)


# -- what was captured on a machine with a GPU: PyTorch 2.11, NCCL 2.28, CuPy, JAX ----------------------


def captured(name: str) -> ExitMatch:
    """Classify a captured log: the first line names the versions, the last one the exit status."""
    text = (LOGS / f"{name}.txt").read_text()
    _, _, log = text.partition("\n")
    log, _, status = log.rpartition("# exit status ")
    return match_exit(int(status), log)


@pytest.mark.parametrize("name", ["torch-oom", "torchrun-failure", "jax-oom", "cupy-oom"])
def test_gpu_out_of_memory_is_226(name: str) -> None:
    found = captured(name)
    assert found.code == 226
    assert "smaller batch" in found.solution


@pytest.mark.parametrize(
    ("name", "code"), [("nccl-watchdog", 134), ("gloo-timeout", 255), ("store-join-timeout", 255)]
)
def test_timeout_between_processes_may_be_retried_and_is_explained(name: str, code: int) -> None:
    found = captured(name)
    assert found.code == code
    assert "lost each other" in found.reason
    assert "pai logs" in found.solution
    assert exit_spec(code).behavior == "UNKNOWN"


@pytest.mark.parametrize(
    ("name", "reason", "solution"),
    [
        ("dataloader-shm", "shared memory", "shmMB"),
        ("no-gpu", "a GPU that the task does not have", "--gpu"),
        ("invalid-ordinal", "a GPU that the task does not have", "--gpu"),
        ("nccl-duplicate-gpu", "the same GPU", "set_device"),
        ("device-assert", "index out of range", "CUDA_LAUNCH_BLOCKING=1"),
        ("illegal-access", "index out of range", "CUDA_LAUNCH_BLOCKING=1"),
    ],
)
def test_error_on_a_gpu_is_explained(name: str, reason: str, solution: str) -> None:
    found = captured(name)
    assert found.code == 255
    assert reason in found.reason
    assert solution in found.solution


def test_exception_raised_from_another_one_counts() -> None:
    found = captured("torch-oom-raised-from-except")
    assert (found.code, found.reason) == (255, "The program raised ValueError: training failed")


@pytest.mark.parametrize("name", ["gloo-peer-died", "nccl-peer-died", "two-devices"])
def test_other_exception_of_pytorch_is_quoted(name: str) -> None:
    found = captured(name)
    assert (found.code, found.solution) == (255, "")
    assert found.reason.startswith("The program raised ")


def test_first_failure_is_the_cause_of_timeouts_of_the_others() -> None:
    oom = (LOGS / "torch-oom.txt").read_text()
    gloo = (LOGS / "gloo-timeout.txt").read_text()
    assert match_exit(1, oom + gloo).code == 226


def test_every_captured_log_names_its_versions_and_is_used() -> None:
    tests = Path(__file__).read_text()
    for log in LOGS.iterdir():
        assert f'"{log.stem}"' in tests
        assert re.match(rf"# {log.stem}; .*python Python 3\.\d+", log.read_text())


# -- what must not be recognised -------------------------------------------------------------------

TRACEBACK = b"""Traceback (most recent call last):
  File "train.py", line 1, in <module>
    import cv2
ModuleNotFoundError: No module named 'cv2'
"""


@pytest.mark.parametrize(
    "text",
    [
        "ModuleNotFoundError: No module named 'x'",
        "ImportError: x",
        "MemoryError",
        "SyntaxError: invalid syntax",
        "FileNotFoundError: [Errno 2] No such file or directory: 'x'",
        "bash: foo: command not found",
        "foo: error while loading shared libraries: libx.so: cannot open shared object file",
    ],
)
def test_program_that_only_prints_such_a_text_fails_for_another_reason(text: str) -> None:
    found = bash(f'echo "{text}"; exit 3')
    assert (found.code, found.reason) == (255, "")


def test_success_has_no_cause() -> None:
    assert match_exit(0, TRACEBACK) == ExitMatch(0)


def test_caught_exception_does_not_explain_a_later_one() -> None:
    found = python(
        "import traceback\n"
        "try:\n    import no_such_module\nexcept ImportError:\n    traceback.print_exc()\n"
        "raise RuntimeError('diverged')"
    )
    assert (found.code, found.reason) == (255, "The program raised RuntimeError: diverged")


def test_caught_exception_long_before_another_end_does_not_count() -> None:
    found = python(
        "import sys, traceback\n"
        "try:\n    import no_such_module\nexcept ImportError:\n    traceback.print_exc(file=sys.stdout)\n"
        f"for step in range({FINAL_LINES}): print('step', step)\n"
        "sys.exit(3)"
    )
    assert (found.code, found.reason) == (255, "")


@pytest.mark.parametrize("link", ["raise KeyError('x')", "raise KeyError('x') from error"])
def test_last_of_chained_tracebacks_counts(link: str) -> None:
    found = python(f"try:\n    import no_such_module\nexcept ImportError as error:\n    {link}")
    assert (found.code, found.reason) == (255, "The program raised KeyError: 'x'")
    found = python("try:\n    {}['x']\nexcept KeyError as error:\n    import no_such_module")
    assert found.code == 232


def test_exception_that_python_ignores_at_exit_does_not_count() -> None:
    found = python(
        "class Late:\n    def __del__(self): open('no-such-file')\nlate = Late()\nimport no_such_module"
    )
    assert found.code == 232


def test_output_that_was_buffered_follows_the_traceback() -> None:
    found = python("for n in range(1000): print(n)\nimport no_such_module")
    assert found.code == 232


def test_end_of_a_long_log_is_enough() -> None:
    noise = b"epoch 1 loss 0.5\n" * 1_000_000
    assert match_exit(1, noise + TRACEBACK).code == 232
    assert match_exit(1, TRACEBACK + noise).code == 255
    assert match_exit(1, TRACEBACK + noise[: SEARCHED_BYTES // 2]).code == 232


@pytest.mark.parametrize(
    "log",
    [
        TRACEBACK.replace(b"ModuleNotFoundError", b"\x1b[1;35mModuleNotFoundError\x1b[0m"),
        TRACEBACK.replace(b"  File ", b'\x1b[0m  File \x1b[35m').replace(b"\n", b"\x1b[0m\n"),
        b"  3%|#   | 3/100\r" + TRACEBACK,
        TRACEBACK.replace(b"\n", b"\r\n"),
        b"".join(b"[rank1]: " + line for line in TRACEBACK.splitlines(keepends=True)),
        b"".join(b"[default0]:" + line for line in TRACEBACK.splitlines(keepends=True)),
        b"".join(b"12: " + line for line in TRACEBACK.splitlines(keepends=True)),
        b"".join(b"[1,0]<stderr>:" + line for line in TRACEBACK.splitlines(keepends=True)),
        b"".join(
            b"[rank0]: " + line + b"[rank1]: " + line for line in TRACEBACK.splitlines(keepends=True)
        ),
    ],
)  # fmt: skip
def test_colours_progress_bars_and_prefixes_do_not_hide_a_traceback(log: bytes) -> None:
    found = match_exit(1, log)
    assert (found.code, found.matched) == (232, "ModuleNotFoundError: No module named 'cv2'")


def test_colours_of_the_interpreter_do_not_hide_a_traceback() -> None:
    status, log = fail(PYTHON, "-c", "import no_such_module", FORCE_COLOR="1")
    if sys.version_info >= (3, 13):
        assert b"\x1b[" in log
    assert match_exit(status, log).code == 232


@pytest.mark.parametrize(
    "piece", [b"a.", b"python", b"line 1: ", b": ", b"NCCL operation ", b'  File "', b"\x1b[", b"[rank"]
)
def test_one_endless_line_is_searched_in_linear_time(piece: bytes) -> None:
    line = piece * (SEARCHED_BYTES // len(piece))
    begun = time.thread_time()
    for _ in range(200):
        line.lower().find(b"no such bytes")
    unit = time.thread_time() - begun
    for status in (1, 126, 127, 134):
        begun = time.thread_time()
        match_exit(status, line)
        assert time.thread_time() - begun < 40 * unit + 0.05


# Beginnings and repeated parts of what the patterns look for.
_PARTS = (
    *(
        "[a-",
        "[1",
        "[rank1]: ",
        "1: ",
        "[1,1]<std",
        " ",
        "a.",
        "a",
        "1",
        "\t",
        "a.so",
        "python: ",
        "line 1: 1 ",
        "Killed ",
    ),
    *(
        "CUDA ",
        "HIP driver runtime error ",
        "unable to a",
        "DataLoader worker ",
        "No module named a.",
        "Errno 2] ",
    ),
    *(
        "error while loading shared libraries: ",
        "can't open file '",
        "terminate called ",
        "ERROR: No matching ",
    ),
)


@pytest.mark.parametrize("part", _PARTS)
@pytest.mark.parametrize("start", ["", "[", 'Traceback (most recent call last):\n  File "x", line 1\nA: '])
def test_no_text_of_a_job_takes_the_server_long(start: str, part: str) -> None:
    """The server reads it on its event loop: meanwhile all requests wait."""
    length = SEARCHED_BYTES // 16
    line = (start + part[:1] + part[1:] * length if len(part) > 1 else start + part * length)[: length - 1]
    lines = [line, (start + part * length)[: length - 1]] * 8
    began = time.process_time()
    match_exit(1, "\n".join(lines).encode())
    assert time.process_time() - began < 2


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 8100, "0", "\N{ARABIC-INDIC DIGIT TWO}"])
def test_line_number_of_a_traceback_may_be_any(number: str) -> None:
    log = f'Traceback (most recent call last):\n  File "x", line {number}\n    x\nValueError: x\n'
    assert match_exit(1, log.encode()) is not None
