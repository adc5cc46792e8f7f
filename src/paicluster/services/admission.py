"""Admission of jobs: the checks and the database write shared by all versions of the API."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from paicluster.auth.sealing import Sealer
from paicluster.auth.tokens import Identity
from paicluster.remote_storages.storages import StorageConfig
from paicluster.scheduler.plan import OPPORTUNISTIC
from paicluster.scheduler.resource_requests import (
    NO_MINIMUM,
    Resources,
    SchedulingRequest,
    encode,
    request_of,
)
from paicluster.services.file_service import FileService, storage_user
from paicluster.services.source_checkout import SourceCheckouts
from paicluster.services.user_quotas import Quotas
from paicluster.services.virtual_clusters import NO_VIRTUAL_CLUSTER, VirtualClusters
from paicluster.store import Store, jobs, source_owners
from paicluster.store.job_inserts import INSERT_JOB, NewJob
from paicluster.store.job_origins import DEFAULT_LIMITS, ParentJob, SubmissionLimits
from paiprotocol.errors import (
    NO_JOB,
    NO_SOURCES,
    UNSCHEDULABLE_JOB,
    Forbidden,
    InvalidParameters,
    NotFound,
    PaiError,
    Unavailable,
)
from paiprotocol.jobs import JobSpec
from paiprotocol.jobs.extras import MAX_TAGS, requested_storages, tag_problem
from paiprotocol.jobs.images import unused_images
from paiprotocol.jobs.limits import MAX_TASKS
from paiprotocol.jobs.states import framework_name
from paiprotocol.jobs.storage_layout import (
    default_output,
    has_workspace,
    job_folder,
    named_outputs_on_cluster,
    names_outputs,
)

_MAX_KEY_LENGTH = 255


def job_text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidParameters(f"The job must be UTF-8 text; its byte {error.start} is not.") from None


class _Checked(NamedTuple):
    """What the checks of a job have found out."""

    request: SchedulingRequest
    tags: tuple[str, ...]
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class Admission:
    """Admits jobs. ``sources`` is the folder of the uploaded source archives."""

    store: Store
    sealer: Sealer
    sources: Path
    virtual_clusters: VirtualClusters
    quotas: Quotas
    storages: Sequence[StorageConfig]
    source_checkouts: SourceCheckouts
    files: FileService
    # Raises ProtocolError for options that the engine they name does not take.
    check_engine_options: Callable[[Mapping[str, Any]], None]
    # Whether jobs run in the image they name.
    runs_images: Callable[[], bool]
    # What each task holds at least.
    minimum: Resources = NO_MINIMUM
    # How deep and how many jobs may be submitted by jobs.
    submission_limits: SubmissionLimits = DEFAULT_LIMITS

    async def admit(
        self,
        identity: Identity,
        job: JobSpec,
        text: str,
        body: bytes,
        config: str,
        *,
        idempotency_key: str | None = None,
        generation: Literal["v1", "v2"] = "v2",
        strict: bool = False,
        hosts: Callable[[], frozenset[str]] = frozenset,
    ) -> list[str]:
        """Write a job of this user durably into the database, or raise the reason why not.

        ``text`` is the job as the cluster will parse it again, ``body`` the body of the request, ``config``
        the submitted text with masked secrets. Returns warnings about what the cluster cannot do as it is
        now; ``strict`` refuses a job that can never start. ``hosts`` returns the names of this cluster in
        addresses, and is called for jobs that name output folders.
        """
        request, tags, warnings = await self._check(identity, job, strict=strict)
        self._check_sources(identity, job)
        await self.check_workspace(identity, job)
        sealed = None
        if job.secrets:
            text = json.dumps({**job.raw, "secrets": "******"}, ensure_ascii=False)
            framework = framework_name(identity.username, job.name)
            sealed = self.sealer.seal(json.dumps(dict(job.secrets)).encode(), framework)
        if idempotency_key is not None and not 0 < len(idempotency_key) <= _MAX_KEY_LENGTH:
            raise InvalidParameters(f"An Idempotency-Key has 1 to {_MAX_KEY_LENGTH} characters.")
        new = NewJob(
            username=identity.username,
            name=job.name,
            vc=job.virtual_cluster,
            config=config,
            job=text,
            submission_ms=int(time.time() * 1000),
            total_gpus=job.total_gpus,
            total_tasks=job.total_tasks,
            total_roles=len(job.task_roles),
            priority=job.priority,
            generation=generation,
            resource_request=encode(request),
            sealed=sealed,
            tags=tags,
            idempotency_key=idempotency_key,
            body_sha256=self._body_digest(job, body) if idempotency_key is not None else "",
            parent=self._parent(identity),
        )
        if names_outputs(job):
            outputs = named_outputs_on_cluster(job, identity.username, hosts(), plain=generation == "v1")
            failures = await self._make_output_folders(identity, outputs)
            # A job that names no folder may need none: the storage may be there to be read only.
            unneeded = default_output(identity.username, job.name)
            warnings += [failures[folder] for folder in failures if folder != unneeded]
        inserted = await self.store.write_batched(INSERT_JOB, new)
        if not inserted.repeated:
            await self.source_checkouts.check_out(job, storage_user(identity), inserted.id)
        return warnings

    async def check(self, identity: Identity, job: JobSpec) -> list[str]:
        """Check a job as `admit` does, but for its workspace and its sources, which may be uploaded later:
        raise the reason why it would not be accepted.

        Returns warnings about what the cluster cannot do as it is now.
        """
        return (await self._check(identity, job)).warnings

    async def _check(self, identity: Identity, job: JobSpec, *, strict: bool = False) -> _Checked:
        identity.check_enabled("no new job is accepted")
        self.check_engine_options(job.additions.engine_options)
        self._check_virtual_cluster(identity, job.virtual_cluster)
        self._check_storages(identity, job)
        if job.total_tasks > MAX_TASKS:
            raise InvalidParameters(
                f"A job may have {MAX_TASKS} tasks at most; this one has {job.total_tasks}."
            )
        tags = _tags(job)
        request = request_of(job, identity.username, self.minimum)
        self.quotas.check_job(identity.username, identity.access.groups, request.resources)
        warnings = self._warnings(job, request, strict=strict)
        await self._check_dependencies(request)
        return _Checked(request, tags, warnings)

    def _parent(self, identity: Identity) -> ParentJob | None:
        return None if identity.job_id is None else ParentJob(identity.job_id, self.submission_limits)

    def _body_digest(self, job: JobSpec, body: bytes) -> str:
        """Digest by which a repeated request is recognised; one with secrets could be guessed from a hash."""
        return self.sealer.fingerprint(body) if job.secrets else hashlib.sha256(body).hexdigest()

    def _warnings(self, job: JobSpec, request: SchedulingRequest, *, strict: bool) -> list[str]:
        warnings = []
        misfit = self.virtual_clusters.misfit(
            job.virtual_cluster, request.resources, opportunistic=job.priority == OPPORTUNISTIC
        )
        if misfit and strict:
            raise InvalidParameters(
                f"Job {job.name} can never start as the cluster is now. {misfit.numbers}",
                code=UNSCHEDULABLE_JOB,
                hint="Request less, or use another virtual cluster. Nothing was submitted.",
            )
        if misfit:
            warnings.append(f"The job stays pending until the cluster changes: {_lowered(misfit.numbers)}")
        unused = unused_images(role.image_uri or "" for role in job.task_roles)
        if unused and not self.runs_images():
            warnings.append(unused)
        return warnings

    def _check_virtual_cluster(self, identity: Identity, vc: str) -> None:
        names = self.virtual_clusters.quotas
        if vc not in names or not identity.access.may_use(vc):
            usable = ", ".join(name for name in names if identity.access.may_use(name)) or "none"
            hint = f"Virtual clusters you may use: {usable}."
            if vc not in names:
                raise NotFound(f"There is no virtual cluster {vc}.", code=NO_VIRTUAL_CLUSTER, hint=hint)
            raise Forbidden(f"User {identity.username} is not allowed to do operation in {vc}.", hint=hint)
        if vc in self.virtual_clusters.stopped:
            raise Forbidden(
                f"The virtual cluster {vc} is stopped: it accepts no new jobs.",
                hint="Use another virtual cluster, or ask an administrator to start this one.",
            )

    def _check_sources(self, identity: Identity, job: JobSpec) -> None:
        """The sources of a job must be stored, and belong to its user."""
        sources = job.additions.sources
        if sources is None:
            return
        is_stored = (self.sources / f"{sources.sha256}.tar").exists()
        if not is_stored or not self.store.read_inline(
            lambda conn: source_owners.is_owner(conn, sources.sha256, identity.username)
        ):
            raise NotFound(
                f"The sources {sources.sha256} of job {job.name} are not on this cluster.",
                code=NO_SOURCES,
                hint="Upload them first, with PUT /api/v2/sources/<sha256>. The sources of another user's "
                "job belong to that user.",
            )

    def _check_storages(self, identity: Identity, job: JobSpec) -> None:
        """Every storage that a job names must exist, and its user must be allowed to use it."""
        names = requested_storages(job.extras)
        if not names:
            return
        known = {storage.name: storage for storage in self.storages}
        for name, _ in names:
            if name not in known:
                raise NotFound(
                    f"Storage {name} is not found.",
                    code="NoStorageError",
                    hint=f"Storages of this cluster: {', '.join(known) or 'none'}.",
                )
            if not known[name].is_usable_by(identity.access):
                raise Forbidden(f"User {identity.username} is not allowed to access {name}.")

    async def check_workspace(self, identity: Identity, job: JobSpec) -> None:
        """A job must be able to write to the workspace that it names: its outputs are stored there."""
        if not has_workspace(job):
            return
        # The outputs are stored with the job's token, which is never an administrator's.
        user = replace(storage_user(identity), admin=False)
        folder = job_folder(job, identity.username)
        try:
            if not self.files.storage.has_provisioned(user):
                await self.files.run(self.files.storage.provision, user)
            await self.files.run(self.files.storage.check_may_fill, folder, user)
        except Unavailable:
            raise
        except PaiError as error:
            kind = Forbidden if isinstance(error, Forbidden) else InvalidParameters
            raise kind(
                f"Job {job.name} could not write to its workspace {folder}: {error.message}",
                hint=f"Name a folder that {identity.username} may write to, as one below "
                f"/{identity.username}. Nothing was submitted.",
            ) from None

    async def _make_output_folders(self, identity: Identity, folders: Sequence[str]) -> dict[str, str]:
        """Create the folders that a job names for its outputs: its tasks expect them.

        Returns warnings, by folder.
        """
        # Tasks write there with the job's token, which is never an administrator's.
        user = replace(storage_user(identity), admin=False)
        warnings = {}
        for folder in folders:
            try:
                if not self.files.storage.has_provisioned(user):
                    await self.files.run(self.files.storage.provision, user)
                await self.files.run(self.files.storage.make_dirs, folder, user)
            except PaiError as error:
                warnings[folder] = f"The output folder {folder} could not be created: {error.message}"
        return warnings

    async def _check_dependencies(self, request: SchedulingRequest) -> None:
        """A dependency on a job that does not exist would keep a job pending forever."""
        if not request.dependencies:
            return
        names = [dependency.framework for dependency in request.dependencies]
        states = await self.store.read(lambda conn: jobs.states_of(conn, names))
        missing = [name for name in names if name not in states]
        if missing:
            raise no_job(", ".join(missing))


def no_job(framework: str) -> NotFound:
    return NotFound(f"Job {framework} is not found.", code=NO_JOB)


def _tags(job: JobSpec) -> tuple[str, ...]:
    """The tags that a job is submitted with. In version 1 ``extras`` are not validated."""
    tags = job.extras.get("tags") or ()
    if not isinstance(tags, list | tuple):
        raise InvalidParameters('"extras.tags" must be a list of texts.', hint="Nothing was submitted.")
    if len(tags) > MAX_TAGS:
        raise InvalidParameters(
            f'"extras.tags" has {len(tags)} tags; a job is submitted with {MAX_TAGS} at most.',
            hint="Nothing was submitted.",
        )
    for index, tag in enumerate(tags):
        if problem := tag_problem(tag):
            raise InvalidParameters(
                f'"extras.tags[{index}]" cannot be a tag: {problem}.', hint="Nothing was submitted."
            )
    return tuple(tags)


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
