"""A budget: what a command imports is time a person waits, every time.

Each of these modules costs a good part of what a bare interpreter takes to start. Who needs one on the way
of a command must load it where it is used, or find another way.
"""

import subprocess
import sys

import pytest

from support.import_budget import HEAVY, NOT_EVEN, OTHER_ROOMS, imported


@pytest.mark.parametrize("words", [["--version"], ["--help"], []])
def test_version_and_help_import_almost_nothing(person, words: list[str]) -> None:
    assert not imported(person, *words) & (HEAVY | NOT_EVEN | OTHER_ROOMS)


@pytest.mark.parametrize(
    "words",
    [
        ["list-jobs"],
        ["list-jobs", "-o", "json"],
        ["list-jobs", "--since", "1h", "--tag", "x"],
        ["tag-job", "{job}"],
        ["job-status", "{job}", "events"],
        ["job-status", "{job}"],
        ["logs", "{job}"],
        ["wait", "{job}"],
        ["connect-job", "{job}"],
        ["stop-job", "{job}"],
        ["cluster-resources"],
        ["cluster-status"],
        ["list-clusters"],
        ["set"],
    ],
)
def test_read_only_commands_import_little(person, words: list[str]) -> None:
    job = person.pai("sub", "--wait", "-o", "json", "-j", "looked_$", "true")
    assert job.status == 0
    name = __import__("json").loads(job.out)["jobName"]
    got = imported(person, *(word.format(job=name) for word in words))
    assert not got & (HEAVY | OTHER_ROOMS | {"hashlib", "difflib"})


def test_followed_sub_imports_little(person) -> None:
    person.write(train__py="print(1)")
    got = imported(person, "sub", "--follow", "python", "train.py")
    assert not got & (HEAVY | (OTHER_ROOMS - {"openpaisdk.jobs.sources"}))


def test_command_imports_only_its_own_modules(person) -> None:
    got = imported(person, "list-jobs")
    ours = {m for m in got if m.startswith("openpaisdk.cli.")}
    assert ours == {
        f"openpaisdk.cli.{m}" for m in ("main", "commands", "parser", "list_jobs", "follow_output")
    }


def test_package_import_is_lazy() -> None:
    code = "import sys; before = set(sys.modules); import openpaisdk; print(*(set(sys.modules) - before))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(out.split()) <= {"openpaisdk", "openpaisdk._version", "__future__"}
