"""Programs that tests and benchmarks call by name: a bare Debian has them, or the calling file installs them.

A developer's machine has more. What is called by name and missing elsewhere is found here; .ci/bare hides
such programs from the suite, which finds the rest.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from support.external_services import bare_programs
from support.paths import REPOSITORY, TESTS

# Of the environment that the tests run in.
OURS = {"pai", "opai", "paddlecloud", "paicluster", "python"}
# Functions of these modules start a program, and so do functions of ours with these names.
MODULES = {"subprocess", "asyncio"}
STARTS = {"run", "Popen", "check_output", "check_call", "call", "create_subprocess_exec"}
# Programs that people have, whose names mean nothing else: looked for in lists that become commands elsewhere
# and in text for a shell.
POPULAR = {
    *("bzip2", "chattr", "cmake", "curl", "dig", "fusermount", "g++", "gcc", "gdb", "htop", "ifconfig"),
    *(
        "iptables",
        "java",
        "javac",
        "jq",
        "killall",
        "lsof",
        "mkfs.ext4",
        "nc",
        "ncat",
        "netstat",
        "npm",
        "npx",
    ),
    *("pgrep", "ping", "pkill", "pstree", "rsync", "scp", "sftp", "socat", "sqlite3", "ssh-keygen", "sshd"),
    *("strace", "sudo", "sysctl", "unzip", "uptime", "vmstat", "wget", "xxd", "xz"),
}
# In text that is not run.
NOT_RUN = {
    "bench/protocol.py": {"wget"},
    "tests/paicluster/engines/slurm/test_sbatch_command_and_job_states.py": {"sudo"},
    "tests/paicluster/server/test_startup_and_shutdown.py": {"sudo"},
}
_POPULAR_WORD = re.compile("|".join(map(re.escape, sorted(POPULAR))))
_BEFORE_A_COMMAND = re.compile(r"\n|;|&&|\|\||\||&|\$\(|`|\bthen\s|\bdo\s|\belse\s")
_PREFIX = re.compile(r"\s*(?:(?:\w+=\S*|exec|if|while|until|!|env|setsid|nohup|timeout \S+)\s+)*")
_PROGRAM = re.compile(r"[a-z][\w.+-]*")


class Programs(NamedTuple):
    """What one file says about programs."""

    called: set[str]
    provided: set[str]
    """Installed by `debian`, or asked for by `shutil.which` in the function that names them."""
    imported: set[str]
    """Paths of modules, without suffix."""


@cache
def programs_of(file: Path) -> Programs:
    found = Programs(set(), set(), set())
    source = file.read_text(encoding="utf-8")
    tree, asks = ast.parse(source), "shutil.which(" in source
    constants: dict[str, ast.expr] = {}
    not_text: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr():
                not_text.add(id(node.value))
            case ast.Assign(targets=[ast.Name(id=name)]):
                constants[name] = node.value
            case ast.ImportFrom(module=str(module)):
                path = module.replace(".", "/")
                found.imported.update((path, *(f"{path}/{alias.name}" for alias in node.names)))
            case ast.FunctionDef() if asks and "shutil.which(" in ast.unparse(node):
                found.provided.update(words_in(node))
            case ast.Call(func=ast.Name(id="debian")):
                [value] = [keyword.value for keyword in node.keywords if keyword.arg == "commands"]
                found.provided.update(
                    words_in(constants.get(value.id, value) if isinstance(value, ast.Name) else value)
                )
            case ast.Call(args=[first, *_]):
                found.called.update(started_by(node.func, first))
            case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]):
                found.called.update({*text_of(first)} & POPULAR)
            case ast.Constant() | ast.JoinedStr() if id(node) not in not_text:
                found.called.update(*(shell_commands(text) & POPULAR for text in text_of(node)))
    return found


def started_by(function: ast.expr, first: ast.expr) -> Iterator[str]:
    """Programs that this call starts by name, if it starts any."""
    match function, first:
        case ast.Attribute(value=ast.Name(id=module), attr=name), _ if module in MODULES and name in STARTS:
            pass
        case ast.Attribute(attr=name), ast.List() | ast.Tuple() if name in STARTS:
            pass  # a `run` of another object, with a command and not a word
        case ast.Name(id=name), ast.Constant() if name in STARTS:
            pass
        case _:
            return
    if isinstance(first, ast.List | ast.Tuple) and first.elts:
        first = first.elts[0]
    yield from (text for text in text_of(first) if _PROGRAM.fullmatch(text))


def shell_commands(text: str) -> set[str]:
    if not _POPULAR_WORD.search(text):
        return set()
    parts = (_PREFIX.sub("", part, count=1) for part in _BEFORE_A_COMMAND.split(text))
    # A word alone may be anything; what is started has arguments.
    return {part.split(None, 1)[0] for part in parts if " " in part.strip()}


def text_of(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)


def words_in(tree: ast.AST) -> Iterator[str]:
    return (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def files_behind(file: Path) -> set[Path]:
    """The file, what it imports of `support` and `bench`, and the conftest.py files above it."""
    found: set[Path] = set()
    left = [file, *(folder / "conftest.py" for folder in file.parents if TESTS in (folder, *folder.parents))]
    while left:
        one = left.pop()
        if one not in found and is_file(one):
            found.add(one)
            names = (name for name in programs_of(one).imported if name.startswith(("support/", "bench/")))
            left += [top / f"{name}.py" for name in names for top in (TESTS, REPOSITORY)]
    return found


@cache
def is_file(path: Path) -> bool:
    return path.is_file()


def missing_programs(file: Path) -> set[str]:
    """Programs that the file calls, and that a bare Debian does not have or get."""
    called = programs_of(file).called - bare_programs() - OURS
    return (
        called.difference(*(programs_of(each).provided for each in files_behind(file))) if called else called
    )


@pytest.mark.parametrize("folder", [pytest.param("tests", marks=pytest.mark.slow), "bench"])
def test_every_program_is_there_or_installed(folder: str) -> None:
    found = {}
    for file in sorted((REPOSITORY / folder).rglob("*.py")):
        name = str(file.relative_to(REPOSITORY))
        if file != Path(__file__) and (programs := missing_programs(file) - NOT_RUN.get(name, set())):
            found[name] = sorted(programs)
    assert not found, f"A bare Debian has none of these, and no fixture installs them: {found}"


@pytest.mark.parametrize(
    "text",
    [
        'subprocess.run(["pstree", "-p"])',
        'subprocess.Popen(("pstree", "-p"))',
        'run("pstree", "-p")',
        'command = ["pstree", *words]',
        'job("name", "cd /tmp && pstree -p | cat")',
        'sh(f"pstree {pid}")',
    ],
)
def test_call_of_a_program_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "calls.py").write_text(text)
    assert missing_programs(tmp_path / "calls.py") == {"pstree"}


@pytest.mark.parametrize(
    "text",
    [
        'debian(["psmisc"], commands=["pstree"])\nsubprocess.run(["pstree", "-p"])',
        'def rows():\n    if shutil.which("pstree"): subprocess.run(["pstree", "-p"])',
        '"""pstree -p shows it."""',
        'subprocess.run(["ls", "-l"])',
    ],
)
def test_installed_program_is_not_missing(text: str, tmp_path: Path) -> None:
    (tmp_path / "calls.py").write_text(text)
    assert missing_programs(tmp_path / "calls.py") == set()


ASK = """
import shutil
from support.external_services import debian
assert shutil.which("git")
assert shutil.which("unpromised") is None, shutil.which("unpromised")
debian([], commands=["unpromised"])
assert shutil.which("unpromised")
"""


def test_ci_hides_a_program_until_a_test_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unpromised").write_text("#!/bin/sh\n")
    (tmp_path / "unpromised").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    command = [REPOSITORY / ".ci/bare", sys.executable, "-c", ASK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
