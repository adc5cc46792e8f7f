"""REST client of a datacenter: one method per request, typed results.

Requests have the form of PaddleCloud's design document, which is also what our own server and the later
PaddleCloud servers understand. An application error is a reply with status 200 and another ``code``, or with
a message where none is expected.
"""

from __future__ import annotations

import json
import time

from paiprotocol.errors import Conflict, ConnectionFailed, PaiError, Unauthorized

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from openpaisdk.client.transport import Transport
    from pairuntime.transport.http1 import Body, Response

OK = 200
REGISTRY_PREFIX = "pcloud-registry-"
"""Names of stored registry credentials begin so in requests; users never see it."""
_TRAINER = "-trainer"


class PaddleCloudJob:
    """A job in a list. A counter that the server does not send is None."""

    __slots__ = (
        *("active", "completed", "created", "desired", "failed"),
        *("is_paddle", "name", "namespace", "started", "succeeded"),
    )

    def __init__(
        self,
        name: str,
        namespace: str,
        desired: int | None,
        active: int | None = None,
        succeeded: int | None = None,
        failed: int | None = None,
        created: str = "",
        started: str = "",
        completed: str = "",
        *,
        is_paddle: bool = True,
    ):
        self.name = name
        self.namespace = namespace
        self.desired = desired
        self.active = active
        self.succeeded = succeeded
        self.failed = failed
        self.created = created
        """As the server wrote it, ``2017-06-26T08:41:01Z``; the others may be empty."""
        self.started = started
        self.completed = completed
        self.is_paddle = is_paddle
        """Whether it was submitted through PaddleCloud; our clusters list other jobs, too."""

    @property
    def is_pending(self) -> bool:
        return not self.started and not self.is_finished

    @property
    def is_finished(self) -> bool:
        return bool(self.completed) or (not self.active and bool(self.succeeded or self.failed))


class PaddleCloudWorker:
    """One process of a job: a trainer, a parameter server or the master."""

    __slots__ = ("exit_code", "message", "name", "phase", "started")

    def __init__(self, name: str, phase: str, started: str, exit_code: int | None, message: str):
        self.name = name
        self.phase = phase
        self.started = started
        self.exit_code = exit_code
        self.message = message


class PaddleCloudClient:
    """Client of one datacenter for one user. Not thread-safe: each thread creates its own."""

    def __init__(
        self,
        datacenter: str,
        transport: Transport,
        *,
        is_configured: bool = True,
        shares_machine: bool = False,
    ):
        """``is_configured``: whether the datacenter is in ``~/.paddle/config``. ``shares_machine``: whether
        jobs run beside the caller, with the caller's programs."""
        self.datacenter = datacenter
        self.transport = transport
        self.is_configured = is_configured
        self.shares_machine = shares_machine
        self.can_rename: bool | None = None
        """Whether the datacenter can rename files; None if it was not asked yet."""

    def with_own_connection(self) -> PaddleCloudClient:
        """A client of the same datacenter and user for another thread."""
        from openpaisdk.client.transport import Transport

        transport = self.transport
        other = type(self)(
            self.datacenter,
            Transport(transport.alias, transport.endpoint, transport.renew),
            is_configured=self.is_configured,
            shares_machine=self.shares_machine,
        )
        other.can_rename = self.can_rename
        return other

    @property
    def user(self) -> str:
        """The user's name; the server's answer if only a certificate says it."""
        endpoint = self.transport.endpoint
        if not endpoint.user:
            endpoint.user = _text(self.get("/api/v1/token2user/").get("user"))
        return endpoint.user

    @property
    def home(self) -> str:
        """The user's folder in the cloud."""
        return f"/pfs/{self.datacenter}/home/{self.user}"

    def log_in(self, user: str, password: str) -> str:
        """Exchange a password for a token."""
        token = self.send("POST", "/api-token-auth/", {"password": password, "username": user}).get("token")
        if not isinstance(token, str) or not token:
            raise self._not_paddlecloud()
        return token

    # -- jobs ----------------------------------------------------------------------------------

    def submit(self, job: Mapping[str, object], *, is_named: bool) -> tuple[str, list[str]]:
        """Submit a job; returns its final name, and the warnings of our own server.

        The slash at the end of the path means that the job has the name its user gave it. Without it, the
        cluster appends a suffix, so that the name is unique.
        """
        reply = self.send("POST", "/api/v1/jobs/" if is_named else "/api/v1/jobs", job)
        if is_named:
            _check_message(reply)
        else:
            _check_code(reply)
        warnings = reply.get("warnings")
        return _text(reply.get("name") or job["name"]), (
            [_text(warning) for warning in warnings] if isinstance(warnings, list) else []
        )

    def check_name(self, name: str) -> None:
        """Conflict if a job has this name, so that nothing is uploaded for one that would be refused.

        Our own server says the state of a job, and removes a stopped one when its name is used again.
        """
        reply = self.get("/api/v1/jobs/")
        _check_code(reply)
        terminating = reply.get("terminating")
        if isinstance(terminating, list) and name in terminating:
            raise Conflict(
                f"There is a job {name} already, which is being stopped.", hint="Try again when it has ended."
            )
        for item in _mappings(reply.get("items")):
            listed = _text(_mapping(item.get("metadata")).get("name")).removesuffix(_TRAINER)
            if listed == name and _mapping(item.get("status")).get("state") != "STOPPED":
                raise Conflict(
                    f"There is a job {name} already.",
                    hint="Use another name, or remove that job with its history: "
                    f"paddlecloud kill -rm {name}. Nothing was uploaded.",
                )

    def jobs(self) -> list[PaddleCloudJob]:
        """The user's jobs, running and finished ones, in the server's order: ours has the newest first."""
        reply = self.get("/api/v1/jobs")
        _check_code(reply)
        described = reply.get("msg")
        by_name = {
            _text(row.get("name")): row for row in _mappings(described if described is not None else [])
        }
        if "items" not in reply:
            return [_job_of_row(row, self.user) for row in by_name.values()]
        jobs = []
        for item in _mappings(reply["items"]):
            name = _text(_mapping(item.get("metadata")).get("name")).removesuffix(_TRAINER)
            jobs.append(_job_of_item(name, item, by_name.get(name, {}), self.user))
        # Jobs that are being stopped are in a list of their own.
        listed = {job.name for job in jobs}
        terminating = reply.get("terminating")
        for name in terminating if isinstance(terminating, list) else []:
            if str(name) not in listed:
                jobs.append(_job_of_row({**by_name.get(str(name), {}), "name": name}, self.user))
        order = {name: position for position, name in enumerate(by_name)}
        return sorted(jobs, key=lambda job: order.get(job.name, len(order)))

    def kill(self, name: str, *, remove: bool) -> None:
        """Stop a job; ``remove`` also deletes it from the history."""
        reply = self.send("DELETE", "/api/v1/jobs", {"jobname": name, **({"rm": True} if remove else {})})
        _check_code(reply)

    def workers(self, name: str = "") -> list[PaddleCloudWorker]:
        """The workers of a job, or of all jobs."""
        reply = self.get("/api/v1/workers/", {"jobname": name})
        _check_code(reply)
        return [_worker(item) for item in _mappings(reply.get("items"))]

    def logs(self, name: str, lines: int, worker: str = "") -> str:
        """The last lines of each trainer of a job, or of one worker."""
        reply = self.get("/api/v1/logs", {"jobname": name, "n": lines, "w": worker})
        _check_code(reply)
        return _text(reply.get("msg"))

    def quota(self) -> list[tuple[str, str, str]]:
        """Resource, used and limit, in the server's order; an unknown use is empty."""
        reply = self.get("/api/v1/quota")
        _check_code(reply)
        rows = []
        for item in _mappings(reply.get("items")):
            status = _mapping(item.get("status"))
            used = _mapping(status.get("used"))
            rows += [
                (_RESOURCES.get(key, key), _text(used.get(key)), _text(limit))
                for key, limit in _mapping(status.get("hard")).items()
            ]
        return rows

    # -- credentials of image registries, published files ----------------------------------------

    def registries(self) -> list[tuple[str, str]]:
        """Name and creation time of the stored registry credentials."""
        reply = self.get("/api/v1/registry/")
        _check_code(reply)
        registries = []
        for item in _mappings(_mapping(reply.get("msg")).get("items")):
            metadata = _mapping(item.get("metadata"))
            name = _text(metadata.get("name"))
            if name.startswith(REGISTRY_PREFIX):
                registries.append(
                    (name.removeprefix(REGISTRY_PREFIX), _text(metadata.get("creation_timestamp")))
                )
        return registries

    def put_registry(self, name: str, username: str, password: str, server: str) -> None:
        _check_code(
            self.send(
                "POST",
                "/api/v1/registry/",
                {
                    "name": REGISTRY_PREFIX + name,
                    "username": username,
                    "password": password,
                    "server": server,
                },
            )
        )

    def delete_registry(self, name: str) -> None:
        _check_code(self.send("DELETE", "/api/v1/registry/", {"name": REGISTRY_PREFIX + name}))

    def publish(self, path: str) -> str:
        """Publish a file; returns its address, which needs no login."""
        reply = self.send("POST", "/api/v1/publish/", {"path": path})
        url = _text(reply.get("url"))
        if not url:
            raise PaiError(sentence(reply.get("msg")) or f"The datacenter did not publish {path}.")
        return url

    def published(self) -> list[tuple[str, str]]:
        """Published files and their addresses."""
        reply = self.get("/api/v1/publish/")
        _check_code(reply)
        files, urls = reply.get("files"), reply.get("urls")
        if not isinstance(files, list) or not isinstance(urls, list):
            raise self._not_paddlecloud()
        return [(_text(file), _text(url)) for file, url in zip(files, urls, strict=False)]

    # -- simple files --------------------------------------------------------------------------

    def put_file(self, path: str, source: str, name: str, size: int) -> None:
        """Write a whole file; missing folders are created. ``name`` is sent along, as other clients do."""
        from openpaisdk.paddlecloud.multipart import FileForm

        form = FileForm(source, name, size)
        headers = {"Content-Type": form.content_type}
        _check_message(
            self.decode(self.request("POST", "/api/v1/file/", {"path": path}, body=form, headers=headers))
        )

    def open_file(self, path: str) -> Response:
        """The response with the content of a file."""
        response = self.request("GET", "/api/v1/file/", {"path": path})
        if "json" in response.headers.get("content-type", "").lower() and not response.headers.get(
            "content-disposition"
        ):
            _check_message(self.decode(response))
            raise self._not_paddlecloud()
        return response

    def file_names(self, path: str) -> list[str]:
        """Names in a folder."""
        reply = self.get("/api/v1/filelist/", {"path": path, "dc": self.datacenter})
        _check_message(reply)
        items = reply.get("items")
        return [_text(item) for item in items] if isinstance(items, list) else []

    # -- requests ------------------------------------------------------------------------------

    def get(self, path: str, values: Mapping[str, object] | None = None) -> dict[str, object]:
        # As a whole: one that breaks off is requested again.
        return self.decode(self.request("GET", path, values, whole=True))

    def send(self, method: str, path: str, value: Mapping[str, object]) -> dict[str, object]:
        return self.decode(self.request(method, path, body=json.dumps(value).encode()))

    def request(
        self,
        method: str,
        path: str,
        values: Mapping[str, object] | None = None,
        *,
        body: bytes | Body | None = None,
        headers: Mapping[str, str] | None = None,
        tries: int | None = None,
        whole: bool = False,
    ) -> Response:
        try:
            return self.transport.request(
                method,
                path,
                values=values,
                body=body,
                headers={"Content-Type": "application/json", "User-Agent": "paddlecloud", **(headers or {})},
                tries=tries,
                whole=whole,
            )
        except Unauthorized as e:
            raise self._unauthorized(e) from None
        except ConnectionFailed as e:
            raise self._unreachable(e) from None

    def decode(self, response: Response) -> dict[str, object]:
        """The JSON object of a reply."""
        try:
            response.buffer_body()
            value = json.loads(response.read())
        except (ValueError, RecursionError):
            raise self._not_paddlecloud() from None
        if not isinstance(value, dict):
            raise self._not_paddlecloud()
        return value

    def _unauthorized(self, error: Unauthorized) -> Unauthorized:
        certificate = self.transport.endpoint.certificate
        if certificate:
            message = f"The datacenter {self.datacenter} does not accept the certificate {certificate[0]}."
            hint = "It may have expired or been revoked: ask its administrator for a new one."
        else:
            message = (
                f"The datacenter {self.datacenter} does not accept your login: {sentence(error.message)}"
            )
            hint = "Check username and password in ~/.paddle/config." if self.is_configured else error.hint
        return Unauthorized(message, code=error.code, status=error.status, hint=hint)

    def _unreachable(self, error: ConnectionFailed) -> ConnectionFailed:
        if certificate := self.transport.endpoint.certificate:
            from openpaisdk.paddlecloud.certificate_file import CertificateFile

            # The server's alert may be lost when it closes the connection, so it is not asked.
            expired = CertificateFile(certificate[0]).expires
            if expired is not None and expired < time.time():
                when = time.strftime("%Y-%m-%d", time.localtime(expired))
                return type(error)(
                    f"The datacenter {self.datacenter} does not accept you: your certificate has expired, "
                    f"on {when}.",
                    hint=f"Ask its administrator for a new one, and put it into {certificate[0]}.",
                )
        if not self.is_configured or "pai " not in error.hint:
            return error
        what = "Name its CA file as cacert" if "--ca" in error.hint else "Check endpoint"
        hint = f"{what} of {self.datacenter} in ~/.paddle/config."
        if certificate and any(words in error.message for words in _CLOSED_EARLY):
            hint = f"It may refuse your certificate {certificate[0]}: look whether it issued it."
        return type(error)(error.message, code=error.code, status=error.status, hint=hint)

    def _not_paddlecloud(self) -> ConnectionFailed:
        return ConnectionFailed(
            f"The reply of the datacenter {self.datacenter} at {self.transport.endpoint.address} is not "
            "one of PaddleCloud.",
            hint=f"Check endpoint of {self.datacenter} in ~/.paddle/config.",
        )


_CLOSED_EARLY = ("reset by peer", "broken pipe", "eof occurred", "connection was closed")
"""What is left of a refused certificate when the server's alert is lost with the connection."""
_RESOURCES = {
    "requests.memory": "Memory",
    "requests.cpu": "CPU",
    "alpha.kubernetes.io/nvidia-gpu": "GPU",
    "pods": "MaxParallelism",
}
"""Kubernetes' keys of a quota as users read them."""


def _check_code(reply: Mapping[str, object]) -> None:
    """Replies with a code: everything but 200 is an error with a message. Lists of Kubernetes have none."""
    code = reply.get("code", OK if "items" in reply or "files" in reply else None)
    if code != OK:
        raise PaiError(sentence(reply.get("msg")) or "The datacenter refused the request without a reason.")


def _check_message(reply: Mapping[str, object]) -> None:
    """Replies whose message is an error unless it is empty."""
    if reply.get("msg") or reply.get("code", OK) != OK:
        raise PaiError(sentence(reply.get("msg")))


def sentence(message: object) -> str:
    """A server's message as a sentence."""
    text = _text(message).strip()
    return text if not text or text.endswith((".", "!", "?")) else text + "."


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _mappings(value: object) -> list[dict[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _job_of_row(row: Mapping[str, object], user: str) -> PaddleCloudJob:
    desired = _number(row.get("parallelism"))
    return PaddleCloudJob(
        _text(row.get("name")),
        namespace_of(user),
        desired,
        created=_text(row.get("created")),
        started=_text(row.get("started")),
        is_paddle=_has_package(row),
    )


def _has_package(row: Mapping[str, object]) -> bool:
    """Whether the row of a list is of a job with a package, as all jobs of PaddleCloud are."""
    package = row.get("job_package", row.get("jobPackage"))
    return package is None or bool(package)


def _job_of_item(
    name: str, item: Mapping[str, object], row: Mapping[str, object], user: str
) -> PaddleCloudJob:
    metadata, spec, status = (_mapping(item.get(key)) for key in ("metadata", "spec", "status"))
    desired = _number(row.get("parallelism"))
    return PaddleCloudJob(
        name,
        _text(metadata.get("namespace")) or namespace_of(user),
        desired if desired is not None else _number(spec.get("parallelism")),
        _number(status.get("active")),
        _number(status.get("succeeded")),
        _number(status.get("failed")),
        _text(metadata.get("creation_timestamp")),
        _text(status.get("start_time")),
        _text(status.get("completion_time")),
        is_paddle=_has_package(row),
    )


def _worker(item: Mapping[str, object]) -> PaddleCloudWorker:
    status = _mapping(item.get("status"))
    containers = _mappings(status.get("container_statuses"))
    ended = _mapping(_mapping(containers[0].get("state")).get("terminated")) if containers else {}
    return PaddleCloudWorker(
        _text(_mapping(item.get("metadata")).get("name")),
        _text(status.get("phase")),
        _text(status.get("start_time")),
        _number(ended.get("exit_code")),
        _text(ended.get("message")) or _text(status.get("message")),
    )


def namespace_of(user: str) -> str:
    """The user's name as PaddleCloud writes it where names are restricted: ``user1-gmail-com``."""
    return "".join("-" if c in "@._" else c for c in user)
