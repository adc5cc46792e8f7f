"""Last, lowest and highest value of each metric of each task are rows; series stay in files.

Those of existing jobs are read from their files when they are first asked for.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "task_metrics",
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("last_value", sa.Float()),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("min_value", sa.Float()),
        sa.Column("min_step", sa.BigInteger()),
        sa.Column("max_value", sa.Float()),
        sa.Column("max_step", sa.BigInteger()),
        sa.PrimaryKeyConstraint("job_id", "uid", "name"),
    )
    op.create_table(
        "metric_files",
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("read_bytes", sa.BigInteger(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("names_omitted", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "uid"),
    )
