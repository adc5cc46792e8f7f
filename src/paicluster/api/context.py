"""Context of the routes: everything they may use, built once at server start; authentication of requests."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from starlette.requests import Request

from openpaisdk.errors import Unauthorized
from paicluster.api import browser_session
from paicluster.api.authority import Authority
from paicluster.api.dialect import CERTIFICATE_EXTENSION
from paicluster.api.forwarders import Forwarders
from paicluster.api.job_parser import JobParser
from paicluster.api.middleware.audit import IDENTITY_KEY
from paicluster.api.middleware.policies import AUTHORITY_KEY, RATE_LIMIT_KEY, HttpPolicies
from paicluster.api.responses import KEY
from paicluster.api.sessions import Sessions
from paicluster.api.sign_in_links import SignInLinks
from paicluster.api.v2.detail_cache import ResponseCache
from paicluster.api.v2.follow_turns import FollowTurns
from paicluster.auth.sealing import Sealer
from paicluster.auth.ssh_keys import SshKeys
from paicluster.auth.tickets import Tickets
from paicluster.auth.tokens import GUEST, INVALID, Identity, TokenKind, Tokens
from paicluster.auth.user_certificates import PresentedCertificate, UserCertificates
from paicluster.engines.interface import LogSource, Node, ReportSink
from paicluster.engines.registry import check_job_options
from paicluster.logs.log_watcher import LogWatcher
from paicluster.metrics.usage_sampler import UsageSampler
from paicluster.scheduler.resource_requests import NO_MINIMUM, Resources
from paicluster.services.admission import Admission
from paicluster.services.file_service import FileService
from paicluster.services.quotas import Quotas
from paicluster.services.remote_changes import RemoteChanges
from paicluster.services.remote_files import RemoteFiles
from paicluster.services.source_checkout import SourceCheckouts
from paicluster.services.storages import StorageConfig
from paicluster.services.virtual_clusters import VirtualClusters
from paicluster.services.work_journal import WorkJournal
from paicluster.store import Store
from paicluster.store.rows import JobRow

# A name or an address with an optional port, and nothing that would change the meaning of a URL.
_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


class SshAccess(Protocol):
    """The cluster's own SSH server."""

    keys: SshKeys

    async def port(self) -> int | None:
        """The port at which it listens, from now on; None if this cluster has none."""


class AppTicket(NamedTuple):
    """Where a browser may open an app of a task once: scheme and port of the server, and the ticket."""

    scheme: str
    port: int
    ticket: str


class AppAccess(Protocol):
    """Ports of the server for the web servers of tasks."""

    async def open(self, identity: Identity, row: JobRow, role: str, index: int, port: int) -> AppTicket:
        """A ticket for a port of a running task."""


class SessionCommand(Protocol):
    def __call__(self, uid: str, *, terminal: bool = False) -> Sequence[str] | None: ...


@dataclass(frozen=True, slots=True)
class Context:
    store: Store
    tokens: Tokens
    tickets: Tickets
    sealer: Sealer
    certificates: UserCertificates
    logs: LogSource
    log_watcher: LogWatcher
    # Current nodes; also updates the capacity of externally scheduled virtual clusters.
    nodes: Callable[[], Awaitable[Sequence[Node]]]
    virtual_clusters: VirtualClusters
    # Quotas of users and groups.
    user_quotas: Quotas
    # Deletes a finished job with its logs and folders; False when it has not finished.
    remove_job: Callable[[int], Awaitable[bool]]
    # Stops a job's tasks when the database cannot be written.
    stop_now: Callable[[int], Awaitable[None]]
    # Seconds the current reconcile has taken so far.
    controller_age: Callable[[], float]
    # Why the controller cannot write to the database, and what to do; with a job's full name, why that job
    # is quarantined. Empty when all is well.
    degraded_reason: Callable[..., str]
    # Number of quarantined jobs, and of stops that are not yet written to the database.
    quarantined_jobs: Callable[[], int]
    pending_stops: Callable[[], int]
    sources: Path
    version: str
    authority: Callable[[], str]
    # The URL users reach the server at, from the settings; None: the URL of the request.
    external_url: str | None
    # The cluster's own storage.
    files: FileService
    # All storages of the cluster.
    storages: Callable[[], Sequence[StorageConfig]] = tuple
    # Whether jobs run in the image they name.
    runs_images: Callable[[], bool] = bool
    # What each task holds at least.
    minimum: Resources = NO_MINIMUM
    # Sink for the reports of an attempt on a node without a shared file system.
    reports_of: Callable[[str], ReportSink | None] = lambda uid: None
    # Command line of the host of a session in an attempt; None if its engine has no sessions.
    session_command: SessionCommand = lambda uid, *, terminal=False: None
    # The same of a forwarder of its ports.
    forward_command: Callable[[str], Sequence[str] | None] = lambda uid: None
    # None in tests without a server; late, because the endpoint itself uses the context.
    ssh: Callable[[], SshAccess | None] = lambda: None
    # The same for web apps of tasks; None where the settings have no ports for them.
    web_apps: Callable[[], AppAccess | None] = lambda: None
    # Settings as plain data, without secrets.
    settings: Callable[[], Mapping[str, object]] = dict
    # Early OpenPAI clients read without a token.
    anonymous_v1_reads: bool = False
    policies: HttpPolicies = field(default_factory=HttpPolicies)
    detail_cache: ResponseCache = field(default_factory=ResponseCache)
    work_journal: WorkJournal = field(default_factory=WorkJournal)
    usage: UsageSampler = field(default_factory=UsageSampler.idle)
    source_checkouts: SourceCheckouts = field(init=False)
    admission: Admission = field(init=False)
    remote_changes: RemoteChanges = field(init=False)
    sessions: Sessions = field(init=False)
    forwarders: Forwarders = field(init=False)
    job_parser: JobParser = field(default_factory=JobParser)
    follow_turns: FollowTurns = field(default_factory=FollowTurns)
    remote_files: RemoteFiles = field(default_factory=RemoteFiles)
    # Searches in logs take turns: each holds the interpreter and a few blocks of memory.
    log_search_turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    sign_in_links: SignInLinks = field(default_factory=SignInLinks)
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.store.changes.subscribe(self.detail_cache.invalidate)
        checkouts = SourceCheckouts(self.files.storage, self.store, self.sources, self.work_journal)
        admission = Admission(
            self.store,
            self.sealer,
            self.sources,
            self.virtual_clusters,
            self.user_quotas,
            self.storages,
            checkouts,
            check_job_options,
            self.runs_images,
            self.minimum,
        )
        object.__setattr__(self, "source_checkouts", checkouts)
        object.__setattr__(self, "admission", admission)
        object.__setattr__(self, "remote_changes", RemoteChanges(self.sources.parent))
        object.__setattr__(self, "sessions", Sessions(self.tokens))
        object.__setattr__(self, "forwarders", Forwarders(self.sessions))

    @property
    def quotas(self) -> Mapping[str, Resources]:
        """Guaranteed capacity of each virtual cluster."""
        return self.virtual_clusters.quotas

    def close_streams(self) -> None:
        """End all streaming responses at shutdown; clients reconnect to the next server."""
        self.closing.set()
        self.store.changes.wake_all()


def context(request: Request) -> Context:
    ctx: Context = request.scope[KEY]
    return ctx


def own_url(request: Request) -> str:
    """Base URL of links and redirects: the configured one, else the host that was asked, which the client can
    reach.

    Without a valid Host it is the address that tasks use.
    """
    ctx = context(request)
    if ctx.external_url is not None:
        return ctx.external_url
    host = request.headers.get("host", "")
    return f"{request.scope['scheme']}://{host}" if _HOST.fullmatch(host) else ctx.files.external_url


def token_of(request: Request) -> tuple[str, str | None]:
    """Token of a request, and the user name when the token came as the password of Basic authentication."""
    header = request.headers.get("authorization")
    if not header:
        if (proof := request.headers.get(browser_session.PROOF_HEADER)) is not None:
            token = browser_session.token_of_browser(request.cookies, proof, own_url(request))
            if token is not None:
                return token, None
        raise Unauthorized(GUEST, hint="Send the header 'Authorization: Bearer <token>'.")
    scheme, _, credentials = header.partition(" ")
    credentials = credentials.strip()
    # "Token" is how PaddleCloud's clients send theirs.
    if scheme.lower() in ("bearer", "token"):
        return credentials, None
    if scheme.lower() == "basic":
        try:
            username, _, token = base64.b64decode(credentials, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise Unauthorized(INVALID) from None
        return token, username
    raise Unauthorized(INVALID)


async def identify(request: Request) -> Identity:
    """Identity of the caller, not counted by a rate limit; raises Unauthorized with OpenPAI's message."""
    presented = request.scope.get("extensions", {}).get(CERTIFICATE_EXTENSION)
    if presented is not None:
        return await _identify_by_certificate(request, presented)
    return await _identify_by_token(request)


async def _identify_by_certificate(request: Request, presented: PresentedCertificate) -> Identity:
    """The user of the client's certificate. A token or a browser's session must be of the same user.

    A browser sends the certificate with the requests of every page, so those of other sites are refused.
    """
    identity = await context(request).certificates.verify(presented)
    if "authorization" in request.headers or browser_session.PROOF_HEADER in request.headers:
        by_token = await _identify_by_token(request)
        if by_token.username != identity.username:
            raise Unauthorized(
                f"The certificate is that of user {identity.username}, the token that of "
                f"{by_token.username}.",
                hint="Send only one of them.",
            )
        return by_token
    asked = f"{request.scope['scheme']}://{request.headers.get('host', '')}"
    if request.headers.get("origin", asked) not in (asked, own_url(request)):
        raise Unauthorized(
            "A page of another site cannot use your certificate.", hint="Send a token with the request."
        )
    request.scope[IDENTITY_KEY] = identity
    return identity


async def _identify_by_token(request: Request) -> Identity:
    token, username = token_of(request)
    identity = await context(request).tokens.verify(token)
    # Only application tokens are accepted as the password of Basic authentication.
    if username is not None and not (
        identity.kind is TokenKind.APPLICATION and identity.username == username
    ):
        raise Unauthorized(INVALID)
    request.scope[IDENTITY_KEY] = identity
    return identity


async def authenticate(request: Request) -> Identity:
    """Identity of the caller, whose request is counted; raises Unauthorized and Forbidden with OpenPAI's
    messages.

    Forbidden where the route does not accept this kind of token, or accepts it from administrators only.
    """
    identity = await identify(request)
    accept(request, identity)
    return identity


def accept(request: Request, identity: Identity) -> None:
    """Accept a verified identity as the caller, or raise Forbidden; counts the request for its user."""
    scope = request.scope
    scope[IDENTITY_KEY] = identity
    rate = scope.get(RATE_LIMIT_KEY)
    if rate is not None:
        rate.take(identity.username)
    authority: Authority = scope[AUTHORITY_KEY]
    authority.check(identity)
