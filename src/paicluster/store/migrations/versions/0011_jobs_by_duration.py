"""Index of jobs by how long they ran, for lists in this order."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    duration = "coalesce(completed_ms - coalesce(launched_ms, completed_ms), 9223372036854775807)"
    op.create_index("jobs_by_duration", "jobs", [text(duration), text("-submission_ms")])
