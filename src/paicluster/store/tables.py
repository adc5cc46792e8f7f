"""Tables. Times are integer milliseconds since the epoch; enumerations and JSON are text.

A change here needs a migration in ``migrations/versions`` and its revision in
:data:`paicluster.store.schema_version.REVISIONS`; a test compares the two.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    false,
    func,
)

from paicluster.store.column_types import ID, INTEGER, TEXT

metadata = MetaData()


def _job_id(**options: object) -> Column[int]:
    return Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), **options)  # type: ignore[arg-type]


users = Table(
    "users",
    metadata,
    Column("username", TEXT, primary_key=True),
    Column("password_hash", TEXT, nullable=False),
    Column("email", TEXT, nullable=False),
    Column("admin", Boolean, nullable=False),
    Column("extension", TEXT, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("disabled_ms", BigInteger),
)

user_groups = Table(
    "user_groups",
    metadata,
    Column("groupname", TEXT, primary_key=True),
    Column("description", TEXT, nullable=False),
    Column("external_name", TEXT, nullable=False),
    # JSON. The rights of its members are under `acls`.
    Column("extension", TEXT, nullable=False),
)

group_members = Table(
    "group_members",
    metadata,
    Column("username", TEXT, ForeignKey("users.username", ondelete="CASCADE"), nullable=False),
    Column("groupname", TEXT, ForeignKey("user_groups.groupname", ondelete="CASCADE"), nullable=False),
    PrimaryKeyConstraint("username", "groupname"),
    Index("group_members_by_group", "groupname", "username"),
)

# Changes of virtual clusters at run time; everything else is in the settings.
virtual_clusters = Table(
    "virtual_clusters",
    metadata,
    Column("name", TEXT, primary_key=True),
    # NULL: as in the settings.
    Column("cpu", INTEGER),
    Column("memory_mb", INTEGER),
    Column("gpu", INTEGER),
    # In percent, as requested.
    Column("capacity", Float),
    Column("max_capacity", Float),
    Column("status", TEXT, nullable=False),
)


def _limits() -> list[Column[int]]:
    """Columns of a quota; NULL: not limited."""
    return [
        Column("tasks", INTEGER),
        Column("cpu", INTEGER),
        Column("memory_mb", BigInteger),
        Column("gpu", INTEGER),
        Column("storage_bytes", BigInteger),
    ]


user_quotas = Table(
    "user_quotas",
    metadata,
    Column("username", TEXT, ForeignKey("users.username", ondelete="CASCADE"), primary_key=True),
    *_limits(),
)

group_quotas = Table(
    "group_quotas",
    metadata,
    Column("groupname", TEXT, ForeignKey("user_groups.groupname", ondelete="CASCADE"), primary_key=True),
    *_limits(),
)

# Users who uploaded a source archive. To all others it does not exist: its hash is in the public job config.
source_owners = Table(
    "source_owners",
    metadata,
    Column("sha256", TEXT, nullable=False),
    Column("username", TEXT, ForeignKey("users.username", ondelete="CASCADE"), nullable=False),
    PrimaryKeyConstraint("sha256", "username"),
)

# Storages and storage servers that clients added through the v1 calls.
storage_records = Table(
    "storage_records",
    metadata,
    Column("kind", TEXT, nullable=False),
    Column("name", TEXT, nullable=False),
    # The group that may use it; NULL: all users.
    Column("groupname", TEXT),
    # The record as JSON, sealed: it contains passwords and keys.
    Column("sealed", LargeBinary, nullable=False),
    PrimaryKeyConstraint("kind", "name"),
)

# What users store beside jobs and files: registries, published files, certificates.
user_records = Table(
    "user_records",
    metadata,
    Column("kind", TEXT, nullable=False),
    Column("name", TEXT, nullable=False),
    Column("username", TEXT, ForeignKey("users.username", ondelete="CASCADE"), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    # The record as JSON, sealed: it may contain passwords.
    Column("sealed", LargeBinary, nullable=False),
    PrimaryKeyConstraint("kind", "username", "name"),
    Index("user_records_by_name", "kind", "name"),
)

# Job files that users keep to start from, for themselves or for a group.
job_templates = Table(
    "job_templates",
    metadata,
    Column("username", TEXT, ForeignKey("users.username", ondelete="CASCADE"), nullable=False),
    Column("name", TEXT, nullable=False),
    # The group whose members may use it; NULL: only its owner.
    Column("groupname", TEXT, ForeignKey("user_groups.groupname", ondelete="SET NULL")),
    Column("description", TEXT, nullable=False),
    # The job file, its secrets masked.
    Column("protocol", TEXT, nullable=False),
    Column("modified_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("username", "name"),
    Index("job_templates_by_group", "groupname", "name"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", ID, primary_key=True, autoincrement=True),
    # The job's entry in a listing, ready to send, so that a listing is a concatenation. It comes first
    # because SQLite has to skip over the columns before it.
    Column("summary", TEXT, nullable=False),
    Column("framework", TEXT, nullable=False),
    Column("username", TEXT, nullable=False),
    Column("name", TEXT, nullable=False),
    Column("debug_id", TEXT, nullable=False),
    Column("vc", TEXT, nullable=False),
    Column("priority", TEXT),
    Column("state", TEXT, nullable=False),
    Column("sub_state", TEXT, nullable=False),
    Column("execution_type", TEXT, nullable=False),
    Column("retries", INTEGER, nullable=False),
    Column("retries_user", INTEGER, nullable=False),
    Column("retries_platform", INTEGER, nullable=False),
    Column("platform_streak", INTEGER, nullable=False),
    Column("retry_delay_s", Float),
    Column("retry_at_ms", BigInteger),
    Column("submission_ms", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("launched_ms", BigInteger),
    Column("completed_ms", BigInteger),
    Column("exit_code", INTEGER),
    Column("total_gpus", INTEGER, nullable=False),
    Column("total_tasks", INTEGER, nullable=False),
    Column("total_roles", INTEGER, nullable=False),
    Column("attempt", INTEGER, nullable=False),
    Column("generation", TEXT, nullable=False),
    # A sorted JSON array, the same as in job_tags; here so that rendering a summary needs only this row.
    Column("tags", TEXT, nullable=False),
    # Of a finished job: tasks of its last attempt that failed.
    Column("failed_tasks", INTEGER),
    sqlite_autoincrement=True,
)
c = jobs.c
Index("jobs_framework", c.framework, unique=True)
# Each of these serves a filter (the value, newest first) and an order (by the value), both ways.
Index("jobs_by_submission", c.submission_ms)
Index("jobs_by_username", c.username, c.submission_ms)
Index("jobs_by_vc", c.vc, c.submission_ms)
Index("jobs_by_state", c.state, c.submission_ms)
# Both filters at once: the portal counts a user's jobs by state, again and again.
Index("jobs_by_username_and_state", c.username, c.state, c.submission_ms)
Index("jobs_by_name", c.name, c.submission_ms)
Index("jobs_by_retries", c.retries, c.submission_ms)
Index("jobs_by_tasks", c.total_tasks, c.submission_ms)
Index("jobs_by_gpus", c.total_gpus, c.submission_ms)
# Jobs without a value come last in ascending order. Queries must use exactly these expressions.
Index("jobs_by_completion", func.coalesce(c.completed_ms, 9223372036854775807), c.submission_ms)
Index(
    "jobs_by_duration",
    # A job that ended before it ran took no time.
    func.coalesce(c.completed_ms - func.coalesce(c.launched_ms, c.completed_ms), 9223372036854775807),
    # Of jobs that run, the oldest has run longest.
    -c.submission_ms,
)
Index("jobs_by_priority", func.coalesce(c.priority, "~"), c.submission_ms)
_active = c.sub_state != "Completed"
Index("jobs_active", c.id, sqlite_where=_active, postgresql_where=_active)
del c

tokens = Table(
    "tokens",
    metadata,
    Column("id", TEXT, primary_key=True),
    Column("username", TEXT, ForeignKey("users.username", ondelete="CASCADE"), nullable=False),
    Column("kind", TEXT, nullable=False),
    Column("name", TEXT, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Index("tokens_of_user", "username", "created_ms"),
)

job_specs = Table(
    "job_specs",
    metadata,
    _job_id(primary_key=True),
    Column("config", TEXT, nullable=False),
    Column("job", TEXT, nullable=False),
    Column("sealed", LargeBinary),
    # Encoded for the scheduler, which then need not parse the job.
    Column("resource_request", TEXT, nullable=False),
)

job_tags = Table(
    "job_tags",
    metadata,
    _job_id(nullable=False),
    Column("tag", TEXT, nullable=False),
    # That of the job; it never changes, and lets the index return the jobs of a tag newest first.
    Column("submission_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("job_id", "tag"),
    Index("job_tags_by_tag", "tag", "submission_ms", "job_id"),
)

# Of jobs that a job submitted, and of those that submitted one.
job_origins = Table(
    "job_origins",
    metadata,
    _job_id(primary_key=True),
    # 0: a user submitted it.
    Column("depth", INTEGER, nullable=False),
    # JSON: names of the jobs through which it was submitted, the first one first.
    Column("chain", TEXT, nullable=False),
    # Number of jobs that it submitted itself.
    Column("submitted", INTEGER, nullable=False),
)

attempts = Table(
    "attempts",
    metadata,
    _job_id(nullable=False),
    Column("attempt", INTEGER, nullable=False),
    Column("sub_state", TEXT, nullable=False),
    Column("created_ms", BigInteger),
    Column("launched_ms", BigInteger),
    Column("completed_ms", BigInteger),
    Column("exit_code", INTEGER),
    Column("exit_type", TEXT),
    Column("trigger_message", TEXT),
    Column("trigger_role", TEXT),
    Column("trigger_index", INTEGER),
    Column("diagnostics", TEXT),
    Column("runtime_exit", TEXT),
    PrimaryKeyConstraint("job_id", "attempt"),
)

tasks = Table(
    "tasks",
    metadata,
    Column("uid", TEXT, primary_key=True),
    _job_id(nullable=False),
    Column("attempt", INTEGER, nullable=False),
    Column("role", TEXT, nullable=False),
    Column("role_order", INTEGER, nullable=False),
    Column("task_index", INTEGER, nullable=False),
    Column("task_attempt", INTEGER, nullable=False),
    Column("task_uid", TEXT, nullable=False),
    Column("sub_state", TEXT, nullable=False),
    Column("node", TEXT),
    Column("ip", TEXT),
    Column("ports", TEXT),
    Column("gpus", TEXT),
    Column("cpu", Float, nullable=False),
    Column("memory_mb", INTEGER, nullable=False),
    Column("created_ms", BigInteger),
    Column("launched_ms", BigInteger),
    Column("completed_ms", BigInteger),
    Column("exit_code", INTEGER),
    Column("exit_info", TEXT),
    Column("retries_total", INTEGER, nullable=False),
    Column("retries_accountable", INTEGER, nullable=False),
    Column("stop_requested", Boolean, nullable=False),
    Column("lost", Boolean, nullable=False),
    # In this order the index also serves all tasks of an attempt, which the controller reads at its start.
    UniqueConstraint("job_id", "attempt", "role", "task_index", "task_attempt", name="tasks_place"),
)

# Summaries of what task attempts log with `log_metrics`; the series stay in the files of the tasks.
task_metrics = Table(
    "task_metrics",
    metadata,
    _job_id(nullable=False),
    # Of the task attempt.
    Column("uid", TEXT, nullable=False),
    Column("name", TEXT, nullable=False),
    Column("count", BigInteger, nullable=False),
    # NULL is NaN, which SQLite cannot store.
    Column("last_value", Float),
    Column("last_step", BigInteger, nullable=False),
    # NULL: all values are NaN.
    Column("min_value", Float),
    Column("min_step", BigInteger),
    Column("max_value", Float),
    Column("max_step", BigInteger),
    PrimaryKeyConstraint("job_id", "uid", "name"),
)

# How far the files of metrics have been read into `task_metrics`. A task that has logged none has no row,
# until the metrics of its job are asked for.
metric_files = Table(
    "metric_files",
    metadata,
    _job_id(nullable=False),
    Column("uid", TEXT, nullable=False),
    Column("read_bytes", BigInteger, nullable=False),
    # The task has ended, and everything was read.
    Column("complete", Boolean, nullable=False),
    # Whether there are names beyond the bound.
    Column("names_omitted", Boolean, nullable=False),
    PrimaryKeyConstraint("job_id", "uid"),
)

events = Table(
    "events",
    metadata,
    Column("id", ID, primary_key=True, autoincrement=True),
    _job_id(nullable=False),
    Column("uid", TEXT, nullable=False),
    Column("type", TEXT, nullable=False),
    Column("reason", TEXT, nullable=False),
    Column("message", TEXT, nullable=False),
    Column("task_role", TEXT),
    Column("task_index", INTEGER),
    Column("first_ms", BigInteger, nullable=False),
    Column("last_ms", BigInteger, nullable=False),
    Column("count", INTEGER, nullable=False),
    Column("source", TEXT, nullable=False),
    # Whether it tells why the job is pending.
    Column("pending", Boolean, nullable=False, server_default=false()),
    UniqueConstraint("job_id", "type", "reason", "message", name="events_same"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("username", TEXT, nullable=False),
    Column("key", TEXT, nullable=False),
    Column("body_sha256", TEXT, nullable=False),
    _job_id(nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    # The key first: a batch of keys of several users is looked up in one query.
    PrimaryKeyConstraint("key", "username"),
    Index("idempotency_by_age", "created_ms"),
)
