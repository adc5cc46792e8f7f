"""Paths of a job's files on the storage: sources and outputs."""

from __future__ import annotations

from urllib.parse import urlsplit

from paiprotocol.jobs.model import JobSpec

SOURCE = "source"
OUTPUT = "output"
WORKSPACE_KEY = ("parameters", "work_directory")
"""Where a job names its workspace."""
_HDFS = "hdfs://"
USER_NAME = "${PAI_USER_NAME}"
"""In the path of a workspace: the user of the job. Clients write it where they do not know the name yet."""


def has_workspace(job: JobSpec) -> bool:
    """Whether a job names the folder of its files."""
    work_directory = job.parameters.get("work_directory")
    return isinstance(work_directory, str) and bool(work_directory.strip("/"))


def job_folder(job: JobSpec, user: str) -> str:
    """``<workspace>/jobs/<job>``; without a workspace, in the user's home."""
    home = f"/user/{user}"
    if not has_workspace(job):
        return f"{home}/jobs/{job.name}"
    folder = job.parameters["work_directory"].rstrip("/").replace(USER_NAME, user)
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


def default_output(user: str, job_name: str) -> str:
    """Folder for the outputs of a job of version 1 that names none."""
    return f"/Output/{user}/{job_name}"


def named_output(job: JobSpec) -> str:
    """Address of the folder that a job names for its outputs (``outputDir`` of version 1); empty: none."""
    named = job.prerequisite("output", "default")
    return named.uri if named is not None and isinstance(named.uri, str) else ""


def names_outputs(job: JobSpec) -> bool:
    """Whether a role of the job names a folder for its outputs."""
    return any(role.output for role in job.task_roles)


def named_outputs_on_cluster(job: JobSpec, user: str, hosts: frozenset[str], *, plain: bool) -> list[str]:
    """Folders of the cluster's own storage, which has these hosts, that a job's roles name for their outputs.

    ``plain``: a path without a host is on the storage, as in version 1. In version 2 it is one in the task.
    """
    names = dict.fromkeys(role.output for role in job.task_roles if role.output)
    named = [job.prerequisite("output", name) for name in names]
    addresses = [item.uri for item in named if item is not None and isinstance(item.uri, str)]
    paths = [
        path_on_cluster(address, user, job.name, hosts)
        for address in addresses
        if plain or address.startswith(_HDFS)
    ]
    return [path for path in paths if path]


def path_on_cluster(address: str, user: str, job_name: str, hosts: frozenset[str]) -> str:
    """Path of such an address on the cluster's own storage, which has these hosts; empty: it is elsewhere."""
    try:
        parts = urlsplit(address)
    except ValueError:  # no address, as hdfs://[x
        return ""
    path = parts.path.rstrip("/")
    # The default of version 1 is on the cluster's storage, by whatever name the submitter reached it.
    is_default = path == default_output(user, job_name)
    if parts.scheme and parts.netloc and parts.netloc not in hosts and not is_default:
        return ""
    return path if not path or path.startswith("/") else f"/user/{user}/{path}"
