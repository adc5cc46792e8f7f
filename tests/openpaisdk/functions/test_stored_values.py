"""What functions leave on the storage goes with their jobs; values stay while another job uses them."""

import os
import subprocess
from pathlib import PurePosixPath

import openpaisdk
from openpaisdk import Job
from openpaisdk.binding.cluster import Cluster
from openpaisdk.functions import JobFuture, clean_up
from support.python_session import BIN

TIMEOUT_S = 180


def names(future: JobFuture, folder: PurePosixPath) -> set[str]:
    return set(future.cluster.names(str(folder)))


def ended(future: JobFuture) -> JobFuture:
    """A future whose job has ended, too: only then can the job be deleted."""
    Job(future.job).select_cluster().wait(timeout=TIMEOUT_S, progress=False)
    return future


def test_values_go_with_the_last_job_that_uses_them(here_on_host) -> None:
    data = os.urandom(2 << 20)
    first, second = (ended(openpaisdk.submit(len, data)) for _ in range(2))
    folder = first.paths.folder.parent
    before = names(first, folder / "values")
    Cluster().delete(first.job)
    assert first.job not in names(second, folder) and second.job in names(second, folder)
    assert names(second, folder / "values") == before
    ran = subprocess.run([BIN / "pai", "delete-job", second.job], capture_output=True, text=True)
    assert ran.stdout == f"Deleted {second.job}\n", ran.stderr
    assert second.job not in names(second, folder)
    assert len(before - names(second, folder / "values")) == 1


def test_deleted_value_is_uploaded_again(here_on_host) -> None:
    data = os.urandom(2 << 20)
    first = ended(openpaisdk.submit(len, data))
    Cluster().delete(first.job)
    assert openpaisdk.submit(len, data).result(TIMEOUT_S) == len(data)


def test_clean_up_after_jobs_that_the_cluster_deleted(here_on_host) -> None:
    data = os.urandom(2 << 20)
    kept = ended(openpaisdk.submit(len, [data]))
    gone = ended(openpaisdk.submit(len, data))
    folder = gone.paths.folder.parent
    before = names(gone, folder / "values")
    # As the cluster's retention deletes: without the client.
    gone.cluster.client.delete(gone.job)
    assert gone.job in names(gone, folder)
    assert clean_up() == []
    assert clean_up(min_age_s=0) == [gone.job]
    assert gone.job not in names(gone, folder) and kept.job in names(gone, folder)
    assert names(gone, folder / "values") == before
    assert kept.result(TIMEOUT_S) == 1
    assert clean_up(min_age_s=0) == []
