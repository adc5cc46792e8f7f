"""Import budget: every import of a command delays each call of it.

Each of these modules takes a good part of the start-up time of a bare interpreter. A command that needs one
must import it where it is used, or avoid it.
"""

import subprocess
import sys

import pytest

from support.import_budget import HEAVY, MEDIUM, OTHER_PACKAGES, imported


@pytest.mark.parametrize("words", [["--version"], ["--help"], []])
def test_version_and_help_import_almost_nothing(user, words: list[str]) -> None:
    assert not imported(user, *words) & (HEAVY | MEDIUM | OTHER_PACKAGES)


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
        ["runs", "{job}"],
        ["runs", "{job}", "-o", "json"],
        ["cluster-resources"],
        ["quota"],
        ["cluster-status"],
        ["list-clusters"],
        ["set"],
    ],
)
def test_read_only_commands_import_little(settled_user, words: list[str]) -> None:
    job = settled_user.pai("sub", "--wait", "-o", "json", "-j", "looked_$", "true")
    assert job.status == 0
    name = __import__("json").loads(job.out)["jobName"]
    got = imported(settled_user, *(word.format(job=name) for word in words))
    assert not got & (HEAVY | OTHER_PACKAGES | {"hashlib", "difflib"})


def test_followed_sub_imports_little(settled_user) -> None:
    settled_user.write(train__py="print(1)")
    got = imported(settled_user, "sub", "--follow", "python", "train.py")
    heavy = got & (HEAVY | (OTHER_PACKAGES - {"openpaisdk.jobs.sources"}))
    assert not heavy


def test_command_imports_only_its_own_modules(settled_user) -> None:
    got = imported(settled_user, "list-jobs")
    ours = {m for m in got if m.startswith("openpaisdk.cli.")}
    assert ours == {f"openpaisdk.cli.{m}" for m in ("main", "commands", "parser", "jobs", "jobs.list_jobs")}


def test_package_import_is_lazy() -> None:
    code = "import sys; before = set(sys.modules); import openpaisdk; print(*(set(sys.modules) - before))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(out.split()) <= {"openpaisdk", "paiprotocol", "paiprotocol._version", "__future__"}
