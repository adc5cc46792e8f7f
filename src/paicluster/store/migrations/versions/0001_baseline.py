"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

SEARCH = (
    "CREATE VIRTUAL TABLE job_search USING fts5"
    "(text, content='', columnsize=0, tokenize='trigram case_sensitive 1')",
    "CREATE TABLE job_search_progress (upto INTEGER NOT NULL)",
    "INSERT INTO job_search_progress VALUES (0)",
)


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("framework", sa.Text(), nullable=False),
        sa.Column("username", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("debug_id", sa.Text(), nullable=False),
        sa.Column("vc", sa.Text(), nullable=False),
        sa.Column("priority", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("sub_state", sa.Text(), nullable=False),
        sa.Column("execution_type", sa.Text(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("retries_user", sa.Integer(), nullable=False),
        sa.Column("retries_platform", sa.Integer(), nullable=False),
        sa.Column("platform_streak", sa.Integer(), nullable=False),
        sa.Column("retry_delay_s", sa.Float(), nullable=True),
        sa.Column("retry_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("submission_ms", sa.BigInteger(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("launched_ms", sa.BigInteger(), nullable=True),
        sa.Column("completed_ms", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("total_gpus", sa.Integer(), nullable=False),
        sa.Column("total_tasks", sa.Integer(), nullable=False),
        sa.Column("total_roles", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "jobs_active",
        "jobs",
        ["id"],
        unique=False,
        sqlite_where=sa.text("sub_state != 'Completed'"),
        postgresql_where=sa.text("sub_state != 'Completed'"),
    )
    op.create_index("jobs_by_gpus", "jobs", ["total_gpus", "submission_ms"], unique=False)
    op.create_index("jobs_by_name", "jobs", ["name", "submission_ms"], unique=False)
    op.create_index("jobs_by_retries", "jobs", ["retries", "submission_ms"], unique=False)
    op.create_index("jobs_by_state", "jobs", ["state", "submission_ms"], unique=False)
    op.create_index("jobs_by_submission", "jobs", ["submission_ms"], unique=False)
    op.create_index("jobs_by_tasks", "jobs", ["total_tasks", "submission_ms"], unique=False)
    op.create_index("jobs_by_username", "jobs", ["username", "submission_ms"], unique=False)
    op.create_index("jobs_by_vc", "jobs", ["vc", "submission_ms"], unique=False)
    op.create_index("jobs_framework", "jobs", ["framework"], unique=True)
    op.create_table(
        "users",
        sa.Column("username", sa.Text(), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("admin", sa.Boolean(), nullable=False),
        sa.Column("extension", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("username"),
    )
    op.create_table(
        "attempts",
        sa.Column("job_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("sub_state", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=True),
        sa.Column("launched_ms", sa.BigInteger(), nullable=True),
        sa.Column("completed_ms", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("exit_type", sa.Text(), nullable=True),
        sa.Column("trigger_message", sa.Text(), nullable=True),
        sa.Column("trigger_role", sa.Text(), nullable=True),
        sa.Column("trigger_index", sa.Integer(), nullable=True),
        sa.Column("diagnostics", sa.Text(), nullable=True),
        sa.Column("runtime_exit", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "attempt"),
    )
    op.create_table(
        "events",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("job_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("task_role", sa.Text(), nullable=True),
        sa.Column("task_index", sa.Integer(), nullable=True),
        sa.Column("first_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_ms", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "type", "reason", "message", name="events_same"),
    )
    op.create_table(
        "idempotency",
        sa.Column("username", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body_sha256", sa.Text(), nullable=False),
        sa.Column("job_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("key", "username"),
    )
    op.create_index("idempotency_by_age", "idempotency", ["created_ms"], unique=False)
    op.create_table(
        "job_specs",
        sa.Column("job_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("need", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_table(
        "job_tags",
        sa.Column("job_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.Column("submission_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "tag"),
    )
    op.create_index("job_tags_by_tag", "job_tags", ["tag", "submission_ms", "job_id"], unique=False)
    op.create_table(
        "tasks",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("job_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("role_order", sa.Integer(), nullable=False),
        sa.Column("task_index", sa.Integer(), nullable=False),
        sa.Column("task_attempt", sa.Integer(), nullable=False),
        sa.Column("task_uid", sa.Text(), nullable=False),
        sa.Column("sub_state", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=True),
        sa.Column("ip", sa.Text(), nullable=True),
        sa.Column("ports", sa.Text(), nullable=True),
        sa.Column("gpus", sa.Text(), nullable=True),
        sa.Column("cpu", sa.Float(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=True),
        sa.Column("launched_ms", sa.BigInteger(), nullable=True),
        sa.Column("completed_ms", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("exit_info", sa.Text(), nullable=True),
        sa.Column("retries_total", sa.Integer(), nullable=False),
        sa.Column("retries_accountable", sa.Integer(), nullable=False),
        sa.Column("stop_requested", sa.Boolean(), nullable=False),
        sa.Column("lost", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("uid"),
        sa.UniqueConstraint("job_id", "attempt", "role", "task_index", "task_attempt", name="tasks_place"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("username", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["username"], ["users.username"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("tokens_of_user", "tokens", ["username", "created_ms"], unique=False)
    op.create_index(
        "jobs_by_completion",
        "jobs",
        [sa.text("coalesce(completed_ms, 9223372036854775807)"), "submission_ms"],
    )
    op.create_index("jobs_by_priority", "jobs", [sa.text("coalesce(priority, '~')"), "submission_ms"])
    # The keyword index is SQLite's own; elsewhere its place is taken by what that database offers.
    if op.get_bind().dialect.name == "sqlite":
        for statement in SEARCH:
            op.execute(statement)
