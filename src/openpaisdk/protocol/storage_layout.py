"""Where a job's files lie on the storage: what it was given, and its results."""

from __future__ import annotations

from openpaisdk.protocol.model import JobSpec

SOURCE = "source"
OUTPUT = "output"


def job_folder(job: JobSpec, user: str) -> str:
    """``<workspace>/jobs/<job>``; without a workspace, below the user's home."""
    named = job.parameters.get("work_directory")
    home = f"/user/{user}"
    if not isinstance(named, str) or not named.strip("/"):
        return f"{home}/jobs/{job.name}"
    folder = named.rstrip("/")
    return folder if folder.startswith("/") else f"{home}/{folder}"


def source_folder(job: JobSpec, user: str) -> str:
    """Where the files lie that travelled with it."""
    return f"{job_folder(job, user)}/{SOURCE}"


def output_folder(job: JobSpec, user: str, role: str = "", index: int = 0) -> str:
    """Where results are kept; of a job with several tasks each has a folder of its own there."""
    folder = f"{job_folder(job, user)}/{OUTPUT}"
    return f"{folder}/{role}-{index}" if role and job.total_tasks > 1 else folder
