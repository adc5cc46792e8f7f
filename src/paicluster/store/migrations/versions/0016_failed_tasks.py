"""Lists of jobs say how many tasks of a finished job failed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from paicluster.store.column_types import INTEGER

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    # Jobs that have finished before have no number, and their entries in lists stay as they are.
    op.add_column("jobs", sa.Column("failed_tasks", INTEGER))
