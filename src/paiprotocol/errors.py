"""Exception tree, shared by the SDK and the cluster. Its public name is ``openpaisdk.errors``.

Every error carries OpenPAI's ``code``, one sentence that says what is wrong and where, and,
if the user can do something about it, a ``hint`` that says what. It also carries the HTTP status,
so that the server can raise an error and the client can raise the same error again.
"""

from __future__ import annotations

NO_JOB = "NoJobError"
DISABLED_USER = "DisabledUserError"
NO_SOURCES = "NoSourcesError"
JOB_CONFLICT = "ConflictJobError"
RUNNING_JOB = "RemoveRunningJobError"
"""OpenPAI's codes of a job that does not exist, of a job name that is in use, and of a job that cannot be
deleted because it has not finished."""
STORAGE_FULL = "StorageFullError"
UNSCHEDULABLE_JOB = "UnschedulableJobError"
"""A job that asks for more than its cluster has, and was refused because its user wanted that."""


class PaiError(Exception):
    """Base class of all errors shown to users. ``exit_status`` is the exit status of the command."""

    code = "UnknownError"
    status = 500
    exit_status = 1

    def __init__(self, message: str, *, code: str | None = None, status: int | None = None, hint: str = ""):
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(hint)  # shown in the traceback when the error is not caught
        if code is not None:
            self.code = code
        if status is not None:
            self.status = status

    def __str__(self) -> str:
        return self.message


class UsageError(PaiError):
    """Wrong command line or arguments; nothing was sent."""

    code = "UsageError"
    status = 400
    exit_status = 2


class ConfigError(PaiError):
    """A configuration file or setting on this machine is wrong."""

    code = "ConfigError"
    status = 500


class ConnectionFailed(PaiError):
    """A cluster did not respond, or its response could not be parsed."""

    code = "ConnectionFailed"
    status = 503


class NotConnected(ConnectionFailed):
    """No connection was established in time: nothing was sent, and waiting longer rarely helps."""


class InvalidParameters(PaiError):
    code = "InvalidParametersError"
    status = 400


class ProtocolError(PaiError):
    """An invalid job description. ``problems`` lists every problem, not only the first."""

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
    """The cluster cannot handle the request now (disk full, starting, stopping).

    ``retry_after_s``: how long to wait before the next request, where that is known.
    """

    code = "UnavailableError"
    status = 503

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        hint: str = "",
        retry_after_s: float | None = None,
    ):
        super().__init__(message, code=code, status=status, hint=hint)
        self.retry_after_s = retry_after_s


class TooManyRequests(PaiError):
    """The client exceeded a rate limit. ``retry_after_s``: how long to wait before the next request."""

    code = "TooManyRequestsError"
    status = 429

    def __init__(self, message: str, *, retry_after_s: float = 1.0, limit: int = 0, hint: str = ""):
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s
        self.limit = limit


class StoreError(PaiError):
    """The cluster's database is unusable."""

    code = "StoreError"
    status = 500


class StopNotPersisted(StoreError):
    """A job's tasks were stopped, but the stop could not be written to the database yet."""

    code = "StopNotPersistedError"
    status = 503


# The name that users import, read in tracebacks, and have in saved results.
for _name, _value in tuple(globals().items()):
    if isinstance(_value, type) and issubclass(_value, PaiError):
        _value.__module__ = "openpaisdk.errors"
del _name, _value
