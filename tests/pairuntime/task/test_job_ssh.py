"""`pai-runtime job-ssh`: what it says where the tasks of a job cannot reach each other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pairuntime.task.job_ssh import BARRIER_EXIT_STATUS
from support.server_fixture import Cluster, job


def job_ssh(cluster: Cluster, name: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {
        "PATH": str(folder),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PAI_REST_SERVER_URI": "http://{}:{}".format(*cluster.address),
        "PAI_USER_TOKEN": cluster.token,
        "PAI_JOB_NAME": f"{cluster.user}~{name}",
        "PAI_METRICS_FILE": str(folder / "metrics"),
    }
    command = [sys.executable, "-m", "pairuntime", "job-ssh", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_barrier_that_is_not_passed_in_time_names_the_tasks(cluster: Cluster, tmp_path: Path) -> None:
    cluster.accept(job("never", "true", instances=2, gpu=99))
    done = job_ssh(cluster, "never", tmp_path, "--barrier", "0.01", "main:2")
    assert (done.returncode, done.stdout) == (BARRIER_EXIT_STATUS, "")
    assert "for main-0, main-1, which could not be reached (sshbarrier)" in done.stderr
    cluster.stop("never")


def test_image_without_ssh_is_named(cluster: Cluster, tmp_path: Path) -> None:
    done = job_ssh(cluster, "any", tmp_path, "--config", "main:2")
    assert done.returncode == 1 and "there is no program ssh here" in done.stderr, done
    assert list(tmp_path.iterdir()) == []


def test_job_that_is_not_known_is_named(cluster: Cluster, tmp_path: Path) -> None:
    done = job_ssh(cluster, "nosuch", tmp_path, "--barrier", "1", "main:2")
    assert done.returncode == 1 and "nosuch" in done.stderr and "Traceback" not in done.stderr, done
