"""Handing a job in, once: under a key, so that a lost answer and a second try make no second job."""

from __future__ import annotations

import json
import os

from openpaisdk.client.address import quote
from openpaisdk.client.http_errors import NO_API, is_missing_job
from openpaisdk.errors import Conflict, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from openpaisdk.client import ClusterClient

MAX_ATTEMPTS = 5
MASK = "******"


def submit_job(
    cluster: ClusterClient,
    job: dict[str, object],
    rename: Callable[[], str] | None = None,
    notify: Callable[[str], None] | None = None,
) -> str:
    """Submit a job, in the version it is in, and give its name there.

    A version 1 job is converted where the cluster no longer takes them; ``tell`` gets that, and what the
    cluster has to say about the job. A name that was made up and is taken is made up again.
    """
    if "protocolVersion" not in job:
        try:
            return _hand_in_v1(cluster, job, notify)
        except NotFound as e:
            if e.code != NO_API:
                raise
        job = _converted(cluster, job, notify)
    for left in range(MAX_ATTEMPTS, 0, -1):
        try:
            cluster.submit(json.dumps(job), os.urandom(16).hex())
        except Conflict as e:
            if rename and left > 1:
                job["name"] = rename()
                continue
            raise _name_conflict(cluster, str(job["name"]), e) from None
        except NotFound as e:
            raise _missing(cluster, job, e) from None
        break
    return str(job["name"])


def _hand_in_v1(cluster: ClusterClient, job: dict[str, object], tell: Callable[[str], None] | None) -> str:
    path = f"/api/v1/user/{quote(cluster.user)}/jobs" if cluster.user else "/api/v1/jobs"
    headers = {"Content-Type": "application/json", "Idempotency-Key": os.urandom(16).hex()}
    name = str(job["jobName"])
    try:
        answer = cluster.transport.request("POST", path, body=json.dumps(job).encode(), headers=headers)
    except Conflict as e:
        raise _name_conflict(cluster, name, e) from None
    answer.read()
    if tell and (warning := answer.headers.get("x-warning")):
        tell(f"The cluster {cluster.alias} says: {warning}")
    # The cluster may have had to change the name; where the job is now, it says.
    there = answer.headers.get("location", "").rstrip("/").rpartition("/")[2].removeprefix(f"{cluster.user}~")
    return there or name


def _converted(
    cluster: ClusterClient, job: dict[str, object], tell: Callable[[str], None] | None
) -> dict[str, object]:
    from openpaisdk.protocol import convert_v1

    conversion = convert_v1(job, user=cluster.user)
    if tell:
        tell(f"The cluster {cluster.alias} takes no version 1 jobs: it gets this one as version 2.")
        for warning in conversion.warnings:
            tell(str(warning))
    return conversion.data


def _missing(cluster: ClusterClient, job: dict[str, object], why: NotFound) -> NotFound:
    """Of a job that comes after others, one of those may be unknown: it is told as everywhere."""
    if why.code == "NoSourcesError":
        return NotFound(
            f"The files of {job['name']} are not on the cluster {cluster.alias}: a preview sends none.",
            code=why.code,
            hint="Hand it in with pai sub, or make the job file with pai sub --preview --no-sources.",
        )
    extras = job.get("extras")
    ours = extras.get("openpaisdk") if isinstance(extras, dict) else None
    after = ours.get("after") if isinstance(ours, dict) else None
    for item in after if isinstance(after, list) else ():
        name = str(item.get("job")) if isinstance(item, dict) else ""
        if name and is_missing_job(why) and f"{cluster.whole_name(name)} " in why.message:
            return cluster.no_job(name)
    return why


def _name_conflict(cluster: ClusterClient, name: str, why: Conflict) -> Conflict:
    return Conflict(
        f"The cluster {cluster.alias} already has a job called {name}.",
        code=why.code,
        hint="Choose another name; a $ in it becomes letters that make it unique (train_$).",
    )


def mask_secrets(job: dict[str, object]) -> dict[str, object]:
    """The job as it may be shown: the same, with its secrets masked."""
    shown = dict(job)
    if shown.get("secrets"):
        shown["secrets"] = MASK
    prerequisites = shown.get("prerequisites")
    if isinstance(prerequisites, list):
        shown["prerequisites"] = [_without_password(item) for item in prerequisites]
    return shown


def _without_password(item: dict[str, object]) -> dict[str, object]:
    auth = item.get("auth")
    if not isinstance(auth, dict) or "<%" in str(auth.get("password", "<%")):
        return item
    return {**item, "auth": {**auth, "password": MASK}}
