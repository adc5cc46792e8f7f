"""Connections to a PostgreSQL server: how each kind is set up."""

from __future__ import annotations

from typing import Any, cast

import psycopg
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8Dumper
from sqlalchemy import Connection, Engine, ExceptionContext, create_engine, event
from sqlalchemy.pool import NullPool

from paicluster.store.address import DatabaseAddress
from paiprotocol.errors import ConfigError, StoreError

# Trigrams are an extension that the owner of a database may install from this version on.
_MIN_VERSION = 13

# Where the address sets nothing else. A server that vanished is noticed within seconds: requests wait for it.
_DEFAULTS = {
    "application_name": "paicluster",
    "connect_timeout": "2",
    "target_session_attrs": "read-write",
    "tcp_user_timeout": "10000",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
}

# Our queries are short: compiling one takes longer than running it.
_ALL = "SET jit = off"
# A commit is durable before a request is answered, whatever the server's default is; a stricter one stays.
_DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
# The server notices soon that a machine vanished, and releases the lock that this connection holds.
_NOTICE_LOSS = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3"
_WRITER = f"{_ALL}; SET lock_timeout = '30s'; {_NOTICE_LOSS}; {_DURABLE}"
_READER = (
    f"{_ALL}; SET default_transaction_read_only = on; SET default_transaction_isolation = 'repeatable read'"
)

# The number of the transaction, and whether its commit was sent and not answered.
_NUMBER, COMMITTING = "paicluster_transaction", "paicluster_committing"
_IS_WRITER = "paicluster_writer"
# Characters that mean nothing in any text.
_IN_NO_ROW = "\ufdd0NUL\ufdd1"


def parameters(address: DatabaseAddress) -> dict[str, Any]:
    """libpq's parameters; ConfigError: what is wrong with the address."""
    try:
        found = conninfo_to_dict(address.url)
    except psycopg.ProgrammingError as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise ConfigError(
            f"The address of the database {address} is wrong: {reason}.",
            hint="Write it as postgresql://USER@HOST:PORT/DATABASE?sslmode=verify-full",
        ) from None
    password = address.password()
    if password is not None:
        found["password"] = password
    return {**_DEFAULTS, **found, "client_encoding": "utf8"}


def make_engine(address: DatabaseAddress) -> Engine:
    """Engine with explicit transactions, as that of SQLite."""
    parameters(address)

    def connect() -> psycopg.Connection[Any]:
        # The file of the password is read again: passwords change.
        conn = psycopg.connect(**parameters(address), autocommit=True)
        # Integers of all sizes as one type: each statement is prepared once.
        conn.adapters.register_dumper(int, Int8Dumper)
        return conn

    engine = create_engine(
        "postgresql+psycopg://",
        creator=connect,
        poolclass=NullPool,
        pool_reset_on_return=None,
        use_native_hstore=False,
    )
    event.listen(engine, "begin", _begin)
    event.listen(engine, "handle_error", _keep_lost_connection)
    return engine


class _SearchedText(Dumper):
    """A text that rows are looked for by. No row has one with NUL, which the database refuses."""

    def dump(self, obj: str) -> bytes:
        return obj.replace("\0", _IN_NO_ROW).encode()


def _keep_lost_connection(context: ExceptionContext) -> None:
    # SQLAlchemy would open another one by itself, in the middle of a transaction. That is for the backend.
    context.is_disconnect = False


def _begin(conn: Connection) -> None:
    # SQLAlchemy begins a transaction at its first statement; one may already be open.
    if raw_connection(conn).info.transaction_status == TransactionStatus.IDLE:
        begin(conn)


def open_writer(engine: Engine) -> Connection:
    conn = engine.connect().execution_options(**{_IS_WRITER: True})
    raw = raw_connection(conn)
    _check_server(raw)
    raw.execute(_WRITER)
    return conn


def open_reader(engine: Engine) -> Connection:
    """A connection whose transactions change nothing, and see one snapshot."""
    conn = engine.connect()
    raw = raw_connection(conn)
    raw.adapters.register_dumper(str, _SearchedText)
    raw.execute(_READER)
    return conn


def _check_server(raw: psycopg.Connection[Any]) -> None:
    version = raw.info.server_version // 10000
    if version < _MIN_VERSION:
        raise StoreError(f"PostgreSQL {_MIN_VERSION} or newer is needed; the server is {version}.")
    encoding = raw.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(
            f"The database {raw.info.dbname} has the encoding {encoding}; the cluster needs UTF8.",
            hint=f"Create another one: createdb --encoding UTF8 --template template0 {raw.info.dbname}",
        )


def begin(conn: Connection) -> None:
    """Begin a transaction. The number of the writer's is kept: it tells later how the transaction ended."""
    raw = raw_connection(conn)
    if not conn.get_execution_options().get(_IS_WRITER):
        raw.execute("BEGIN")
        return
    conn.info[COMMITTING] = False
    cursor = raw.execute("BEGIN; SELECT pg_current_xact_id()::text", prepare=False)
    cursor.nextset()
    row = cursor.fetchone()
    conn.info[_NUMBER] = None if row is None else row[0]


def commit(conn: Connection) -> None:
    raw = raw_connection(conn)
    if raw.info.transaction_status != TransactionStatus.INTRANS:
        # A function has ignored an error of a statement: a commit would silently be a rollback.
        raise StoreError("A change of the cluster's database failed before its end; nothing was changed.")
    conn.info[COMMITTING] = True
    if conn.in_transaction():
        conn.commit()
    else:
        raw.commit()
    conn.info[COMMITTING] = False


def transaction_in_commit(conn: Connection) -> str | None:
    """The number of the transaction whose commit was sent and not answered."""
    return conn.info[_NUMBER] if conn.info.get(COMMITTING) else None


def rollback(conn: Connection) -> None:
    raw = raw_connection(conn)
    if raw is None or raw.closed:
        return
    try:
        # Also without a transaction: after a commit that failed SQLAlchemy refuses statements until this.
        conn.rollback()
        if raw.info.transaction_status != TransactionStatus.IDLE:
            raw.rollback()
    except Exception:
        # It is lost; what uses it next finds that out, and opens another one.
        raw.close()


def is_lost(conn: Connection) -> bool:
    raw = raw_connection(conn)
    return raw is None or raw.closed


def transaction_lost(conn: Connection) -> bool:
    live = (TransactionStatus.INTRANS, TransactionStatus.INERROR)
    return is_lost(conn) or raw_connection(conn).info.transaction_status not in live


def close_driver(conn: Connection) -> None:
    """Close the driver's connection: what uses it next finds it closed."""
    raw = raw_connection(conn)
    if raw is not None:
        raw.close()


def discard(conn: Connection) -> None:
    if not conn.closed:
        close_driver(conn)
        conn.invalidate()
        conn.close()


def raw_connection(conn: Connection) -> psycopg.Connection[Any]:
    return cast("psycopg.Connection[Any]", conn.connection.dbapi_connection)
