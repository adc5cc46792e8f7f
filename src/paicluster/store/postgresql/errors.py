"""Errors of PostgreSQL: which pass by themselves, and what administrators read about the others."""

from __future__ import annotations

from enum import Enum, auto

import psycopg
from sqlalchemy.exc import DBAPIError

from paicluster.store.address import DatabaseAddress
from paiprotocol.errors import InvalidParameters, PaiError, StoreError


class Failure(Enum):
    """A failure that says nothing about what was run."""

    # Of two transactions that got into each other's way, this one was rolled back.
    CONFLICT = auto()
    # The connection, or the server behind it.
    CONNECTION = auto()


# Serialization failure, deadlock.
_CONFLICTS = frozenset(("40001", "40P01"))
# Class 08: the connection. Class 57P: the server shuts down, crashed, starts, or ended the session.
_CONNECTION_CLASSES = ("08", "57P")
# The server is a standby now, or still: the connection is opened again, to whichever server can be written.
_READ_ONLY = "25006"

_WAIT = "The cluster goes on by itself when the database answers again."


def driver_error(error: BaseException) -> psycopg.Error | None:
    """The error of the driver, which may be wrapped."""
    if isinstance(error, DBAPIError):
        error = error.orig or error
    return error if isinstance(error, psycopg.Error) else None


def failure_of(error: BaseException) -> Failure | None:
    """Whether an error passes, and how; None: it is that of a statement."""
    found = driver_error(error)
    if found is None:
        return None
    state = found.sqlstate
    if state in _CONFLICTS:
        return Failure.CONFLICT
    if state is not None:
        is_lost = state.startswith(_CONNECTION_CLASSES) or state == _READ_ONLY
        return Failure.CONNECTION if is_lost else None
    # Errors of the driver itself: of a connection that ended, or that was used after that.
    return Failure.CONNECTION if isinstance(found, psycopg.OperationalError) else None


def as_pai_error(error: BaseException, address: DatabaseAddress) -> PaiError | None:
    """Error message for users of a failure of the database; None for any other error."""
    if isinstance(error, StoreError):
        return error
    found = driver_error(error)
    if found is None:
        return None
    state = found.sqlstate or ""
    text = _first_line(found)
    if isinstance(found, psycopg.DataError) and "NUL" in text:
        return InvalidParameters(
            "A text contains a NUL character, which the cluster's database cannot store."
        )
    if state == "54000" and "index row" in text:
        return InvalidParameters("A text is too long for an index of the cluster's database.")
    known = _KNOWN.get(state) or _KNOWN.get(state[:2])
    if known is not None:
        sentence, status, hint = known
        return StoreError(sentence.format(address=address, text=text), status=status, hint=hint)
    if failure_of(found) is Failure.CONNECTION:
        return unreachable(address, text)
    return None


def unreachable(address: DatabaseAddress, text: str) -> StoreError:
    """The database does not answer; ``text``: what libpq says of it."""
    for part, hint in _CONNECT_HINTS.items():
        if part in text:
            return StoreError(
                f"The cluster's database {address} cannot be used: {text}.", status=503, hint=hint
            )
    return StoreError(f"The cluster's database {address} does not answer ({text}).", status=503, hint=_WAIT)


def _first_line(error: psycopg.Error) -> str:
    message = error.diag.message_primary or str(error)
    # What libpq says is of several lines: one for each address that it tried, and advice after it.
    lines = [line.strip(" \t-") for line in message.splitlines() if line.strip()]
    first = next((line for line in lines if "failed:" in line), lines[0] if lines else type(error).__name__)
    return first.removeprefix("connection failed: ").rstrip(".")


# Messages of a refused connection have no code.
_CONNECT_HINTS = {
    "password": "Set database-password-file in cluster.yaml, or PAICLUSTER_DATABASE_PASSWORD.",
    "role": "Create the account: createuser --pwprompt NAME",
    "database": "Create the database: createdb --owner NAME DATABASE",
    "too many": "Raise max_connections of the database server: a cluster's server uses 5 connections.",
    "remaining connection slots": "Raise max_connections of the database server: "
    "a cluster's server uses 5 connections.",
    "certificate": "See sslmode and sslrootcert in the address of the database.",
    "SSL": "See sslmode and sslrootcert in the address of the database.",
}

# By the error's code, or its class: sentence, status, hint.
_KNOWN = {
    "40": (
        "A change to the cluster's database {address} was rolled back several times ({text}).",
        503,
        "Repeat the request. If that does not help, see which other programs use this database.",
    ),
    "25006": ("The cluster's database {address} is a standby, which cannot be written ({text}).", 503, _WAIT),
    "53100": (
        "The disk of the cluster's database {address} is full ({text}).",
        503,
        "Free some space on the disk of the database server.",
    ),
    "53": (
        "The server of the cluster's database {address} has too little of something ({text}).",
        503,
        "See its log; the cluster goes on by itself when it has enough.",
    ),
    "55P03": (
        "Another program holds a lock on the cluster's database {address} ({text}).",
        503,
        "Find it with: SELECT pid, query FROM pg_stat_activity WHERE state != 'idle'",
    ),
    "57014": (
        "The server of the cluster's database {address} canceled a query ({text}).",
        503,
        "See statement_timeout and similar settings of the database server.",
    ),
    "42501": (
        "The cluster's account may not do this in the database {address} ({text}).",
        500,
        "Make the account the owner of the database.",
    ),
    "58": (
        "The server of the cluster's database {address} cannot use its disk ({text}).",
        503,
        "See its log.",
    ),
    "XX": ("The cluster's database {address} is damaged ({text}).", 500, "Restore it from a backup."),
    "25P02": ("A change to the cluster's database {address} failed.", 500, "See the server's log."),
}
