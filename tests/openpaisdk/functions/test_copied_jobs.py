"""``pai resubmit`` of a job that calls a function: the copy has calls and results of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import openpaisdk
from openpaisdk import Job
from openpaisdk.binding.cluster import Cluster, SubmittedJob
from openpaisdk.jobs.call_copy import CopiedJob
from paiprotocol.errors import Forbidden, UsageError
from support.python_session import BIN

TIMEOUT_S = 60


def wait(job: str) -> SubmittedJob:
    found = Job(job).select_cluster()
    found.wait(timeout=TIMEOUT_S, progress=False)
    return found


def resubmit(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "pai", "resubmit", *words], capture_output=True, text=True, timeout=TIMEOUT_S
    )


def test_copy_has_a_result_of_its_own(here_on_host: Path) -> None:
    def level() -> str:
        return os.environ.get("LEVEL", "none")

    first = openpaisdk.submit(level)
    assert first.result(TIMEOUT_S) == "none"
    ran = resubmit("-j", "level_copy_$", "--env", "LEVEL=3", "--wait", first.job)
    assert ran.returncode == 0, ran.stderr
    (copy,) = (job.name for job in Cluster().jobs() if job.name.startswith("level_copy_"))
    assert Job(copy).select_cluster().future().result(TIMEOUT_S) == "3"
    assert Job(first.job).select_cluster().future().result(TIMEOUT_S) == "none"


def test_copy_outlives_its_job(here_on_host: Path) -> None:
    """Calls and values go with the last job that needs them."""
    data = os.urandom(2 << 20)
    first = openpaisdk.map(lambda x: data[x], range(5), limit=1)
    assert first.results(TIMEOUT_S) == list(data[:5])
    copy = wait(first.job).resubmit(mem="512m")
    Cluster().delete(first.job)
    assert copy.futures().results(TIMEOUT_S) == list(data[:5])
    again = wait(copy.name).resubmit()
    assert again.futures().results(TIMEOUT_S) == list(data[:5])


def test_copy_with_more_tasks(here_on_host: Path) -> None:
    first = openpaisdk.submit(abs, -1)
    assert first.result(TIMEOUT_S) == 1
    assert wait(first.job).resubmit(instances=2).future().results(TIMEOUT_S) == [1, 1]


def test_copy_with_another_command_is_an_ordinary_job(here_on_host: Path) -> None:
    first = openpaisdk.submit(abs, -1)
    first.result(TIMEOUT_S)
    copy = wait(first.job).resubmit(commands="echo plain")
    assert copy.wait(timeout=TIMEOUT_S, progress=False) == "SUCCEEDED"
    with pytest.raises(UsageError, match="runs commands, not a Python function"):
        copy.future()


def test_function_of_this_machine_is_not_copied_into_an_image(here_on_host: Path) -> None:
    first = openpaisdk.submit(abs, -1)
    first.result(TIMEOUT_S)
    ran = resubmit("-i", "python:3.11", first.job)
    assert ran.returncode == 2 and ran.stdout == ""
    assert ran.stderr == (
        f"pai: The function of {first.job} was pickled for this machine's Python: "
        "a copy cannot have an image.\n"
        '     Call it again from Python: openpaisdk.submit(function, image="python:3.11").\n'
    )


def test_function_of_another_user_is_not_copied(here_on_host: Path) -> None:
    first = openpaisdk.submit(abs, -1)
    config = Cluster().client.job_config(first.job)
    with pytest.raises(Forbidden, match=r"is a function that bob called: .* loading a pickle runs code"):
        CopiedJob.of(config, {}, job=first.job, owner="bob", user="alice")
