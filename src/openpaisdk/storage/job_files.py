"""Files of a job: ``pai://<cluster>/jobs/<job>/<path>`` names them wherever the job's workspace is.

``source`` and ``output`` are in it, as on the storage. The address is for reading: what a job has left is not
changed by accident, and a job file may name any folder as the job's own.
"""

from __future__ import annotations

from openpaisdk.config.clusters import JOBS_STORAGE
from paiprotocol.errors import Forbidden, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client import ClusterClient
    from openpaisdk.storage.location import Location
    from paiprotocol.jobs import JobSpec


def job_files_folder(cluster: ClusterClient, name: str, user: str = "") -> str:
    """Folder of a job's files on the storage. ``name`` may be ``user~name``."""
    from paiprotocol.jobs.storage_layout import job_folder

    return job_folder(*stored_job(cluster, name, user))


def stored_job(cluster: ClusterClient, name: str, user: str = "") -> tuple[JobSpec, str]:
    """A job as the cluster stores it, and its user."""
    from paiprotocol.jobs import read_job

    job = read_job(cluster.job_config(name, user), stored=True)
    return job, cluster.whole_name(name, user).partition("~")[0]


def split_job_path(location: Location) -> tuple[str, str]:
    """The job that an address names, and the path below its folder; the job is empty in ``…/jobs/``."""
    job, _, path = location.path.strip("/").partition("/")
    return job, path


def no_job_named(location: Location) -> UsageError:
    return UsageError(
        f"{location.text} has the files of all jobs: name one of them.",
        hint=f"pai://{location.cluster}/{JOBS_STORAGE}/<job>/; pai listdir {location.text} lists them.",
    )


def read_only_error(location: Location, real_address: str) -> Forbidden:
    return Forbidden(
        f"{location.text} is the address of a job's files, which is for reading only.",
        hint=f"On the storage they are at {real_address}.",
    )


def missing_job_file(location: Location, options: str) -> UsageError:
    """The error for a path that a job has not left; ``options`` are those of a command about this job."""
    job, path = split_job_path(location)
    what = path.removeprefix("output").strip("/") or "files"
    return UsageError(
        f"{location.text}: the job {job} has left no {what}, or has not finished.",
        hint=f"pai job-outputs {options}{job} lists the files that a job wrote to $PAI_OUTPUT_DIR.",
    )
