"""Index of jobs by user and state, for lists and counts with both filters."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_index("jobs_by_username_and_state", "jobs", ["username", "state", "submission_ms"])
