"""The one tree of exceptions, shared by the SDK and the cluster.

Every error carries OpenPAI's ``code``, one sentence that says what was wrong and where,
and, where there is something to do, a ``hint`` that says what. The HTTP status rides along
so that the same object can be raised in the server and raised again in the client.
"""

from __future__ import annotations

NO_JOB = "NoJobError"
JOB_CONFLICT = "ConflictJobError"
"""OpenPAI's codes of a job that does not exist, and of a job name that is in use."""


class PaiError(Exception):
    """Anything we tell a person about. ``exit_status`` is what a command line ends with."""

    code = "UnknownError"
    status = 500
    exit_status = 1

    def __init__(self, message: str, *, code: str | None = None, status: int | None = None, hint: str = ""):
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(hint)  # so that it is seen where nobody catches the error
        if code is not None:
            self.code = code
        if status is not None:
            self.status = status

    def __str__(self) -> str:
        return self.message


class UsageError(PaiError):
    """The command line or a call was wrong; nothing was sent."""

    code = "UsageError"
    status = 400
    exit_status = 2


class ConfigError(PaiError):
    """A file or a setting on this machine is wrong."""

    code = "ConfigError"
    status = 500


class ConnectionFailed(PaiError):
    """A cluster did not answer, or not in a way we understand."""

    code = "ConnectionFailed"
    status = 503


class InvalidParameters(PaiError):
    code = "InvalidParametersError"
    status = 400


class ProtocolError(PaiError):
    """A job description is wrong. ``problems`` lists everything found, not only the first."""

    code = "InvalidProtocolError"
    status = 400

    def __init__(self, message: str, *, problems: tuple[object, ...] = (), hint: str = ""):
        super().__init__(message, hint=hint)
        self.problems = problems


class Unauthorized(PaiError):
    code = "UnauthorizedUserError"
    status = 401


class Forbidden(PaiError):
    code = "ForbiddenUserError"
    status = 403


class NotFound(PaiError):
    code = "NotFoundError"
    status = 404


class Conflict(PaiError):
    code = "ConflictError"
    status = 409


class Unavailable(PaiError):
    """The cluster cannot take this now, for a reason of its own (disk full, starting, stopping)."""

    code = "UnavailableError"
    status = 503


class TooManyRequests(PaiError):
    """Somebody asks too often. ``retry_after_s`` says when to come back."""

    code = "TooManyRequestsError"
    status = 429

    def __init__(self, message: str, *, retry_after_s: float = 1.0, limit: int = 0, hint: str = ""):
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s
        self.limit = limit


class StoreError(PaiError):
    """The cluster's database cannot be used."""

    code = "StoreError"
    status = 500


class StopNotPersisted(StoreError):
    """A job's tasks were stopped, but the stop could not be written to the database yet."""

    code = "StopNotPersistedError"
    status = 503
