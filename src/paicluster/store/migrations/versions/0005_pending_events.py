"""Events tell by a flag, not by their reason, that they explain why a job is pending."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

# Reasons of such events up to this revision.
_REASONS = (
    "FailedLaunch",
    "FailedScheduling",
    "Preempted",
    "Pulling",
    "Retrying",
    "Scheduled",
    "SlurmNotAnswering",
    "SlurmUnavailable",
)


def upgrade() -> None:
    op.add_column("events", sa.Column("pending", sa.Boolean(), nullable=False, server_default=sa.false()))
    events = sa.table("events", sa.column("pending", sa.Boolean()), sa.column("reason", sa.Text()))
    op.execute(events.update().where(events.c.reason.in_(_REASONS)).values(pending=True))
