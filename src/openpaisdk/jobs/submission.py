"""Idempotent job submission: with a key, so that a retry after a lost response creates no second job."""

from __future__ import annotations

import json
import os

from openpaisdk.client.http_errors import NO_API, is_missing_job
from paiprotocol.errors import NO_SOURCES, Conflict, NotFound
from pairuntime.transport.http1 import quote

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
    *,
    strict: bool = False,
    warned: list[str] | None = None,
) -> str:
    """Submit a job in its own version and return its name on the cluster.

    A version 1 job is converted if the cluster no longer accepts them; ``notify`` gets a notice of that and
    the cluster's warnings. ``rename`` generates another name if the generated one is in use. ``strict``: our
    own server refuses a job that can never start. ``warned``: warnings that the user has read; the
    cluster's are added.
    """

    def report(warning: str) -> None:
        new = [part for part in warning.split("; ") if part and part not in (warned or ())]
        if notify and new:
            notify(f"The cluster {cluster.alias} says: {'; '.join(new)}")
        if warned is not None:
            warned.extend(new)

    if "protocolVersion" not in job:
        try:
            return _submit_v1(cluster, job, report, strict=strict)
        except NotFound as e:
            if e.code != NO_API:
                raise
        job = _convert(cluster, job, notify)
    for attempts_left in range(MAX_ATTEMPTS, 0, -1):
        try:
            warning = cluster.submit(json.dumps(job), os.urandom(16).hex(), strict=strict)
        except Conflict as e:
            if rename and attempts_left > 1:
                job["name"] = rename()
                continue
            raise name_conflict(cluster, str(job["name"]), e.code) from None
        except NotFound as e:
            raise _explain_not_found(cluster, job, e) from None
        break
    report(warning)
    return str(job["name"])


def _submit_v1(
    cluster: ClusterClient, job: dict[str, object], report: Callable[[str], None], *, strict: bool
) -> str:
    path = f"/api/v1/user/{quote(cluster.user)}/jobs" if cluster.user else "/api/v1/jobs"
    headers = {"Content-Type": "application/json", "Idempotency-Key": os.urandom(16).hex()}
    name = str(job["jobName"])
    try:
        path += "?strict=true" if strict else ""
        body = json.dumps(job).encode()
        response = cluster.transport.request("POST", path, body=body, headers=headers, whole=True)
    except Conflict as e:
        raise name_conflict(cluster, name, e.code) from None
    response.read()
    report(response.headers.get("x-warning", ""))
    # The cluster may have changed the name; the Location header has the new one.
    actual = (
        response.headers.get("location", "").rstrip("/").rpartition("/")[2].removeprefix(f"{cluster.user}~")
    )
    return actual or name


def _convert(
    cluster: ClusterClient, job: dict[str, object], notify: Callable[[str], None] | None
) -> dict[str, object]:
    from paiprotocol.jobs import convert_v1

    conversion = convert_v1(job, user=cluster.user)
    if notify:
        notify(f"The cluster {cluster.alias} accepts no version 1 jobs: this one is converted to version 2.")
        for warning in conversion.warnings:
            notify(str(warning))
    return conversion.data


def _explain_not_found(cluster: ClusterClient, job: dict[str, object], error: NotFound) -> NotFound:
    """Error for a submission with 404: missing sources, or a dependency that does not exist."""
    if error.code == NO_SOURCES:
        return NotFound(
            f"You have no such sources on the cluster {cluster.alias} as {job['name']} names: a preview "
            "uploads none, and those of another user's job belong to that user.",
            code=error.code,
            hint="Submit it with pai sub, or create the job file with pai sub --preview --no-sources.",
        )
    extras = job.get("extras")
    ours = extras.get("openpaisdk") if isinstance(extras, dict) else None
    after = ours.get("after") if isinstance(ours, dict) else None
    for item in after if isinstance(after, list) else ():
        name = str(item.get("job")) if isinstance(item, dict) else ""
        if name and is_missing_job(error) and f"{cluster.whole_name(name)} " in error.message:
            return cluster.no_job(name)
    return error


def name_conflict(cluster: ClusterClient, name: str, code: str | None = None) -> Conflict:
    """The error for a name that another job of the user has."""
    return Conflict(
        f"The cluster {cluster.alias} already has a job called {name}.",
        code=code,
        hint="Choose another name; each $ in it is replaced by random letters (train_$).",
    )


def mask_secrets(job: dict[str, object]) -> dict[str, object]:
    """A copy of the job with its secrets masked, for display."""
    shown = dict(job)
    if shown.get("secrets"):
        shown["secrets"] = MASK
    prerequisites = shown.get("prerequisites")
    if isinstance(prerequisites, list):
        shown["prerequisites"] = [_mask_password(item) for item in prerequisites]
    return shown


def _mask_password(item: dict[str, object]) -> dict[str, object]:
    from paiprotocol.jobs.secret_references import is_secret_reference

    auth = item.get("auth")
    if not isinstance(auth, dict) or "password" not in auth or is_secret_reference(str(auth["password"])):
        return item
    return {**item, "auth": {**auth, "password": MASK}}
