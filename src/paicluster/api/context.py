"""What the routes may use, put together once at start-up."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request

from openpaisdk.errors import Forbidden, Unauthorized
from paicluster.api.middleware.audit import WHO
from paicluster.api.middleware.policies import RATE, HttpPolicies
from paicluster.api.responses import KEY
from paicluster.api.v2.detail_cache import ResponseCache
from paicluster.auth.sealing import Sealer
from paicluster.auth.tickets import Tickets
from paicluster.auth.tokens import GUEST, INVALID, Identity, Tokens
from paicluster.engines.interface import LogSource, Node, ReportSink
from paicluster.logs.log_watcher import LogWatcher
from paicluster.scheduler.resource_requests import Resources
from paicluster.services.file_service import FileService
from paicluster.services.source_checkout import SourceCheckouts
from paicluster.services.virtual_clusters import VirtualClusters
from paicluster.store import Store

if TYPE_CHECKING:
    from paicluster.api.v2.storages import StorageConfig

APPLICATIONS_REFUSED = "Applications are not allowed to do this operation."


@dataclass(frozen=True, slots=True)
class Context:
    store: Store
    tokens: Tokens
    tickets: Tickets
    sealer: Sealer
    logs: LogSource
    log_watcher: LogWatcher
    # As they are now; what virtual clusters have of those that others look after follows.
    nodes: Callable[[], Awaitable[Sequence[Node]]]
    virtual_clusters: VirtualClusters
    # Removes a job that is over, with all it left; False when it is not over.
    remove_job: Callable[[int], Awaitable[bool]]
    # Ends a job's tasks when the database cannot be told to.
    stop_now: Callable[[int], Awaitable[None]]
    # Seconds the controller has been busy with one pass.
    controller_age: Callable[[], float]
    # Why the controller can write nothing down now, and what to do; of a job, by its full name, why it
    # does not go on with it. Empty when all is well.
    degraded_reason: Callable[..., str]
    # How many jobs it does not go on with, and how many stops it could not write down yet.
    quarantined_jobs: Callable[[], int]
    unwritten_stops: Callable[[], int]
    sources: Path
    version: str
    authority: Callable[[], str]
    # How people reach us, where the settings say so; else it is how this request did.
    external_url: str | None
    # What is in the cluster's own storage.
    files: FileService
    # Where files can be kept.
    storages: Callable[[], Sequence[StorageConfig]] = tuple
    # Whether jobs run in the image they name.
    runs_images: Callable[[], bool] = bool
    # Where an attempt reports to that runs where nothing of ours is seen.
    reports_of: Callable[[str], ReportSink | None] = lambda uid: None
    # Clients of the first years read without a token.
    anonymous_v1_reads: bool = False
    policies: HttpPolicies = field(default_factory=HttpPolicies)
    detail_cache: ResponseCache = field(default_factory=ResponseCache)
    source_checkouts: SourceCheckouts = field(init=False)
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.store.changes.subscribe(self.detail_cache.forget)
        object.__setattr__(
            self, "source_checkouts", SourceCheckouts(self.files.storage, self.store, self.sources)
        )

    @property
    def shares(self) -> Mapping[str, Resources]:
        """What each virtual cluster is entitled to."""
        return self.virtual_clusters.shares

    def close_streams(self) -> None:
        """The server leaves: whoever follows something is let go, and comes back to the next one."""
        self.closing.set()
        self.store.changes.wake_all()


def context(request: Request) -> Context:
    found: Context = request.scope[KEY]
    return found


def own_url(request: Request) -> str:
    """What to put before a path of ours in an address that people will follow."""
    return context(request).external_url or str(request.base_url).rstrip("/")


def token_of(request: Request) -> tuple[str, str | None]:
    """The token a request carries, with the user name when it came as the password of one."""
    header = request.headers.get("authorization")
    if not header:
        raise Unauthorized(GUEST, hint="Send the header 'Authorization: Bearer <token>'.")
    scheme, _, credentials = header.partition(" ")
    credentials = credentials.strip()
    if scheme.lower() == "bearer":
        return credentials, None
    if scheme.lower() == "basic":
        try:
            username, _, token = base64.b64decode(credentials, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise Unauthorized(INVALID) from None
        return token, username
    raise Unauthorized(INVALID)


async def authenticate(request: Request) -> Identity:
    """Whoever asks, or Unauthorized in the original's words."""
    token, username = token_of(request)
    identity = await context(request).tokens.verify(token)
    # Only an application may come with a user name and its token as the password.
    if username is not None and not (identity.application and identity.username == username):
        raise Unauthorized(INVALID)
    scope = request.scope
    scope[WHO] = identity
    rate = scope.get(RATE)
    if rate is not None:
        rate.take(identity.username)
    return identity


async def identify_person(request: Request) -> Identity:
    """As `identify`, but not an application or a job."""
    identity = await authenticate(request)
    if identity.application or identity.job_id is not None:
        raise Forbidden(APPLICATIONS_REFUSED)
    return identity
