"""The tables. Times are integer milliseconds since the epoch; enumerations and JSON are text.

A change here needs a migration beside it in ``migrations/versions`` and its revision in
:data:`paicluster.store.schema_version.REVISIONS`; a test holds the two against each other.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    func,
)
from sqlalchemy.types import TypeEngine

metadata = MetaData()

# SQLite makes ids by itself only for a column called INTEGER; elsewhere 64 bits have to be asked for.
_Id: TypeEngine[int] = BigInteger().with_variant(Integer, "sqlite")


def _job_id(**options: object) -> Column[int]:
    return Column("job_id", _Id, ForeignKey("jobs.id", ondelete="CASCADE"), **options)  # type: ignore[arg-type]


users = Table(
    "users",
    metadata,
    Column("username", Text, primary_key=True),
    Column("password_hash", Text, nullable=False),
    Column("email", Text, nullable=False),
    Column("admin", Boolean, nullable=False),
    Column("extension", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)

user_groups = Table(
    "user_groups",
    metadata,
    Column("groupname", Text, primary_key=True),
    Column("description", Text, nullable=False),
    Column("external_name", Text, nullable=False),
    # JSON. What its members may use is under `acls`.
    Column("extension", Text, nullable=False),
)

group_members = Table(
    "group_members",
    metadata,
    Column("username", Text, ForeignKey("users.username", ondelete="CASCADE"), nullable=False),
    Column("groupname", Text, ForeignKey("user_groups.groupname", ondelete="CASCADE"), nullable=False),
    PrimaryKeyConstraint("username", "groupname"),
    Index("group_members_by_group", "groupname", "username"),
)

# What was changed of the virtual clusters while the cluster ran; the settings say the rest.
virtual_clusters = Table(
    "virtual_clusters",
    metadata,
    Column("name", Text, primary_key=True),
    # Nothing: as much as the settings give it.
    Column("cpu", Integer),
    Column("memory_mb", Integer),
    Column("gpu", Integer),
    # In percent, as somebody asked for it.
    Column("capacity", Float),
    Column("max_capacity", Float),
    Column("status", Text, nullable=False),
)

# Storages and their servers that were written down through the older calls, for clients to read.
storage_records = Table(
    "storage_records",
    metadata,
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    # Whose it is; nothing: everybody's.
    Column("groupname", Text),
    # The record as JSON. There are passwords and keys in it.
    Column("sealed", LargeBinary, nullable=False),
    PrimaryKeyConstraint("kind", "name"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    # The job's entry in a list, ready to send, so that a list is a concatenation. It stands in front because
    # the database has to walk over what comes before it.
    Column("summary", Text, nullable=False),
    Column("framework", Text, nullable=False),
    Column("username", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("debug_id", Text, nullable=False),
    Column("vc", Text, nullable=False),
    Column("priority", Text),
    Column("state", Text, nullable=False),
    Column("sub_state", Text, nullable=False),
    Column("execution_type", Text, nullable=False),
    Column("retries", Integer, nullable=False),
    Column("retries_user", Integer, nullable=False),
    Column("retries_platform", Integer, nullable=False),
    Column("platform_streak", Integer, nullable=False),
    Column("retry_delay_s", Float),
    Column("retry_at_ms", BigInteger),
    Column("submission_ms", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("launched_ms", BigInteger),
    Column("completed_ms", BigInteger),
    Column("exit_code", Integer),
    Column("total_gpus", Integer, nullable=False),
    Column("total_tasks", Integer, nullable=False),
    Column("total_roles", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("generation", Text, nullable=False),
    # A sorted JSON array, the same as in job_tags; here so that rendering a summary needs this row alone.
    Column("tags", Text, nullable=False),
    sqlite_autoincrement=True,
)
c = jobs.c
Index("jobs_framework", c.framework, unique=True)
# Each of these serves a filter (the value, newest first) and an order (by the value), both ways.
Index("jobs_by_submission", c.submission_ms)
Index("jobs_by_username", c.username, c.submission_ms)
Index("jobs_by_vc", c.vc, c.submission_ms)
Index("jobs_by_state", c.state, c.submission_ms)
Index("jobs_by_name", c.name, c.submission_ms)
Index("jobs_by_retries", c.retries, c.submission_ms)
Index("jobs_by_tasks", c.total_tasks, c.submission_ms)
Index("jobs_by_gpus", c.total_gpus, c.submission_ms)
# Jobs without a value come last going up. The queries must have the very same expressions.
Index("jobs_by_completion", func.coalesce(c.completed_ms, 9223372036854775807), c.submission_ms)
Index("jobs_by_priority", func.coalesce(c.priority, "~"), c.submission_ms)
_active = c.sub_state != "Completed"
Index("jobs_active", c.id, sqlite_where=_active)
del c

tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("username", Text, ForeignKey("users.username", ondelete="CASCADE"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Index("tokens_of_user", "username", "created_ms"),
)

job_specs = Table(
    "job_specs",
    metadata,
    _job_id(primary_key=True),
    Column("config", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("sealed", LargeBinary),
    # What the scheduler compares, without reading the job.
    Column("resource_request", Text, nullable=False),
)

job_tags = Table(
    "job_tags",
    metadata,
    _job_id(nullable=False),
    Column("tag", Text, nullable=False),
    # The job's; it never changes, and lets the index give a tag's jobs newest first.
    Column("submission_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("job_id", "tag"),
    Index("job_tags_by_tag", "tag", "submission_ms", "job_id"),
)

attempts = Table(
    "attempts",
    metadata,
    _job_id(nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("sub_state", Text, nullable=False),
    Column("created_ms", BigInteger),
    Column("launched_ms", BigInteger),
    Column("completed_ms", BigInteger),
    Column("exit_code", Integer),
    Column("exit_type", Text),
    Column("trigger_message", Text),
    Column("trigger_role", Text),
    Column("trigger_index", Integer),
    Column("diagnostics", Text),
    Column("runtime_exit", Text),
    PrimaryKeyConstraint("job_id", "attempt"),
)

tasks = Table(
    "tasks",
    metadata,
    Column("uid", Text, primary_key=True),
    _job_id(nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("role", Text, nullable=False),
    Column("role_order", Integer, nullable=False),
    Column("task_index", Integer, nullable=False),
    Column("task_attempt", Integer, nullable=False),
    Column("task_uid", Text, nullable=False),
    Column("sub_state", Text, nullable=False),
    Column("node", Text),
    Column("ip", Text),
    Column("ports", Text),
    Column("gpus", Text),
    Column("cpu", Float, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("created_ms", BigInteger),
    Column("launched_ms", BigInteger),
    Column("completed_ms", BigInteger),
    Column("exit_code", Integer),
    Column("exit_info", Text),
    Column("retries_total", Integer, nullable=False),
    Column("retries_accountable", Integer, nullable=False),
    Column("stop_requested", Boolean, nullable=False),
    Column("lost", Boolean, nullable=False),
    # In this order it also finds all tasks of a job's attempt, as the controller does at its start.
    UniqueConstraint("job_id", "attempt", "role", "task_index", "task_attempt", name="tasks_place"),
)

events = Table(
    "events",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    _job_id(nullable=False),
    Column("uid", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("task_role", Text),
    Column("task_index", Integer),
    Column("first_ms", BigInteger, nullable=False),
    Column("last_ms", BigInteger, nullable=False),
    Column("count", Integer, nullable=False),
    Column("source", Text, nullable=False),
    UniqueConstraint("job_id", "type", "reason", "message", name="events_same"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("username", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("body_sha256", Text, nullable=False),
    _job_id(nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    # The key first: a batch of keys is looked up in one go, whoever sent them.
    PrimaryKeyConstraint("key", "username"),
    Index("idempotency_by_age", "created_ms"),
)
