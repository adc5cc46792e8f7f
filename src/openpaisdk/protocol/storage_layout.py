"""Paths of a job's files on the storage: sources and outputs."""

from __future__ import annotations

from openpaisdk.protocol.model import JobSpec

SOURCE = "source"
OUTPUT = "output"
USER_NAME = "${PAI_USER_NAME}"
"""In the path of a workspace: the user of the job. Clients write it where they do not know the name yet."""


def job_folder(job: JobSpec, user: str) -> str:
    """``<workspace>/jobs/<job>``; without a workspace, in the user's home."""
    work_directory = job.parameters.get("work_directory")
    home = f"/user/{user}"
    if not isinstance(work_directory, str) or not work_directory.strip("/"):
        return f"{home}/jobs/{job.name}"
    folder = work_directory.rstrip("/").replace(USER_NAME, user)
    return folder if folder.startswith("/") else f"{home}/{folder}"


def workspace_folder(workspace: str, user: str = "") -> str:
    """A workspace as an absolute path: a relative one is below ``/<user>``. '..' is a ValueError."""
    path = workspace if workspace.startswith("/") else f"/{user or USER_NAME}/{workspace}"
    parts = [part for part in path.split("/") if part and part != "."]
    if ".." in parts:
        raise ValueError(workspace)
    return "/" + "/".join(parts)


def source_folder(job: JobSpec, user: str) -> str:
    """Folder of the files uploaded with the job."""
    return f"{job_folder(job, user)}/{SOURCE}"


def output_folder(job: JobSpec, user: str, role: str = "", index: int = 0) -> str:
    """Folder of the outputs; in a job with several tasks each task has its own subfolder."""
    folder = f"{job_folder(job, user)}/{OUTPUT}"
    return f"{folder}/{role}-{index}" if role and job.total_tasks > 1 else folder
